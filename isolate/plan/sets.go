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
	key               string
	setting           *Setting // nil if the advice does not name the cgroup
	neighbour         *Neighbour
	parent            *setNode
	children          []*setNode
	old, original     cpus.Set
	new               cpus.Set
	isOwnSet          bool   // see keepsOwnSet
	currentText       string // the file's text after the steps planned so far
	newText           string // the text that means new
	isChanged         bool
	retained, widened cpus.Set // after the shrinking, and while the children move
	current           cpus.Set
	lastWrite         *draft
	mustMove          bool
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
func (p *planner) sets(name string, all cpus.Set, settings []Setting, neighbours []Neighbour) phases {
	nodes := p.setNodes(name, settings, neighbours)
	if !slices.ContainsFunc(nodes, func(n *setNode) bool {
		return n.setting != nil && !n.setting.IsAsDesired() || n.neighbour != nil && (n.neighbour.TakesParentList || n.neighbour.IsBehind)
	}) {
		return phases{}
	}
	for _, n := range nodes { // parents first
		if n.setting != nil && n.setting.Version == 2 || n.setting == nil && p.machine.Versions["cpuset"] == 2 {
			n.computeV2(all)
		} else {
			p.computeV1(n, all)
		}
	}
	for _, n := range slices.Backward(nodes) {
		n.retained = n.old.Intersection(n.new)
		for _, child := range n.children {
			n.retained = n.retained.Union(child.retained)
		}
		if n.retained.IsEmpty() {
			n.retained = n.old
		}
	}
	for _, n := range nodes {
		n.widened = n.new
		for _, child := range n.children {
			n.widened = n.widened.Union(child.retained)
		}
		if !n.retained.IsSubsetOf(n.new) {
			for up := n; up != nil && !up.mustMove; up = up.parent {
				up.mustMove = true
			}
		}
	}
	return stepsOf(nodes)
}

func stepsOf(nodes []*setNode) phases {
	var out phases
	for _, n := range nodes {
		if n.isOwnSet {
			out.shrink = n.write(out.shrink, n.currentText)
			n.lastWrite.IsImplied = true // also of a cgroup that the advice names: it has what is desired
		}
	}
	for _, n := range slices.Backward(nodes) {
		out.shrink = n.addStep(out.shrink, n.retained, n.childWrites()...)
	}
	for _, n := range nodes {
		if n.mustMove {
			out.grow = n.addStep(out.grow, n.widened, n.parentWrite())
		}
	}
	for _, n := range slices.Backward(nodes) {
		if n.mustMove {
			out.grow = n.addStep(out.grow, n.new, n.childWrites()...)
		}
	}
	for _, n := range nodes {
		out.grow = n.addStep(out.grow, n.new, n.parentWrite())
	}
	for _, n := range nodes { // version 2: the same effective CPUs, with another text
		if n.isChanged && n.currentText != n.newText && !Same(n.Name, n.currentText, n.newText) {
			out.grow = n.write(out.grow, n.newText)
		}
	}
	return out
}

// addStep adds the write of a set, unless the cgroup already has it.
func (n *setNode) addStep(steps []*draft, set cpus.Set, needs ...*draft) []*draft {
	if !n.isChanged || n.current.Equals(set) {
		return steps
	}
	n.current = set
	text := set.String()
	if set.Equals(n.new) {
		text = n.newText
	}
	return n.write(steps, text, needs...)
}

func (n *setNode) write(steps []*draft, text string, needs ...*draft) []*draft {
	d := &draft{
		Write: Write{File: n.File, Key: n.key, Old: n.currentText, New: text, IsImplied: n.setting == nil},
		needs: append(needs, n.lastWrite),
	}
	if !n.original.Equals(n.old) {
		d.Original = n.original.String()
	}
	n.currentText, n.lastWrite = text, d
	return append(steps, d)
}

func (n *setNode) childWrites() []*draft {
	var out []*draft
	for _, child := range n.children {
		out = append(out, child.lastWrite)
	}
	return out
}

func (n *setNode) parentWrite() *draft {
	if n.parent == nil {
		return nil
	}
	return n.parent.lastWrite
}

