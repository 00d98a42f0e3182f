package pick

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"polder/lib/tick"
)

// InProgress are the pods of one node whose eviction is in progress, by UID. It is encoded as JSON into the state file.
type InProgress map[string]*Ongoing

// Ongoing is one pod whose eviction is in progress.
type Ongoing struct {
	Eviction tick.PodEviction `json:"eviction"`
	Cgroup   string           `json:"cgroup,omitempty"`
	// Inode is the cgroup's where its processes were frozen or killed: a later one of the same name is not meant.
	Inode uint64 `json:"inode,omitempty"`
	// Cooldowns are those that it began (see [rule.Finding.CooldownKey]), at the tick of the time Decided.
	Cooldowns []string  `json:"rests,omitempty"`
	Decided   time.Time `json:"decided,omitzero"`
	// Requested is when its eviction was asked for. A clock that is set back behind it restarts the wait.
	Requested time.Time `json:"requested"`
	// OwnGrace is the pod's own grace period, where it was given that one and the API server has answered how long it is.
	OwnGrace time.Duration `json:"ownGrace,omitzero"`
	// Awaited means that somebody of this run waits for the pod, and will report its outcome.
	Awaited bool `json:"-"`
	// Held means that the pod was frozen: it stays, and counts as released, until it is thawed.
	Held bool `json:"held,omitempty"`
	// Ended is the time since which the pod has no process any more although the sample still lists its cgroup.
	Ended time.Time `json:"ended,omitzero"`
	// Spared is when the eviction came to nothing: for SparedFor the pod is no candidate, so that another is tried.
	Spared    time.Time     `json:"spared,omitzero"`
	SparedFor time.Duration `json:"sparedFor,omitzero"`
	// Hangs means that it was asked to end before that, and has not.
	Hangs bool `json:"hangs,omitempty"`
	// Unanswered means that it was asked to end, and that nobody knows whether that was heard. It does not count as released,
	// and is not spared either: while the need lasts it is the first to be asked again, so that not two are evicted for one need.
	Unanswered bool `json:"unanswered,omitempty"`
	// ServerErrors counts how often in a row the API server's last word was that it failed.
	ServerErrors int `json:"serverErrors,omitzero"`
}

// Times of an eviction.
const (
	leastPatience = 10 * time.Second
	// askPatience is more than the asking may take: budgets refuse for a while, an API server does not answer.
	askPatience = 45 * time.Second
	// ownGrace stands in for a pod's own grace period, which the tick does not have: Kubernetes' default.
	ownGrace = 30 * time.Second
	// longestGrace bounds a pod's own grace period, which its owner chooses.
	longestGrace = 24 * time.Hour
	// hangAfter is how long a pod that ends in its own time, or that somebody else has deleted, counts as released. A pod may
	// never finish: what it holds would then be taken to be free for good.
	hangAfter = 5 * time.Minute
	// mostServerErrors is how often in a row an API server may fail at one pod before another is tried: it may do so for that
	// pod alone.
	mostServerErrors = 2
	// SpareFor is how long a pod whose eviction came to nothing is no candidate.
	SpareFor = 5 * time.Minute
)

// Grace is the time that a pod is given to end by itself.
func Grace(e *tick.PodEviction) time.Duration {
	if e.GracePeriodSeconds == nil || *e.GracePeriodSeconds < 0 {
		return ownGrace
	}
	return time.Duration(*e.GracePeriodSeconds) * time.Second
}

// Patience is how long a pod that was asked to end is waited for, Katalyst's max(10 s, 1.5 x grace).
func Patience(e *tick.PodEviction) time.Duration { return max(leastPatience, Grace(e)*3/2) }

// patience is how long the pod is waited for since it was decided on, the asking itself included.
func (l *Ongoing) patience() time.Duration {
	wait := max(Patience(&l.Eviction), min(l.OwnGrace, longestGrace)*3/2)
	if l.Eviction.State == tick.StateRequested {
		wait += askPatience
	}
	return wait
}

// Waits reports whether what an earlier run began is still waited for.
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

// Unanswered reports whether a pod was asked to end and nobody knows whether that was heard.
func (g InProgress) Unanswered(uid string) bool { l := g[uid]; return l != nil && l.Unanswered }

// took reports whether a cooldown has begun with another pod, too, whose eviction is in progress since then.
func (g InProgress) took(key string, at time.Time) bool {
	for _, l := range g {
		if l.Spared.IsZero() && l.Decided.Equal(at) && slices.Contains(l.Cooldowns, key) {
			return true
		}
	}
	return false
}

// Add notes that a victim was asked to end.
func (g InProgress) Add(v Victim, now time.Time) *Ongoing {
	l := &Ongoing{Eviction: v.Eviction, Cgroup: v.Pod.Cgroup, Cooldowns: v.Cooldowns, Decided: now, Requested: now}
	l.Eviction.State = tick.StateRequested
	if before := g[v.Pod.UID]; before != nil && before.Unanswered {
		l.ServerErrors = before.ServerErrors
	}
	g[v.Pod.UID] = l
	return l
}

// Fail notes that an eviction came to nothing. After again, or SpareFor where that is 0, the pod is a candidate again.
func (g InProgress) Fail(uid, why string, now time.Time, again time.Duration) {
	if l := g[uid]; l != nil {
		l.Hangs = l.Hangs || l.Eviction.State == tick.StateCreated
		l.Eviction.State, l.Eviction.Error = tick.StateFailed, why
		l.Spared, l.SparedFor, l.Awaited = now, again, false
	}
}

// NoAnswer notes that nobody knows what came of an eviction.
func (g InProgress) NoAnswer(uid, why string, now time.Time) {
	g.Fail(uid, why, now, 0)
	if l := g[uid]; l != nil {
		l.Unanswered, l.ServerErrors = true, 0
	}
}

// Observe looks at the pods whose eviction is in progress and returns what there is to report about each in this tick. The
// pods listed in the sample are those present; complete reports whether the list can be trusted, so that who is not in it
// has gone.
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
			// An eviction that the evictor itself awaits has a limit of its own, and its end is reported.
			if wait := l.patience(); now.Sub(l.Requested) > wait && !(l.Awaited && l.Eviction.State == tick.StateCreated) {
				g.Fail(uid, fmt.Sprintf("still there after %s", wait), now, 0)
			}
			reports = append(reports, l.Eviction)
		}
	}
	return reports
}

// End notes that the last process of a pod's cgroup has ended. It is reported once; while the sample lists the empty cgroup,
// the pod counts as released.
func (g InProgress) End(uid string, now time.Time) (tick.PodEviction, bool) {
	l := g[uid]
	if l == nil {
		return tick.PodEviction{}, false
	}
	l.Eviction.State, l.Eviction.Error = tick.StateSucceeded, ""
	l.Ended, l.Spared, l.SparedFor, l.Unanswered, l.Hangs = now, time.Time{}, 0, false, false
	return l.Eviction, true
}

// observeEnded forgets a pod whose cgroup has got new processes: someone started it again.
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
