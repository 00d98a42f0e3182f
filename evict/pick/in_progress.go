package pick

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"polder/lib/tick"
)

// InProgress are the pods of one node whose eviction is in progress, by UID. The state file contains it as JSON.
type InProgress map[string]*Ongoing

// Ongoing is one pod whose eviction is in progress.
type Ongoing struct {
	Eviction tick.PodEviction `json:"eviction"`
	Cgroup   string           `json:"cgroup,omitempty"`
	// Inode is the cgroup's if its processes were frozen or killed: a later cgroup of the same name is not the target.
	Inode uint64 `json:"inode,omitempty"`
	// Cooldowns are those that the eviction began (see [rule.Finding.CooldownKey]), at the tick of the time Decided.
	Cooldowns []string  `json:"rests,omitempty"`
	Decided   time.Time `json:"decided,omitzero"`
	// Requested is when its eviction was requested. If the clock is set back to before it, the wait starts over.
	Requested time.Time `json:"requested"`
	// OwnGrace is the pod's own grace period, if that one applies and the API server has returned it.
	OwnGrace time.Duration `json:"ownGrace,omitzero"`
	// Awaited means that this run waits for the pod, and will report its outcome.
	Awaited bool `json:"-"`
	// Held means that the pod was frozen: it stays, and counts as released, until it is thawed.
	Held bool `json:"held,omitempty"`
	// Ended is the time since which the pod has no process, although the sample still lists its cgroup.
	Ended time.Time `json:"ended,omitzero"`
	// Spared is when the eviction failed: for SparedFor the pod is no candidate, so that another one is tried.
	Spared    time.Time     `json:"spared,omitzero"`
	SparedFor time.Duration `json:"sparedFor,omitzero"`
	// Hangs means that its end was requested before that, and that it has not ended.
	Hangs bool `json:"hangs,omitempty"`
	// Unanswered means that its end was requested, but that the answer is unknown. The pod does not count as released, and is not
	// spared either: while the need lasts it is asked again first, so that one need does not evict two pods.
	Unanswered bool `json:"unanswered,omitempty"`
	// ServerErrors counts the API server's consecutive failures for this pod.
	ServerErrors int `json:"serverErrors,omitzero"`
}

// Times of an eviction.
const (
	leastPatience = 10 * time.Second
	// askPatience exceeds the duration of a request: budgets refuse for a while, an API server does not respond.
	askPatience = 45 * time.Second
	// ownGrace is used instead of a pod's own grace period, which the tick does not contain: Kubernetes' default.
	ownGrace = 30 * time.Second
	// longestGrace bounds a pod's own grace period, which its owner chooses.
	longestGrace = 24 * time.Hour
	// hangAfter is how long a pod that terminates in its own time, or that another client has deleted, counts as released. A
	// pod may never end: its resources would then count as free forever.
	hangAfter = 5 * time.Minute
	// mostServerErrors is how often in a row an API server may fail for one pod before another one is tried: the failure may
	// affect that pod alone.
	mostServerErrors = 2
	// SpareFor is how long a pod whose eviction failed is no candidate.
	SpareFor = 5 * time.Minute
)

// Grace returns the time in which a pod may end by itself.
func Grace(e *tick.PodEviction) time.Duration {
	if e.GracePeriodSeconds == nil || *e.GracePeriodSeconds < 0 {
		return ownGrace
	}
	return time.Duration(*e.GracePeriodSeconds) * time.Second
}

// Patience returns how long evict waits for a pod whose end was requested, Katalyst's max(10 s, 1.5 x grace).
func Patience(e *tick.PodEviction) time.Duration { return max(leastPatience, Grace(e)*3/2) }

// patience returns how long evict waits for the pod since the decision, including the request.
func (l *Ongoing) patience() time.Duration {
	wait := max(Patience(&l.Eviction), min(l.OwnGrace, longestGrace)*3/2)
	if l.Eviction.State == tick.StateRequested {
		wait += askPatience
	}
	return wait
}

// Waits reports whether what an earlier run began is still awaited.
func (l *Ongoing) Waits(now time.Time) bool {
	waited := now.Sub(l.Requested)
	return l.Spared.IsZero() && l.Ended.IsZero() && !l.Held && waited >= 0 && waited <= l.patience()
}

// Has reports whether a pod's eviction is in progress.
func (g InProgress) Has(uid string) bool { l := g[uid]; return l != nil && l.Spared.IsZero() }

// releases reports whether such a pod counts as released.
func (l *Ongoing) releases(now time.Time) bool {
	if l.Held || !l.Ended.IsZero() {
		return true
	}
	return now.Sub(l.Requested) <= max(hangAfter, Patience(&l.Eviction)+askPatience)
}

