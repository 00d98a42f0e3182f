package plan

import (
	"fmt"
	"slices"
	"strings"
)

// quotaNode is one cgroup's CPU quota during its change.
type quotaNode struct {
	File
	key          string
	setting      *Setting
	isBehind     bool // see [Neighbour]
	parent       *quotaNode
	children     []*quotaNode
	observed     string
	period       string
	original     share // before any plan changed it, and its text
	originalText string
	old, new     share
	newText      string // the text that means new
	currentText  string // the file's text after the steps planned so far
	lastWrite    *draft
	writes       []*draft

	oldEffective, newEffective share
}

// quotas orders the writes of quotas: children before parents for decreases, parents before children for increases.
// Version 1 rejects a child's quota above its parent's (EINVAL), so there the advised quota is limited to the parent's
// new one, and cgroups that the advice does not name follow.
//
// The effective limit decides: the parent's if a child has none of its own. A child that loses its own limit while its
// parent's falls first gets the parent's new one: at no moment may it use the parent's old one. Likewise a child whose own limit falls
// while its parent's rises is written first; on version 1 it first gets the parent's old one.
//
// The second result contains the writes of bursts, which must not exceed their quotas.
func (p *planner) quotas(settings []Setting, neighbours []Neighbour) (out, bursts phases) {
	nodes := p.quotaNodes(settings, neighbours)
	for _, n := range nodes {
		p.computeQuota(n)
		n.oldEffective, n.newEffective = n.old, n.new
		if n.parent != nil {
			n.oldEffective, n.newEffective = min(n.old, n.parent.oldEffective), min(n.new, n.parent.newEffective)
		}
	}
	for _, n := range slices.Backward(nodes) {
		fallsBelowRising := n.newEffective >= n.oldEffective && n.new < n.old && n.parent.isChanged()
		if n.newText == n.observed || n.newEffective >= n.oldEffective && !fallsBelowRising {
			continue
		}
		text := n.newText
		if n.new == unlimitedShare || fallsBelowRising && n.Name == fileQuota {
			var err error
			if text, err = min(n.oldEffective, n.newEffective).largestQuota(n.period); err != nil {
				continue
			}
			text += strings.TrimPrefix(n.observed, quotaOf(n.observed)) // the period, which cpu.max contains after the quota
		}
		needs := make([]*draft, 0, len(n.children)+1)
		for _, child := range n.children {
			needs = append(needs, child.lastWrite)
		}
		out.shrink = n.write(out.shrink, text, needs)
	}
	for _, n := range nodes {
		if n.currentText == n.newText || n.setting != nil && n.setting.IsAsDesired() {
			continue
		}
		needs := []*draft{n.lastWrite}
		if n.parent != nil {
			needs = append(needs, n.parent.lastWrite)
		}
		out.grow = n.write(out.grow, n.newText, needs)
	}
	return out, p.bursts(settings, neighbours, nodes)
}

func quotaOf(text string) string {
	quota, _, _ := strings.Cut(text, " ")
	return quota
}

func (n *quotaNode) write(steps []*draft, text string, needs []*draft) []*draft {
	n.lastWrite = &draft{
		Write: Write{File: n.File, Key: n.key, Old: n.currentText, New: text, Period: n.period, IsImplied: n.setting == nil},
		needs: needs,
	}
	n.currentText, n.writes = text, append(n.writes, n.lastWrite)
	return append(steps, n.lastWrite)
}

func (p *planner) quotaNodes(settings []Setting, neighbours []Neighbour) []*quotaNode {
	var nodes []*quotaNode
	var cgroups []string
	isAnyChanged := slices.ContainsFunc(neighbours, func(a Neighbour) bool {
		return a.Name == fileQuota && (a.IsBehind || a.IsBurstBehind)
	})
	for i := range settings {
		s := &settings[i]
		if !isQuota(s.Name) {
			continue
		}
		n := &quotaNode{File: s.File, key: s.Key, setting: s, observed: s.Observed, period: s.Period}
		quota := s.Observed
		if s.Name == fileMax {
			quota, n.period, _ = strings.Cut(s.Observed, " ")
		}
		var err error
		if n.old, err = shareOf(quota, n.period); err != nil {
			p.problem(s, err.Error())
			continue
		}
		isAnyChanged = isAnyChanged || s.IsBurstBehind || !s.IsAsDesired()
		nodes, cgroups = append(nodes, n), append(cgroups, s.Cgroup)
	}
	if !isAnyChanged {
		return nil
	}
	for i := range neighbours {
		a := &neighbours[i]
		if a.Name != fileQuota {
			continue
		}
		n := &quotaNode{File: a.File, key: keyOfFile(a.Name), observed: a.Observed, period: a.Period, isBehind: a.IsBehind}
		var err error
		if n.old, err = shareOf(a.Observed, a.Period); err != nil {
			continue
		}
		n.original, n.originalText = n.old, a.Observed
		if original, err := shareOf(a.Original, a.Period); err == nil && a.Original != "" {
			n.original, n.originalText = original, a.Original
		}
		nodes, cgroups = append(nodes, n), append(cgroups, a.Cgroup)
	}
	return linkTree(cgroups, nodes, func(parent, n *quotaNode) { n.parent, parent.children = parent, append(parent.children, n) })
}

// computeQuota determines a cgroup's new quota; its parent's is known.
func (p *planner) computeQuota(n *quotaNode) {
	n.new, n.newText, n.currentText = n.old, n.observed, n.observed
	s := n.setting
	if s != nil {
		text, err := s.Desired()
		if err != nil {
			p.problem(s, err.Error())
			return
		}
		quota, period := text, n.period
		if s.Name == fileMax {
			quota, period, _ = strings.Cut(text, " ")
		}
		desired, err := shareOf(quota, period)
		if err != nil {
			p.problem(s, err.Error())
			return
		}
		if !s.IsAsDesired() {
			n.new, n.newText = desired, text
		}
		if s.Version != 1 {
			return
		}
	}
	limit, ancestor := unlimitedShare, ""
	for up := n.parent; up != nil; up = up.parent { // an unlimited parent is bounded by its own parent
		if up.new != unlimitedShare {
			limit, ancestor = up.new, up.Cgroup
			break
		}
	}
	switch {
	case s == nil && (n.parent == nil || n.original == unlimitedShare && n.old == unlimitedShare):
		return
	case s == nil && n.original != n.old && (n.isBehind || n.parent.isChanged()):
		// Restore what an earlier plan took, as far as the parent allows.
		if n.original <= limit {
			n.new, n.newText = n.original, n.originalText
			return
		}
		n.reduceTo(p, limit)
	case n.new == unlimitedShare || n.new <= limit:
	default:
		if s != nil {
			p.problem(s, fmt.Sprintf("reduced to the limit of the cgroup above, %s: cgroup v1 allows no more", shownCgroup(ancestor)))
		}
		n.reduceTo(p, limit)
	}
}

func (n *quotaNode) isChanged() bool {
	return n != nil && (n.newText != n.observed || n.parent.isChanged())
}

// reduceTo reduces the new quota to a share.
func (n *quotaNode) reduceTo(p *planner, to share) {
	text, err := to.largestQuota(n.period)
	if err != nil {
		if n.setting != nil {
			p.problem(n.setting, err.Error())
		}
		n.new, n.newText = n.old, n.observed
		return
	}
	n.newText = text
	n.new, _ = shareOf(text, n.period)
}
