// Package revert remembers the cgroups that had other values than their own, so that these are put back when nothing else is desired any
// more: for a while, as isolate may be away for a moment. After that nothing is advised for them. It is pure.
package revert

import (
	"time"

	"polder/lib/tick"
)

// For is how long a cgroup's own values are advised once nothing else is desired.
const For = 10 * time.Minute

// Last is when a cgroup last had other values than its own, or, while its own are put back, when that began: ticks may have been missing
// in between. It is embedded in what a package remembers of the cgroup.
type Last struct {
	At      time.Time `json:"at"`
	Reverts bool      `json:"reverts,omitempty"`
}

func (l *Last) last() *Last { return l }

// Cgroups are what is remembered, by cgroup, in the form of the state file.
type Cgroups[T any, P interface {
	*T
	last() *Last
}] map[string]*T

// Of are those of a pod and of its containers.
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

// Keep leaves a pod that the cluster does not know (any more, or yet: it may be out of reach) as it is. It reports whether it had other
// values than its own.
func (c Cgroups[T, P]) Keep(p *tick.Pod, now time.Time) bool {
	of := c.Of(p)
	for _, e := range of {
		e.last().At = now
	}
	return len(of) > 0
}

// Remember returns what is remembered of a cgroup, from now on where that was nothing.
func (c *Cgroups[T, P]) Remember(cgroup string) P {
	if *c == nil {
		*c = Cgroups[T, P]{}
	}
	if (*c)[cgroup] == nil {
		(*c)[cgroup] = new(T)
	}
	return (*c)[cgroup]
}

// Forget ends a tick: it drops the cgroups whose own values were advised for long.
func (c Cgroups[T, P]) Forget(now time.Time) {
	for name, e := range c {
		if e == nil { // a state file's null
			delete(c, name)
			continue
		}
		switch l := P(e).last(); {
		case l.At.Equal(now):
			l.Reverts = false
		case !l.Reverts, l.At.After(now): // it begins, or the clock was set back
			l.At, l.Reverts = now, true
		case now.Sub(l.At) > For:
			delete(c, name)
		}
	}
}