// Spared reports whether a pod is no candidate for now.
func (g InProgress) Spared(uid string) bool {
	l := g[uid]
	return l != nil && !l.Spared.IsZero() && !l.Unanswered
}

// Unanswered reports whether a pod's end was requested and the answer is unknown.
func (g InProgress) Unanswered(uid string) bool { l := g[uid]; return l != nil && l.Unanswered }

// took reports whether a cooldown also began with another pod whose eviction is in progress since then.
func (g InProgress) took(key string, at time.Time) bool {
	for _, l := range g {
		if l.Spared.IsZero() && l.Decided.Equal(at) && slices.Contains(l.Cooldowns, key) {
			return true
		}
	}
	return false
}

// Add records that a victim's end was requested.
func (g InProgress) Add(v Victim, now time.Time) *Ongoing {
	l := &Ongoing{Eviction: v.Eviction, Cgroup: v.Pod.Cgroup, Cooldowns: v.Cooldowns, Decided: now, Requested: now}
	l.Eviction.State = tick.StateRequested
	if before := g[v.Pod.UID]; before != nil && before.Unanswered {
		l.ServerErrors = before.ServerErrors
	}
	g[v.Pod.UID] = l
	return l
}

// Fail records that an eviction failed. After again, or SpareFor if that is 0, the pod is a candidate again.
func (g InProgress) Fail(uid, why string, now time.Time, again time.Duration) {
	if l := g[uid]; l != nil {
		l.Hangs = l.Hangs || l.Eviction.State == tick.StateCreated
		l.Eviction.State, l.Eviction.Error = tick.StateFailed, why
		l.Spared, l.SparedFor, l.Awaited = now, again, false
	}
}

// NoAnswer records that the result of an eviction is unknown.
func (g InProgress) NoAnswer(uid, why string, now time.Time) {
	g.Fail(uid, why, now, 0)
	if l := g[uid]; l != nil {
		l.Unanswered, l.ServerErrors = true, 0
	}
}

// Observe checks the pods whose eviction is in progress and returns the reports of this tick. present are the pods in the
// sample; complete reports whether the list is complete, so that a missing pod has ended.
func (g InProgress) Observe(now time.Time, present map[string]*tick.Pod, complete bool) []tick.PodEviction {
	var reports []tick.PodEviction
	for _, uid := range slices.Sorted(maps.Keys(g)) {
		l := g[uid]
		switch pod := present[uid]; {
		case !l.Spared.IsZero():
			g.observeSpared(uid, l, now, pod, complete)
		case pod == nil && complete:
			if l.Eviction.State != tick.StateSucceeded {
				l.Eviction.State = tick.StateSucceeded
				reports = append(reports, l.Eviction)
			}
			delete(g, uid)
		case l.Held:
			reports = append(reports, l.Eviction)
		case !l.Ended.IsZero():
			g.observeEnded(uid, l, now, pod)
		default:
			if now.Before(l.Requested) {
				l.Requested = now
			}
			// An eviction that the runner awaits has a limit of its own, and the runner reports its end.
			if wait := l.patience(); now.Sub(l.Requested) > wait && !(l.Awaited && l.Eviction.State == tick.StateCreated) {
				g.Fail(uid, fmt.Sprintf("still there after %s", wait), now, 0)
			}
			reports = append(reports, l.Eviction)
		}
	}
	return reports
}

// End records that the last process of a pod's cgroup has ended. It is reported once; while the sample lists the empty
// cgroup, the pod counts as released.
func (g InProgress) End(uid string, now time.Time) (tick.PodEviction, bool) {
	l := g[uid]
	if l == nil {
		return tick.PodEviction{}, false
	}
	l.Eviction.State, l.Eviction.Error = tick.StateSucceeded, ""
	l.Ended, l.Spared, l.SparedFor, l.Unanswered, l.Hangs = now, time.Time{}, 0, false, false
	return l.Eviction, true
}

// observeEnded drops a pod whose cgroup has new processes: another program started it again.
func (g InProgress) observeEnded(uid string, l *Ongoing, now time.Time, pod *tick.Pod) {
	if now.Before(l.Ended) {
		l.Ended = now
	}
	if pod != nil && now.After(l.Ended) && pod.Threads != nil && *pod.Threads > 0 {
		delete(g, uid)
	}
}

func (g InProgress) observeSpared(uid string, l *Ongoing, now time.Time, pod *tick.Pod, complete bool) {
	if now.Before(l.Spared) {
		l.Spared = now
	}
	rest := SpareFor
	if l.SparedFor > 0 {
		rest = l.SparedFor
	}
	hangs := l.Hangs && (pod == nil || pod.Terminating)
	if now.Sub(l.Spared) >= rest && !hangs || pod == nil && complete {
		delete(g, uid)
	}
}
