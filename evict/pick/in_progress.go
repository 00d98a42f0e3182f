package pick

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"polder/evict/rule"
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
	// Cooldowns are those that the eviction began (see [rule.Finding.CooldownKey]), at the tick of the time DecidedAt.
	Cooldowns []string  `json:"rests,omitempty"`
	DecidedAt time.Time `json:"decided,omitzero"`
	// RequestedAt is when its eviction was requested. If the clock is set back to before it, the wait starts over.
	RequestedAt time.Time `json:"requested"`
	// OwnGrace is the pod's own grace period, if that one applies and the API server has returned it.
	OwnGrace time.Duration `json:"ownGrace,omitzero"`
	// Awaited means that this run waits for the pod, and will report its outcome.
	Awaited bool `json:"-"`
	// Frozen means that the pod was frozen: it stays, and counts as released, until it is thawed.
	Frozen bool `json:"held,omitempty"`
	// EndedAt is the time since which the pod has no process, although the sample still lists its cgroup.
	EndedAt time.Time `json:"ended,omitzero"`
	// FailedAt is when the eviction failed: for RetryAfter the pod is no candidate, so that another one is tried.
	FailedAt   time.Time     `json:"spared,omitzero"`
	RetryAfter time.Duration `json:"sparedFor,omitzero"`
	// StuckTerminating means that its end was requested before that, and that it has not ended.
	StuckTerminating bool `json:"hangs,omitempty"`
	// Unanswered means that its end was requested, but that the answer is unknown. The pod does not count as released, and stays
	// a candidate: while the need lasts its eviction is requested again first, so that one need does not evict two pods.
	Unanswered bool `json:"unanswered,omitempty"`
	// ServerErrors counts the consecutive answers of the API server for this pod that are failures.
	ServerErrors int `json:"serverErrors,omitzero"`
}

// Times of an eviction.
const (
	minTimeout = 10 * time.Second
	// requestTimeout exceeds the duration of a request: budgets refuse for a while, an API server does not respond.
	requestTimeout = 45 * time.Second
	// defaultGrace is used instead of a pod's own grace period, which the tick does not contain: Kubernetes' default.
	defaultGrace = 30 * time.Second
	// maxGrace bounds a pod's own grace period, which its owner chooses.
	maxGrace = 24 * time.Hour
	// stuckAfter is how long a pod that terminates in its own time, or that another client has deleted, counts as released. A
	// pod may never end: its resources would then count as free forever.
	stuckAfter = 5 * time.Minute
	// maxServerErrors is how often in a row an API server may answer with a failure for one pod before another one is tried: the failure
	// may affect that pod alone.
	maxServerErrors = 2
	// DefaultRetryAfter is how long a pod whose eviction failed is no candidate.
	DefaultRetryAfter = 5 * time.Minute
)

// Grace returns the time in which a pod may end by itself.
func Grace(e *tick.PodEviction) time.Duration {
	if e.GracePeriodSeconds == nil || *e.GracePeriodSeconds < 0 {
		return defaultGrace
	}
	return time.Duration(*e.GracePeriodSeconds) * time.Second
}

// Timeout returns how long evict waits for a pod whose end was requested, Katalyst's max(10 s, 1.5 x grace).
func Timeout(e *tick.PodEviction) time.Duration { return max(minTimeout, Grace(e)*3/2) }

// timeout returns how long evict waits for the pod since the decision, including the request.
func (l *Ongoing) timeout() time.Duration {
	timeout := max(Timeout(&l.Eviction), min(l.OwnGrace, maxGrace)*3/2)
	if l.Eviction.State == tick.StateRequested {
		timeout += requestTimeout
	}
	return timeout
}

// IsRequested reports whether the pod's end was requested, and nothing more is known.
func (l *Ongoing) IsRequested() bool {
	return l.Eviction.State == tick.StateRequested && l.FailedAt.IsZero() && l.EndedAt.IsZero() && !l.Frozen
}

// StillAwaited reports whether what an earlier run began is still awaited.
func (l *Ongoing) StillAwaited(now time.Time) bool {
	waited := now.Sub(l.RequestedAt)
	return l.FailedAt.IsZero() && l.EndedAt.IsZero() && !l.Frozen && waited >= 0 && waited <= l.timeout()
}

// Has reports whether a pod's eviction is in progress.
func (g InProgress) Has(uid string) bool { l := g[uid]; return l != nil && l.FailedAt.IsZero() }

// releases reports whether such a pod counts as released.
func (l *Ongoing) releases(now time.Time) bool {
	if l.Frozen || !l.EndedAt.IsZero() {
		return true
	}
	return now.Sub(l.RequestedAt) <= max(stuckAfter, Timeout(&l.Eviction)+requestTimeout)
}

// FailedRecently reports whether a pod is no candidate for now because its eviction failed.
func (g InProgress) FailedRecently(uid string) bool {
	l := g[uid]
	return l != nil && !l.FailedAt.IsZero() && !l.Unanswered
}

// Unanswered reports whether a pod's end was requested and the answer is unknown.
func (g InProgress) Unanswered(uid string) bool { l := g[uid]; return l != nil && l.Unanswered }

