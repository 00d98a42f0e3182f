package plan

import (
	"fmt"
	"slices"
	"strings"

	"polder/lib/clip"
)

// quotaNode is one cgroup's CPU quota during its change.
type quotaNode struct {
	File
	key      string
	setting  *Setting
	parent   *quotaNode
	kids     []*quotaNode
	present  string
	period   string
	own      share // before any plan changed it, and its text
	ownText  string
	old, new share
	text     string // the text that means new
	now      string // the file's text after the steps planned so far
	last     *draft
	writes   []*draft

	oldInForce, newInForce share
}

// quotas orders the writes of quotas: children before parents for decreases, parents before children for increases.
// Version 1 rejects a child's quota above its parent's (EINVAL), so there the advised quota is limited to the parent's
// new one, and cgroups that the advice does not name follow.
//
// The effective limit decides: the parent's if a child has none of its own. A child that loses its own limit while its
// parent's falls first gets the parent's new one: at no moment may it use the parent's old one.
//
// The second result contains the writes of bursts, which must not exceed their quotas.
func (p *planner) quotas(settings []Setting, around []Around) (out, bursts phases) {
	nodes := p.quotaNodes(settings, around)
	for _, n := range nodes {
		p.settleQuota(n)
		n.oldInForce, n.newInForce = n.old, n.new
		if n.parent != nil {
			n.oldInForce, n.newInForce = min(n.old, n.parent.oldInForce), min(n.new, n.parent.newInForce)
		}
	}
	for _, n := range slices.Backward(nodes) {
		if n.text == n.present || n.newInForce >= n.oldInForce {
			continue
		}
		text := n.text
		if n.new == noLimit {
			var err error
			if text, err = n.newInForce.within(n.period); err != nil {
				continue
			}
			text += strings.TrimPrefix(n.present, quotaOf(n.present)) // the period, which cpu.max contains after the quota
		}
		needs := make([]*draft, 0, len(n.kids)+1)
		for _, kid := range n.kids {
			needs = append(needs, kid.last)
		}
		out.shrink = n.write(out.shrink, text, needs)
	}
	for _, n := range nodes {
		if n.now == n.text || n.setting != nil && n.setting.Done() {
			continue
		}
		needs := []*draft{n.last}
		if n.parent != nil {
			needs = append(needs, n.parent.last)
		}
		out.grow = n.write(out.grow, n.text, needs)
	}
	return out, p.bursts(settings, around, nodes)
}

func quotaOf(text string) string {
	quota, _, _ := strings.Cut(text, " ")
	return quota
}

func (n *quotaNode) write(steps []*draft, text string, needs []*draft) []*draft {
	n.last = &draft{
		Write: Write{File: n.File, Key: n.key, Old: n.now, New: text, Period: n.period, Implied: n.setting == nil},
		needs: needs,
	}
	n.now, n.writes = text, append(n.writes, n.last)
	return append(steps, n.last)
}

func (p *planner) quotaNodes(settings []Setting, around []Around) []*quotaNode {
	var nodes []*quotaNode
	var cgroups []string
	changed := false
	for i := range settings {
		s := &settings[i]
		if !isQuota(s.Name) {
			continue
		}
		n := &quotaNode{File: s.File, key: s.Key, setting: s, present: s.Present, period: s.Period}
		quota := s.Present
		if s.Name == fileMax {
			quota, n.period, _ = strings.Cut(s.Present, " ")
		}
		var err error
		if n.old, err = shareOf(quota, n.period); err != nil {
			p.problem(s, err.Error())
			continue
		}
		n.own = n.old
		changed = changed || !s.Done()
		nodes, cgroups = append(nodes, n), append(cgroups, s.Cgroup)
	}
	if !changed {
		return nil
	}
	for i := range around {
		a := &around[i]
		if a.Name != fileQuota {
			continue
		}
		n := &quotaNode{File: a.File, key: keyOf(a.Name), present: a.Present, period: a.Period}
		var err error
		if n.old, err = shareOf(a.Present, a.Period); err != nil {
			continue
		}
		n.own, n.ownText = n.old, a.Present
		if own, err := shareOf(a.Own, a.Period); err == nil && a.Own != "" {
			n.own, n.ownText = own, a.Own
		}
		nodes, cgroups = append(nodes, n), append(cgroups, a.Cgroup)
	}
	sorted := make([]*quotaNode, 0, len(nodes))
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

// settleQuota determines a cgroup's new quota; its parent's is known.
func (p *planner) settleQuota(n *quotaNode) {
	n.new, n.text, n.now = n.old, n.present, n.present
	s := n.setting
	if s != nil {
		text, err := s.Want()
		if err != nil {
			p.problem(s, err.Error())
			return
		}
		quota, period := text, n.period
		if s.Name == fileMax {
			quota, period, _ = strings.Cut(text, " ")
		}
		asked, err := shareOf(quota, period)
		if err != nil {
			p.problem(s, err.Error())
			return
		}
		if !s.Done() {
			n.new, n.text = asked, text
		}
		if s.Version != 1 {
			return
		}
	}
	limit, above := noLimit, ""
	for up := n.parent; up != nil; up = up.parent { // an unlimited parent is bounded by its own parent
		if up.new != noLimit {
			limit, above = up.new, up.Cgroup
			break
		}
	}
	switch {
	case s == nil && (n.parent == nil || n.own == noLimit && n.old == noLimit):
		return
	case s == nil && n.own != n.old && n.parent.changes(): // restore what an earlier plan took, as far as the parent allows
		if n.own <= limit {
			n.new, n.text = n.own, n.ownText
			return
		}
		n.cut(p, limit)
	case n.new == noLimit || n.new <= limit:
	default:
		if s != nil {
			p.problem(s, fmt.Sprintf("cut to the limit of the cgroup above, %s: cgroup v1 allows no more", clip.Text(above, shownBytes)))
		}
		n.cut(p, limit)
	}
}

func (n *quotaNode) changes() bool { return n != nil && (n.text != n.present || n.parent.changes()) }

// cut reduces the new quota to a share.
func (n *quotaNode) cut(p *planner, to share) {
	text, err := to.within(n.period)
	if err != nil {
		if n.setting != nil {
			p.problem(n.setting, err.Error())
		}
		n.new, n.text = n.old, n.present
		return
	}
	n.text = text
	n.new, _ = shareOf(text, n.period)
}
