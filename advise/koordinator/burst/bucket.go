package burst

import (
	"hash/fnv"
	"math"
	"time"

	"polder/advise/koordinator/revert"
	"polder/lib/tick"
)

// bucket limits for how long a container's quota may exceed its limit. A token is one percent of the limit for one second.
type bucket struct {
	Tokens float64   `json:"tokens"`
	At     time.Time `json:"at"`
	// Seconds is the period that was last set. Other settings change the capacity, but not the tokens: whoever writes the pod's annotation
	// must not get new ones by that.
	Seconds int64 `json:"seconds"`
}

func (b *bucket) period() time.Duration {
	return time.Duration(min(b.Seconds, 1e9)) * time.Second
}

// maxAbsence is the time after which a bucket that was not used is replaced by a new one. The pod's annotation may set a period of 0, or
// one that is shorter than the time between two ticks: without the lower bound, that would give the pod new tokens at every tick.
func (b *bucket) maxAbsence() time.Duration { return max(2*b.period(), revert.Duration) }

// mayExceedLimit reports whether the container's quota may exceed its limit, and accounts for the use since the last tick: use over the
// limit takes tokens from the bucket, use below 60 % of the limit adds tokens. Unknown use counts as the limit itself.
func (r *round) mayExceedLimit(p *tick.Pod, t *tick.Container, c config, limit int64) bool {
	if c.periodSeconds < 0 {
		return true
	}
	capacity := float64(c.periodSeconds) * float64(c.quotaPercent-100)
	b := r.state.Buckets[t.Cgroup]
	if b == nil || r.now.Sub(b.At) > b.maxAbsence() {
		b = &bucket{Tokens: capacity * initialLevel(p.UID, t.Name), At: r.now}
		if r.state.Buckets == nil {
			r.state.Buckets = map[string]*bucket{}
		}
		r.state.Buckets[t.Cgroup] = b
	}
	b.Seconds = c.periodSeconds
	used := 100.0
	if u := t.UsageMilliCPU; u != nil && !math.IsNaN(*u) {
		used = max(*u, 0) / float64(limit) * 100
	}
	if elapsed := r.now.Sub(b.At).Seconds(); elapsed > 0 && (used >= 100 || used < 60) {
		b.Tokens += (100 - used) * elapsed
	}
	b.Tokens = max(min(b.Tokens, capacity), -capacity)
	b.At = r.now
	return b.Tokens > 0
}

// initialLevel returns a new bucket's level, from 0 to less than a half: containers that start together must not burst together. The level
// is deterministic, so that a replayed recording gives the same decisions.
func initialLevel(uid, container string) float64 {
	h := fnv.New64a()
	h.Write([]byte(uid))
	h.Write([]byte{0})
	h.Write([]byte(container))
	sum := h.Sum64()
	sum ^= sum >> 33 // the hash's low bits spread better than its high ones
	sum *= 0xff51afd7ed558ccd
	return float64(sum>>11) / (1 << 54)
}
