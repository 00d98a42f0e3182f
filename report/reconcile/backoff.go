package reconcile

import (
	"math/rand/v2"
	"time"

	"polder/lib/kube"
)

// Backoff after a write that failed: it is doubled each time, so that a server that answers again soon gets the write, but not from a
// thousand agents at once. The limit is longer where somebody must act first.
const (
	firstBackoff     = 500 * time.Millisecond
	longestBackoff   = 8 * time.Second
	permanentBackoff = 30 * time.Second
	// mostDoublings keeps the shifts below in range.
	mostDoublings = 10
)

// Backoff is how long one object waits after its last failure. The zero value does not wait.
type Backoff struct {
	failures  int  // in a row, of the same kind
	permanent bool // their kind
	until     time.Time
}

// Failed notes a failure and returns how long to wait from now. It starts over where the kind of error changes: an API server that has
// just started forbids everything for a second or two.
func (b *Backoff) Failed(err error, now time.Time) time.Duration {
	longest, permanent := longestBackoff, Permanent(err)
	if permanent != b.permanent {
		b.permanent, b.failures = permanent, 0
	}
	if permanent {
		longest = permanentBackoff
	}
	wait := max(Jitter(min(firstBackoff<<b.failures, longest)), kube.RetryAfter(err))
	b.failures = min(b.failures+1, mostDoublings)
	b.until = now.Add(wait)
	return wait
}

// Jitter is a time span, up to a quarter shorter or longer.
func Jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.75 + rand.Float64()/2))
}

// Permanent reports whether retrying soon is useless, because somebody must act first.
func Permanent(err error) bool {
	return kube.IsNotFound(err) || kube.IsForbidden(err) || kube.IsInvalid(err) || kube.IsUnknownField(err)
}

// Waits before an external change is reverted: doubled each time that it happens again. The first one gives a process that was just asked
// to stop the time to do so, after report --withdraw has run.
const (
	// FirstRestore is the first of these waits, and LongestRestore the last one.
	FirstRestore   = 2 * time.Second
	LongestRestore = time.Minute
	restoreReset   = 5 * time.Minute // without external changes, after which the wait is the first one again
)

// restore is when an external change of one object may be reverted.
type restore struct {
	pending bool // there is a change that was not reverted yet
	changes int
	last    time.Time // when the newest change was noticed
	at      time.Time
}

// changed notes at each check that the object is not as it was written.
func (r *restore) changed(now time.Time) {
	if r.pending {
		return
	}
	if now.Sub(r.last) > restoreReset {
		r.changes = 0
	}
	r.pending, r.last, r.at = true, now, now.Add(min(FirstRestore<<r.changes, LongestRestore))
	r.changes = min(r.changes+1, mostDoublings)
}
