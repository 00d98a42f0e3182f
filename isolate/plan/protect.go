package plan

import (
	"math"
	"slices"
)

// protections orders the writes of memory.min or memory.low: decreases first, children before parents, then increases,
// parents before children. So a cgroup whose protection covers the sum of its children before and after the change covers
// it at every step, because in between each has the smaller of its two values. No cgroup ever has less than that.
func (p *planner) protections(name string, settings []Setting) phases {
	var changing []*Setting
	var cgroups []string
	for i := range settings {
		if s := &settings[i]; s.Name == name && !s.Done() {
			changing, cgroups = append(changing, s), append(cgroups, s.Cgroup)
		}
	}
	var out phases
	places := tree(cgroups)
	drafts := make([]*draft, len(places))
	falls := make([]bool, len(places))
	for i, at := range places {
		s := changing[at.index]
		want, err := s.Want()
		if err != nil {
			p.problem(s, err.Error())
			continue
		}
		drafts[i] = &draft{Write: Write{File: s.File, Key: s.Key, Old: s.Present, New: want}}
		old, err := protected(s.Present)
		if err != nil {
			p.problem(s, err.Error())
			drafts[i] = nil
			continue
		}
		now, _ := protected(want)
		falls[i] = now < old
	}
	for i, at := range slices.Backward(places) {
		if d := drafts[i]; d != nil && falls[i] {
			out.shrink = append(out.shrink, d)
			if up := at.parent; up >= 0 && drafts[up] != nil && falls[up] {
				drafts[up].needs = append(drafts[up].needs, d)
			}
		}
	}
	for i, at := range places {
		if d := drafts[i]; d != nil && !falls[i] {
			out.grow = append(out.grow, d)
			if up := at.parent; up >= 0 && !falls[up] {
				d.needs = append(d.needs, drafts[up])
			}
		}
	}
	return out
}

// protected returns a protection in bytes; "max" is the largest number.
func protected(text string) (int64, error) {
	n, err := bytesOf(text)
	if n < 0 {
		n = math.MaxInt64
	}
	return n, err
}
