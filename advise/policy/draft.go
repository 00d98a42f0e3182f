package policy

import (
	"slices"

	"polder/lib/tick"
)

// Draft is an advice's cgroups and its fallback while a layer after the policy changes them. The advice keeps its own lists until
// [Draft.Finish].
type Draft struct {
	Cgroups, Fallback    []tick.Cgroup
	index, fallbackIndex map[string]int // by path
}

// NewDraft copies an advice's lists.
func NewDraft(a *tick.Advice) *Draft {
	indexOf := func(list []tick.Cgroup) map[string]int {
		index := make(map[string]int, len(list))
		for i := range list {
			index[list[i].Cgroup] = i
		}
		return index
	}
	return &Draft{
		Cgroups: slices.Clone(a.Cgroups), Fallback: slices.Clone(a.Fallback),
		index: indexOf(a.Cgroups), fallbackIndex: indexOf(a.Fallback),
	}
}

// Finish puts the lists into the advice.
func (d *Draft) Finish(a *tick.Advice) { a.Cgroups, a.Fallback = d.Cgroups, d.Fallback }

// FallbackOf returns a cgroup's entry in the fallback; nil if there is none.
func (d *Draft) FallbackOf(path string) *tick.Cgroup {
	if i, found := d.fallbackIndex[path]; found {
		return &d.Fallback[i]
	}
	return nil
}

// Each calls f with a cgroup's entries in both lists, and creates missing ones.
func (d *Draft) Each(path string, f func(*tick.Cgroup)) {
	f(entry(&d.Cgroups, d.index, path))
	f(entry(&d.Fallback, d.fallbackIndex, path))
}

// SetIfUnset sets a value of a cgroup if nothing is advised for that key.
func (d *Draft) SetIfUnset(path string, key func(*tick.Cgroup) **int64, value int64) {
	d.Each(path, func(c *tick.Cgroup) {
		if field := key(c); *field == nil {
			*field = &value
		}
	})
}

// entry returns the entry of a cgroup in a list, and creates a missing one.
func entry(list *[]tick.Cgroup, index map[string]int, path string) *tick.Cgroup {
	i, found := index[path]
	if !found {
		i = len(*list)
		index[path] = i
		*list = append(*list, tick.Cgroup{Cgroup: path})
	}
	return &(*list)[i]
}

// Tighter returns the smaller of two limits; old may be nil. No limit ([tick.Unlimited]) is larger than any limit.
func Tighter(old *int64, limit int64) *int64 {
	if old != nil && *old >= 0 && (*old <= limit || limit < 0) {
		return old
	}
	return &limit
}