// Add records that a victim's end was requested.
func (g InProgress) Add(v Victim, now time.Time) *Ongoing {
	l := &Ongoing{Eviction: v.Eviction, Cgroup: v.Pod.Cgroup, Cooldowns: v.Cooldowns, DecidedAt: now, RequestedAt: now}
	l.Eviction.State = tick.StateRequested
	if previous := g[v.Pod.UID]; previous != nil && previous.Unanswered {
		l.ServerErrors = previous.ServerErrors
	}
	g[v.Pod.UID] = l
	return l
}

// Fail records that an eviction failed. After retryAfter, or DefaultRetryAfter if that is 0, the pod is a candidate again.
func (g InProgress) Fail(uid, why string, now time.Time, retryAfter time.Duration) {
	if l := g[uid]; l != nil {
		l.StuckTerminating = l.StuckTerminating || l.Eviction.State == tick.StateCreated
		l.Eviction.State, l.Eviction.Error = tick.StateFailed, why
		l.FailedAt, l.RetryAfter, l.Awaited = now, retryAfter, false
	}
}

// NoAnswer records that the result of an eviction is unknown.
func (g InProgress) NoAnswer(uid, why string, now time.Time) {
	g.Fail(uid, why, now, 0)
	if l := g[uid]; l != nil {
		l.Unanswered, l.ServerErrors = true, 0
	}
}

// Accept records that an eviction whose answer is unknown has been accepted, because its pod terminates: since now at the latest.
func (l *Ongoing) Accept(now time.Time) {
	l.Eviction.State, l.Eviction.Error = tick.StateCreated, ""
	l.RequestedAt, l.FailedAt, l.RetryAfter = now, time.Time{}, 0
	l.Unanswered, l.ServerErrors = false, 0
}

// Observe checks the pods whose eviction is in progress and returns the reports of this tick.
func (g InProgress) Observe(now time.Time, pods Pods) []tick.PodEviction {
	var reports []tick.PodEviction
	for _, uid := range slices.Sorted(maps.Keys(g)) {
		l, pod := g[uid], pods.ByUID[uid]
		isGone := pods.HasEnded(uid) || pod == nil && l.isForgotten(now)
		switch {
		case l.Unanswered && pod != nil && rule.IsTerminating(pod):
			l.Accept(now)
			reports = append(reports, l.Eviction)
		case l.Unanswered && pods.HasEnded(uid): // accepted, and over before a sample showed it
			l.Accept(now)
			l.Eviction.State = tick.StateSucceeded
			reports = append(reports, l.Eviction)
			delete(g, uid)
		case !l.FailedAt.IsZero():
			g.observeFailed(uid, l, now, pod, isGone)
		case isGone:
			if l.Eviction.State != tick.StateSucceeded {
				l.Eviction.State = tick.StateSucceeded
				reports = append(reports, l.Eviction)
			}
			delete(g, uid)
		case l.Frozen:
			reports = append(reports, l.Eviction)
		case !l.EndedAt.IsZero():
			g.observeEnded(uid, l, now, pod)
		default:
			if now.Before(l.RequestedAt) {
				l.RequestedAt = now
			}
			// An eviction that the runner awaits has a limit of its own, and the runner reports its end.
			if timeout := l.timeout(); now.Sub(l.RequestedAt) > timeout && !(l.Awaited && l.Eviction.State == tick.StateCreated) {
				g.Fail(uid, fmt.Sprintf("the pod still exists after %s", timeout), now, 0)
			}
			reports = append(reports, l.Eviction)
		}
	}
	return reports
}

// isForgotten reports whether the last step of an eviction was more than an hour ago. A pod that is missing so long has ended even if
// collect cannot read all pods: else one unreadable cgroup would keep every eviction for ever.
func (l *Ongoing) isForgotten(now time.Time) bool {
	last := l.RequestedAt
	for _, at := range []time.Time{l.EndedAt, l.FailedAt} {
		if at.After(last) {
			last = at
		}
	}
	return now.Sub(last) > time.Hour
}

// End records that the last process of a pod's cgroup has ended. It is reported once; while the sample lists the empty
// cgroup, the pod counts as released.
func (g InProgress) End(uid string, now time.Time) (tick.PodEviction, bool) {
	l := g[uid]
	if l == nil {
		return tick.PodEviction{}, false
	}
	l.Eviction.State, l.Eviction.Error = tick.StateSucceeded, ""
	l.EndedAt, l.FailedAt, l.RetryAfter, l.Unanswered, l.StuckTerminating = now, time.Time{}, 0, false, false
	return l.Eviction, true
}

// observeEnded drops a pod whose cgroup has new processes: another program started it again.
func (g InProgress) observeEnded(uid string, l *Ongoing, now time.Time, pod *tick.Pod) {
	if now.Before(l.EndedAt) {
		l.EndedAt = now
	}
	if pod != nil && now.After(l.EndedAt) && pod.Threads != nil && *pod.Threads > 0 {
		delete(g, uid)
	}
}

func (g InProgress) observeFailed(uid string, l *Ongoing, now time.Time, pod *tick.Pod, isGone bool) {
	if now.Before(l.FailedAt) {
		l.FailedAt = now
	}
	retryAfter := DefaultRetryAfter
	if l.RetryAfter > 0 {
		retryAfter = l.RetryAfter
	}
	isStuck := l.StuckTerminating && (pod == nil || rule.IsTerminating(pod))
	if now.Sub(l.FailedAt) >= retryAfter && !isStuck || isGone {
		delete(g, uid)
	}
}
