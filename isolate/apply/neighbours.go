package apply

import (
	"path"

	"polder/isolate/plan"
)

// neighbours collects the files of cgroups that the advice does not name.
type neighbours struct {
	a    *Applier
	seen map[plan.File]bool
	out  []plan.Neighbour
}

func (n *neighbours) addAncestors(f plan.File, period string) {
	for f.Cgroup = path.Dir(f.Cgroup); len(f.Cgroup) > 1; f.Cgroup = path.Dir(f.Cgroup) {
		if n.seen[f] {
			continue // the ancestors of a named cgroup follow later
		}
		n.add(f, period)
	}
}

// addDescendants adds the cgroups below one, at any depth: whoever may create cgroups there chooses it, and could otherwise prevent that
// the one above is narrowed. The length of paths bounds the depth.
func (n *neighbours) addDescendants(f plan.File, period string) {
	visited := plan.File{Controller: "walked " + f.Controller, Cgroup: f.Cgroup, Name: f.Name}
	if n.seen[visited] {
		return
	}
	n.seen[visited] = true
	for _, child := range n.a.children(f) {
		if !n.seen[child] {
			n.add(child, period)
		}
		n.addDescendants(child, period)
	}
}

// addMems adds the list of memory nodes if it is empty, and those of its ancestors, from which it is filled.
func (n *neighbours) addMems(s *plan.Setting) {
	f := s.File
	f.Name = "cpuset.mems"
	if n.seen[f] {
		return
	}
	text, err := n.a.Hierarchy.ReadFile(f.Controller, f.Cgroup, f.Name)
	if err != nil || text != "" {
		return
	}
	n.seen[f] = true
	n.out = append(n.out, plan.Neighbour{File: f, TakesParentList: true})
	n.addAncestors(f, "")
}

func (n *neighbours) add(f plan.File, period string) {
	n.seen[f] = true
	neighbour := plan.Neighbour{File: f}
	var err error
	if neighbour.Observed, err = n.a.Hierarchy.ReadFile(f.Controller, f.Cgroup, f.Name); err != nil {
		return
	}
	if period != "" {
		if neighbour.Period, err = n.a.Hierarchy.ReadFile(f.Controller, f.Cgroup, period); err != nil {
			return
		}
	}
	neighbour.IsBehind = n.a.behind.has(f, neighbour.Observed)
	neighbour.Original = n.a.originalOf(f, neighbour.Observed)
	if f.BurstFile() != "" {
		neighbour.Burst, neighbour.OriginalBurst = n.a.burstOf(f)
		neighbour.IsBurstBehind = n.a.behind.has(burstFile(f), neighbour.Burst)
	}
	n.out = append(n.out, neighbour)
}