// setNodes lists the cgroups that take part in the order, parents first.
func (p *planner) setNodes(name string, settings []Setting, neighbours []Neighbour) []*setNode {
	var nodes []*setNode
	var cgroups []string
	add := func(n *setNode, f File, key, observed, original string) {
		old, err := cpus.Parse(observed)
		if err != nil {
			return // not a list: the file is not changed
		}
		n.File, n.key, n.currentText, n.old, n.current, n.original = f, key, observed, old, old, old
		if original != "" {
			if set, err := cpus.Parse(original); err == nil {
				n.original = set
			}
		}
		nodes, cgroups = append(nodes, n), append(cgroups, f.Cgroup)
	}
	key := ""
	for i := range settings {
		if s := &settings[i]; s.Name == name {
			key = s.Key
			add(&setNode{setting: s}, s.File, s.Key, s.Observed, s.Original)
		}
	}
	for i := range neighbours {
		if a := &neighbours[i]; a.Name == name {
			if key == "" {
				key = keyOfFile(name)
			}
			add(&setNode{neighbour: a}, a.File, key, a.Observed, a.Original)
		}
	}
	return linkTree(cgroups, nodes, func(parent, n *setNode) { n.parent, parent.children = parent, append(parent.children, n) })
}

func keyOfFile(name string) string {
	for _, k := range keys {
		if slices.Contains(k.v1, name) || slices.Contains(k.v2, name) {
			return k.name
		}
	}
	return ""
}

// computeV1 determines the new set; a child's must be a subset of its parent's.
func (p *planner) computeV1(n *setNode, all cpus.Set) {
	limit, parentName := all, "the root"
	if n.parent != nil {
		limit, parentName = n.parent.new, n.parent.Cgroup
	}
	n.takeOriginal()
	n.new = n.inheritedSet()
	switch {
	case n.setting != nil:
		desired := n.setting.set
		set := desired.Intersection(limit)
		if outside := desired.Difference(limit); !outside.IsEmpty() {
			parentList := limit.String()
			if limit.IsEmpty() {
				parentList = "none yet"
			}
			p.problem(n.setting, fmt.Sprintf("%s left out: %s, the cgroup above, has %s",
				clip.Text(outside.String(), maxShownBytes), shownCgroup(parentName), clip.Text(parentList, maxShownBytes)))
		}
		if !set.IsEmpty() || desired.IsEmpty() {
			n.new = set
		}
	case n.neighbour.TakesParentList && n.old.IsEmpty():
		n.new = limit
	}
	n.isChanged = !n.new.Equals(n.old)
	n.newText = n.new.String()
	n.isOwnSet = n.keepsOwnSet()
}

// takeOriginal determines what a set was originally that no plan changed: if it equals its parent's, it was filled from it, perhaps
// while the parent's was squeezed, and would otherwise have been what the parent's was. So was one that is behind: it was filled just
// before its parent's was widened.
func (n *setNode) takeOriginal() {
	up := n.parent
	isBehind := n.neighbour != nil && n.neighbour.IsBehind
	if !n.isRecorded() && up != nil && (n.old.Equals(up.old) || isBehind) {
		n.original = up.original
	}
}

// keepsOwnSet reports whether a cgroup keeps a set while its parent's changes, so that its original value must be recorded now. Either its
// parent's becomes equal to it, and later it could not be told from a set that was filled from the parent's; or it was filled from a
// squeezed parent's, and stays because the advice names just this set.
func (n *setNode) keepsOwnSet() bool {
	up := n.parent
	if n.isRecorded() || up == nil || !up.isChanged || n.isChanged || n.old.IsEmpty() {
		return false
	}
	wasFilled := n.old.Equals(up.old)
	return wasFilled && !n.original.Equals(n.old) || !wasFilled && n.old.Equals(up.new)
}

// isRecorded reports whether the set's original value is recorded.
func (n *setNode) isRecorded() bool {
	if n.setting != nil {
		return n.setting.Original != ""
	}
	return n.neighbour.Original != ""
}

// inheritedSet returns the set of a cgroup that the advice does not name: its own, as far as its parent's allows.
func (n *setNode) inheritedSet() cpus.Set {
	up := n.parent
	isBehind := n.neighbour != nil && n.neighbour.IsBehind
	if up == nil || !up.isChanged && !isBehind || n.old.IsEmpty() {
		return n.old
	}
	if n.original.Equals(up.original) {
		return up.new
	}
	if set := n.original.Intersection(up.new); !set.IsEmpty() {
		return set
	}
	return up.new
}

// computeV2 determines the effective sets: version 2 accepts any list; an empty list, or one that is disjoint from the
// parent's, means the parent's.
func (n *setNode) computeV2(all cpus.Set) {
	oldLimit, newLimit := all, all
	if n.parent != nil {
		oldLimit, newLimit = n.parent.old, n.parent.new
	}
	effective := func(desired, limit cpus.Set) cpus.Set {
		if set := desired.Intersection(limit); !set.IsEmpty() {
			return set
		}
		return limit
	}
	n.newText = n.currentText
	desired := n.old
	if n.setting != nil {
		desired = n.setting.set
		n.isChanged = !n.setting.IsAsDesired()
		n.newText = desired.String()
	}
	n.old = effective(n.old, oldLimit)
	n.new = effective(desired, newLimit)
	n.current = n.old
}
