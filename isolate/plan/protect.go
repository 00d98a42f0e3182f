package plan

import (
	"math"
	"slices"
)

// protections orders the writes of memory.min or memory.low: decreases first, children before parents, then increases,
// parents before children. So a cgroup whose protection covers the sum of its children before and after the change covers
// it at every step, because in between each has the smaller of its two values. No cgroup ever has less than that.
func (p *planner) protections(name string, settings []Setting) phases {
	var changed []*Setting
	var cgroups []string
	for i := range settings {
		if s := &settings[i]; s.Name == name && !s.IsAsDesired() {
			changed, cgroups = append(changed, s), append(cgroups, s.Cgroup)
		}
	}
	var out phases
	positions := sortTree(cgroups)
	drafts := make([]*draft, len(positions))
	isDecrease := make([]bool, len(positions))
	for i, position := range positions {
		s := changed[position.index]
		desired, err := s.Desired()
		if err != nil {
			p.problem(s, err.Error())
			continue
		}
		drafts[i] = &draft{Write: Write{File: s.File, Key: s.Key, Old: s.Observed, New: desired}}
		old, err := protectionOf(s.Observed)
		if err != nil {
			p.problem(s, err.Error())
			drafts[i] = nil
			continue
		}
		new, _ := protectionOf(desired)
		isDecrease[i] = new < old
	}
	for i, position := range slices.Backward(positions) {
		if d := drafts[i]; d != nil && isDecrease[i] {
			out.shrink = append(out.shrink, d)
			if up := position.parent; up >= 0 && drafts[up] != nil && isDecrease[up] {
				drafts[up].needs = append(drafts[up].needs, d)
			}
		}
	}
	for i, position := range positions {
		if d := drafts[i]; d != nil && !isDecrease[i] {
			out.grow = append(out.grow, d)
			if up := position.parent; up >= 0 && !isDecrease[up] {
				d.needs = append(d.needs, drafts[up])
			}
		}
	}
	return out
}

// protectionOf returns a protection in bytes; "max" is the largest number.
func protectionOf(text string) (int64, error) {
	n, err := bytesOf(text)
	if n < 0 {
		n = math.MaxInt64
	}
	return n, err
}
