// Package revert remembers the cgroups that had other values than their own, so that these are restored when nothing else is desired any
// more: for some time, because isolate may be down. After that nothing is advised for them. It is pure.
package revert

import (
	"time"

	"polder/lib/tick"
)

// Duration is how long a cgroup's own values are advised once nothing else is desired.
const Duration = 10 * time.Minute

// Last is when a cgroup last had other values than its own, or, while its own are restored, when that began, because ticks may have been
// missing in between. It is embedded in a package's state of the cgroup.
type Last struct {
	At          time.Time `json:"at"`
	IsReverting bool      `json:"reverts,omitempty"`
}

func (l *Last) last() *Last { return l }

// Cgroups is the state of cgroups, by cgroup, in the format of the state file.
type Cgroups[T any, P interface {
	*T
	last() *Last
}] map[string]*T

// EntriesOf returns the entries of a pod and of its containers.
func (c Cgroups[T, P]) EntriesOf(p *tick.Pod) (entries []P) {
	if len(c) == 0 {
		return nil
	}
	if e := c[p.Cgroup]; e != nil {
		entries = append(entries, e)
	}
	for i := range p.Containers {
		if e := c[p.Containers[i].Cgroup]; e != nil {
			entries = append(entries, e)
		}
	}
	return entries
}

// KeepPod leaves a pod unchanged that the API server does not know (it may be unreachable). It reports whether the pod had other values
// than its own.
func (c Cgroups[T, P]) KeepPod(p *tick.Pod, now time.Time) bool {
	entries := c.EntriesOf(p)
	for _, e := range entries {
		e.last().At = now
	}
	return len(entries) > 0
}

// Entry returns the entry of a cgroup, and creates it if there is none.
func (c *Cgroups[T, P]) Entry(cgroup string) P {
	if *c == nil {
		*c = Cgroups[T, P]{}
	}
	if (*c)[cgroup] == nil {
		(*c)[cgroup] = new(T)
	}
	return (*c)[cgroup]
}

// RemoveExpired ends a tick: it removes the cgroups whose own values were advised for [Duration].
func (c Cgroups[T, P]) RemoveExpired(now time.Time) {
	for name, e := range c {
		if e == nil { // null in a state file
			delete(c, name)
			continue
		}
		switch l := P(e).last(); {
		case l.At.Equal(now):
			l.IsReverting = false
		case !l.IsReverting, l.At.After(now): // the revert begins, or the clock was set back
			l.At, l.IsReverting = now, true
		case now.Sub(l.At) > Duration:
			delete(c, name)
		}
	}
}
