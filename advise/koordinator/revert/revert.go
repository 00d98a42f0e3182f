// Package revert remembers the cgroups that had other values than their own, so that these are restored when nothing else is desired any
// more: for some time, because isolate may be down. After that nothing is advised for them. It is pure.
package revert

import (
	"time"

	"polder/lib/tick"
)

// For is how long a cgroup's own values are advised once nothing else is desired.
const For = 10 * time.Minute

// Last is when a cgroup last had other values than its own, or, while its own are restored, when that began, because ticks may have been
// missing in between. It is embedded in a package's state of the cgroup.
type Last struct {
	At      time.Time `json:"at"`
	Reverts bool      `json:"reverts,omitempty"`
}

func (l *Last) last() *Last { return l }

// Cgroups is the state of cgroups, by cgroup, in the format of the state file.
type Cgroups[T any, P interface {
	*T
	last() *Last
}] map[string]*T

// Of returns the entries of a pod and of its containers.
func (c Cgroups[T, P]) Of(p *tick.Pod) (of []P) {
	if len(c) == 0 {
		return nil
	}
	if e := c[p.Cgroup]; e != nil {
		of = append(of, e)
	}
	for i := range p.Containers {
		if e := c[p.Containers[i].Cgroup]; e != nil {
			of = append(of, e)
		}
	}
	return of
}

// Keep leaves a pod unchanged that the API server does not know (it may be unreachable). It reports whether the pod had other values
// than its own.
func (c Cgroups[T, P]) Keep(p *tick.Pod, now time.Time) bool {
	of := c.Of(p)
	for _, e := range of {
		e.last().At = now
	}
	return len(of) > 0
}

// Remember returns the entry of a cgroup, and creates it if there is none.
func (c *Cgroups[T, P]) Remember(cgroup string) P {
	if *c == nil {
		*c = Cgroups[T, P]{}
	}
	if (*c)[cgroup] == nil {
		(*c)[cgroup] = new(T)
	}
	return (*c)[cgroup]
}

// Forget ends a tick: it removes the cgroups whose own values were advised for [For].
func (c Cgroups[T, P]) Forget(now time.Time) {
	for name, e := range c {
		if e == nil { // null in a state file
			delete(c, name)
			continue
		}
		switch l := P(e).last(); {
		case l.At.Equal(now):
			l.Reverts = false
		case !l.Reverts, l.At.After(now): // the revert begins, or the clock was set back
			l.At, l.Reverts = now, true
		case now.Sub(l.At) > For:
			delete(c, name)
		}
	}
}
