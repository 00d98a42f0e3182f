package pick

import (
	"slices"
	"time"
)

// LastHour are the evictions within the last hour of the ticks' time. The state file contains it as JSON.
type LastHour []CountedEviction

// CountedEviction is one eviction in [LastHour].
type CountedEviction struct {
	At        time.Time `json:"at"`
	UID       string    `json:"uid"`
	Namespace string    `json:"namespace,omitempty"`
}

// Observe drops entries older than an hour. If the clock is set back behind an entry, the entry stays for an hour from
// then: the clock never causes a limit to be exceeded.
func (h *LastHour) Observe(now time.Time) {
	*h = slices.DeleteFunc(*h, func(t CountedEviction) bool { return now.Sub(t.At) >= time.Hour })
	for i := range *h {
		if t := &(*h)[i]; now.Before(t.At) {
			t.At = now
		}
	}
}

// Add records that a pod was evicted.
func (h *LastHour) Add(uid, namespace string, now time.Time) {
	*h = append(*h, CountedEviction{now, uid, namespace})
}

// RemoveLatest removes a pod's last eviction, which failed.
func (h *LastHour) RemoveLatest(uid string) {
	for i := range slices.Backward(*h) {
		if (*h)[i].UID == uid {
			*h = slices.Delete(*h, i, i+1)
			return
		}
	}
}

// InNamespace counts the evictions in a namespace.
func (h LastHour) InNamespace(namespace string) int {
	n := 0
	for i := range h {
		if h[i].Namespace == namespace {
			n++
		}
	}
	return n
}

// Has reports whether a pod is counted.
func (h LastHour) Has(uid string) bool {
	return slices.ContainsFunc(h, func(t CountedEviction) bool { return t.UID == uid })
}
