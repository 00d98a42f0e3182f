package apply

import (
	"path"

	"polder/isolate/plan"
)

// maxDepth bounds the walk through a hierarchy; real hierarchies are far less deep.
const maxDepth = 64

// neighbours collects the files of cgroups that the advice does not name.
type neighbours struct {
	a    *Applier
	seen map[plan.File]bool
	out  []plan.Around
}

func (n *neighbours) above(f plan.File, period string) {
	for f.Cgroup = path.Dir(f.Cgroup); len(f.Cgroup) > 1; f.Cgroup = path.Dir(f.Cgroup) {
		if n.seen[f] {
			continue // the ancestors of a named cgroup follow later
		}
		n.add(f, period)
	}
}

func (n *neighbours) below(f plan.File, period string, depth int) {
	walked := plan.File{Controller: "walked " + f.Controller, Cgroup: f.Cgroup, Name: f.Name}
	if n.seen[walked] || depth > maxDepth {
		return
	}
	n.seen[walked] = true
	if n.a.childless(f) {
		return
	}
	names, err := n.a.Hierarchy.Children(f.Controller, f.Cgroup)
	if err != nil {
		return // removed meanwhile
	}
	for _, name := range names {
		child := f
		child.Cgroup = path.Join(f.Cgroup, name)
		if !n.seen[child] {
			n.add(child, period)
		}
		n.below(child, period, depth+1)
	}
}

// mems adds the list of memory nodes if it is empty, and those of its ancestors, from which it is filled.
func (n *neighbours) mems(s *plan.Setting) {
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
	n.out = append(n.out, plan.Around{File: f, Fill: true})
	n.above(f, "")
}

func (n *neighbours) add(f plan.File, period string) {
	n.seen[f] = true
	around := plan.Around{File: f}
	var err error
	if around.Present, err = n.a.Hierarchy.ReadFile(f.Controller, f.Cgroup, f.Name); err != nil {
		return
	}
	if period != "" {
		if around.Period, err = n.a.Hierarchy.ReadFile(f.Controller, f.Cgroup, period); err != nil {
			return
		}
	}
	if r := n.a.records[f]; r != nil && r.ours(f.Name, around.Present) {
		around.Own = r.First
	}
	if f.BurstFile() != "" {
		around.Burst, around.BurstOwn = n.a.burstOf(f)
	}
	n.out = append(n.out, around)
}
