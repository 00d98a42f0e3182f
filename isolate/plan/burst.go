package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"polder/lib/clip"
	"polder/lib/tick"
)

// maxBurstMilliCPU is the largest burst that is accepted: Koordinator allows a hundred times the limit.
const maxBurstMilliCPU = 100 * maxMilliCPU

func fillBurst(_ *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
	if c.CPUBurstMilliCPU == nil {
		return false, nil
	}
	s.milli = *c.CPUBurstMilliCPU
	if s.milli < 0 || s.milli > maxBurstMilliCPU {
		return false, fmt.Errorf("%d refused: want 0 to %d milli-CPU", s.milli, maxBurstMilliCPU)
	}
	return true, nil
}

// period returns the period of the burst's quota; version 2 has it beside the quota.
func (s *Setting) period() string {
	if s.Name == fileMaxBurst {
		_, period, _ := strings.Cut(s.Quota, " ")
		return period
	}
	return s.Period
}

// burst returns the text to write for a given quota: mainline kernels reject a burst above its quota (tg_set_cfs_bandwidth, later
// tg_set_bandwidth, in kernel/sched/core.c). Without a quota they accept any burst, and it has no effect.
func (s *Setting) burst(quota string) (string, error) {
	if s.raw {
		return s.text, nil
	}
	micros, period := quota, s.Period
	if s.Name == fileMaxBurst {
		micros, period, _ = strings.Cut(quota, " ")
	}
	p, err := strconv.ParseInt(period, 10, 64)
	if err != nil || p <= 0 || p > math.MaxInt64/maxBurstMilliCPU {
		return "", fmt.Errorf("the period is %q, want microseconds", clip.Text(period, shownBytes))
	}
	burst := s.milli * p / 1000
	if limit, err := microsOf(micros); err != nil {
		return "", fmt.Errorf("the quota is %w", err)
	} else if limit >= 0 {
		burst = min(burst, limit)
	}
	return strconv.FormatInt(burst, 10), nil
}

// microsOf returns a quota or burst in microseconds, -1 for none.
func microsOf(text string) (int64, error) {
	if text == "-1" || text == "max" {
		return -1, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q, want microseconds", clip.Text(text, shownBytes))
	}
	return n, nil
}

// bursts orders the writes of bursts together with those of their quotas, so that no burst exceeds its quota at any step: first a burst
// falls to the smaller of its new value and the new quota, then the quota changes, then the burst rises. A burst that the advice does not
// name yields to its quota, and what an earlier plan took from it is restored as far as the quota allows.
func (p *planner) bursts(settings []Setting, around []Around, nodes []*quotaNode) phases {
	quotas := make(map[string]*quotaNode, len(nodes))
	for _, n := range nodes {
		quotas[n.Cgroup] = n
	}
	var out phases
	named := map[string]bool{}
	for i := range settings {
		if s := &settings[i]; isBurst(s.Name) {
			named[s.Cgroup] = true
			p.burst(&out, s, quotas[s.Cgroup])
		}
	}
	implied := func(f File, version int, period, burst, own string) {
		n := quotas[f.Cgroup]
		if n == nil || len(n.writes) == 0 || named[f.Cgroup] || burst == "" {
			return
		}
		if own == "" {
			own = burst
		}
		f.Name = f.BurstFile()
		s := Setting{File: f, Key: keyOf(f.Name), Version: version, Period: period, Present: burst, text: own}
		p.impliedBurst(&out, &s, n)
	}
	for i := range settings {
		if s := &settings[i]; isQuota(s.Name) {
			implied(s.File, s.Version, s.Period, s.Burst, s.BurstOwn)
		}
	}
	for i := range around {
		if a := &around[i]; a.Name == fileQuota {
			implied(a.File, 1, a.Period, a.Burst, a.BurstOwn)
		}
	}
	return out
}

// burst plans a burst that the advice names, or a restore. The quota's node is nil if no quota changes.
func (p *planner) burst(out *phases, s *Setting, n *quotaNode) {
	quota := s.Quota
	if n != nil {
		quota = n.now
	}
	want, err := s.burst(quota)
	if err != nil {
		p.problem(s, err.Error())
		return
	}
	p.moveBurst(out, s, want, n, false)
}

// impliedBurst plans a burst that the advice does not name.
func (p *planner) impliedBurst(out *phases, s *Setting, n *quotaNode) {
	own, err := microsOf(s.text)
	if err != nil {
		return // Polder did not write a burst
	}
	if present, err := microsOf(s.Present); err == nil {
		own = max(own, present)
	}
	if limit, err := microsOf(quotaOf(n.now)); err == nil && limit >= 0 {
		own = min(own, limit)
	}
	p.moveBurst(out, s, strconv.FormatInt(own, 10), n, true)
}

// moveBurst adds the writes from the present to the desired value.
func (p *planner) moveBurst(out *phases, s *Setting, want string, n *quotaNode, implied bool) {
	old, err := microsOf(s.Present)
	if err != nil {
		if !implied {
			p.problem(s, "the burst is "+err.Error())
		}
		return
	}
	to, err := microsOf(want)
	if err != nil { // from the journal
		p.problem(s, err.Error())
		return
	}
	least := min(old, to)
	var quotas []*draft
	if n != nil {
		quotas = n.writes
	}
	for _, q := range quotas {
		if limit, err := microsOf(quotaOf(q.New)); err == nil && limit >= 0 {
			least = min(least, limit)
		}
	}
	now, last := s.Present, (*draft)(nil)
	step := func(text string, needs ...*draft) *draft {
		last = &draft{
			Write: Write{File: s.File, Key: s.Key, Old: now, New: text, Period: s.period(), Implied: implied},
			needs: append(needs, last),
		}
		now = text
		return last
	}
	if least < old {
		out.shrink = append(out.shrink, step(strconv.FormatInt(least, 10)))
		for _, q := range quotas {
			q.needs = append(q.needs, last)
		}
	}
	if least < to {
		var needs []*draft
		if len(quotas) > 0 {
			needs = append(needs, quotas[len(quotas)-1])
		}
		out.grow = append(out.grow, step(want, needs...))
	}
}
