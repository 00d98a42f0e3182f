package plan

import (
	"fmt"
	"slices"

	"polder/lib/clip"
	"polder/lib/cpus"
)

// setNode is one cgroup's list of CPUs or memory nodes during its change from old to new.
type setNode struct {
	File
	key         string
	setting     *Setting // nil if the advice does not name the cgroup
	around      *Around
	parent      *setNode
	kids        []*setNode
	old, own    cpus.Set
	new         cpus.Set
	text        string // the file's text after the steps planned so far
	final       string // the text that means new
	changes     bool
	kept, wide  cpus.Set // after the shrinking, and while the children move
	now         cpus.Set
	last        *draft
	movesDeeply bool
}

// sets orders the writes of one list file. O is a cgroup's old set and N its new one:
//
//  1. Children before parents, each shrinks to what it keeps: the part of O that is in N, plus what its children keep.
//     A set that would become empty stays unchanged.
//  2. If a set could not shrink because O and N are disjoint, parents before children widen to N plus
//     what their children keep, then children before parents they narrow to N. These come first, because they free CPUs.
//  3. Parents before children, the others grow to N.
//
// So on version 1 a child's set is a subset of its parent's at every step, and no set is ever empty. Except during the
// moves of step 2, no set contains a CPU that is in neither O nor N while another cgroup's N contains it.
func (p *planner) sets(name string, all cpus.Set, settings []Setting, around []Around) phases {
	nodes := p.setNodes(name, settings, around)
	if !slices.ContainsFunc(nodes, func(n *setNode) bool {
		return n.setting != nil && !n.setting.Done() || n.around != nil && n.around.Fill
	}) {
		return phases{}
	}
	for _, n := range nodes { // parents first
		if n.setting != nil && n.setting.Version == 2 || n.setting == nil && p.machine.Versions["cpuset"] == 2 {
			n.settleV2(all)
		} else {
			p.settleV1(n, all)
		}
	}
	for _, n := range slices.Backward(nodes) {
		n.kept = n.old.Intersection(n.new)
		for _, kid := range n.kids {
			n.kept = n.kept.Union(kid.kept)
		}
		if n.kept.IsEmpty() {
			n.kept = n.old
		}
	}
	for _, n := range nodes {
		n.wide = n.new
		for _, kid := range n.kids {
			n.wide = n.wide.Union(kid.kept)
		}
		if !n.kept.IsSubsetOf(n.new) {
			for up := n; up != nil && !up.movesDeeply; up = up.parent {
				up.movesDeeply = true
			}
		}
	}
	return stepsOf(nodes)
}

func stepsOf(nodes []*setNode) phases {
	var out phases
	for _, n := range slices.Backward(nodes) {
		out.shrink = n.to(out.shrink, n.kept, n.kidsLast()...)
	}
	for _, n := range nodes {
		if n.movesDeeply {
			out.grow = n.to(out.grow, n.wide, n.parentLast())
		}
	}
	for _, n := range slices.Backward(nodes) {
		if n.movesDeeply {
			out.grow = n.to(out.grow, n.new, n.kidsLast()...)
		}
	}
	for _, n := range nodes {
		out.grow = n.to(out.grow, n.new, n.parentLast())
	}
	for _, n := range nodes { // version 2: the same effective CPUs, with another text
		if n.changes && n.text != n.final && !Same(n.Name, n.text, n.final) {
			out.grow = n.write(out.grow, n.final)
		}
	}
	return out
}

// to adds the write of a set, unless the cgroup already has it.
func (n *setNode) to(steps []*draft, set cpus.Set, needs ...*draft) []*draft {
	if !n.changes || n.now.Equals(set) {
		return steps
	}
	n.now = set
	text := set.String()
	if set.Equals(n.new) {
		text = n.final
	}
	return n.write(steps, text, needs...)
}

func (n *setNode) write(steps []*draft, text string, needs ...*draft) []*draft {
	d := &draft{
		Write: Write{File: n.File, Key: n.key, Old: n.text, New: text, Implied: n.setting == nil},
		needs: append(needs, n.last),
	}
	n.text, n.last = text, d
	return append(steps, d)
}

func (n *setNode) kidsLast() []*draft {
	var out []*draft
	for _, kid := range n.kids {
		out = append(out, kid.last)
	}
	return out
}

func (n *setNode) parentLast() *draft {
	if n.parent == nil {
		return nil
	}
	return n.parent.last
}

// setNodes lists the cgroups that take part in the order, parents first.
func (p *planner) setNodes(name string, settings []Setting, around []Around) []*setNode {
	var nodes []*setNode
	var cgroups []string
	add := func(n *setNode, f File, key, present, own string) {
		old, err := cpus.Parse(present)
		if err != nil {
			return // not a list: the file is not changed
		}
		n.File, n.key, n.text, n.old, n.now, n.own = f, key, present, old, old, old
		if own != "" {
			if set, err := cpus.Parse(own); err == nil {
				n.own = set
			}
		}
		nodes, cgroups = append(nodes, n), append(cgroups, f.Cgroup)
	}
	key := ""
	for i := range settings {
		if s := &settings[i]; s.Name == name {
			key = s.Key
			add(&setNode{setting: s}, s.File, s.Key, s.Present, "")
		}
	}
	for i := range around {
		if a := &around[i]; a.Name == name {
			if key == "" {
				key = keyOf(name)
			}
			add(&setNode{around: a}, a.File, key, a.Present, a.Own)
		}
	}
	sorted := make([]*setNode, 0, len(nodes))
	for _, at := range tree(cgroups) {
		n := nodes[at.index]
		if at.parent >= 0 {
			n.parent = sorted[at.parent]
			n.parent.kids = append(n.parent.kids, n)
		}
		sorted = append(sorted, n)
	}
	return sorted
}

func keyOf(name string) string {
	for _, k := range keys {
		if slices.Contains(k.v1, name) || slices.Contains(k.v2, name) {
			return k.name
		}
	}
	return ""
}

// settleV1 determines the new set; a child's must be a subset of its parent's.
func (p *planner) settleV1(n *setNode, all cpus.Set) {
	limit, above := all, "the root"
	if n.parent != nil {
		limit, above = n.parent.new, n.parent.Cgroup
	}
	n.new = n.followed()
	switch {
	case n.setting != nil:
		want := n.setting.set
		set := want.Intersection(limit)
		if outside := want.Difference(limit); !outside.IsEmpty() {
			has := limit.String()
			if limit.IsEmpty() {
				has = "nothing yet"
			}
			p.problem(n.setting, fmt.Sprintf("%s left out: %s, the cgroup above, has %s", clip.Text(outside.String(), shownBytes), clip.Text(above, shownBytes), clip.Text(has, shownBytes)))
		}
		if !set.IsEmpty() || want.IsEmpty() {
			n.new = set
		}
	case n.around.Fill && n.old.IsEmpty():
		n.new = limit
	}
	n.changes = !n.new.Equals(n.old)
	n.final = n.new.String()
}

// followed returns the set of a cgroup that the advice does not name: its own, as far as its parent's allows.
func (n *setNode) followed() cpus.Set {
	up := n.parent
	if up == nil || !up.changes || n.old.IsEmpty() {
		return n.old
	}
	if n.old.Equals(up.old) || n.own.Equals(up.own) {
		return up.new
	}
	if set := n.own.Intersection(up.new); !set.IsEmpty() {
		return set
	}
	return up.new
}

// settleV2 determines the effective sets: version 2 accepts any list; an empty list, or one that is disjoint from the
// parent's, means the parent's.
func (n *setNode) settleV2(all cpus.Set) {
	oldLimit, newLimit := all, all
	if n.parent != nil {
		oldLimit, newLimit = n.parent.old, n.parent.new
	}
	inForce := func(asked, limit cpus.Set) cpus.Set {
		if set := asked.Intersection(limit); !set.IsEmpty() {
			return set
		}
		return limit
	}
	n.final = n.text
	asked := n.old
	if n.setting != nil {
		asked = n.setting.set
		n.changes = !n.setting.Done()
		n.final = asked.String()
	}
	n.old = inForce(n.old, oldLimit)
	n.new = inForce(asked, newLimit)
	n.now = n.old
}
