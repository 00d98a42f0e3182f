package plan

import (
	"fmt"
	"strconv"
	"strings"

	"polder/lib/clip"
	"polder/lib/tick"
)

// maxBurstMilliCPU is the largest burst that is accepted: Koordinator allows a hundred times the limit.
const maxBurstMilliCPU = 100 * maxMilliCPU

func setBurst(_ *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
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

// burstText returns the text to write for a given quota: mainline kernels reject a burst above its quota (tg_set_cfs_bandwidth, later
// tg_set_bandwidth, in kernel/sched/core.c). Without a quota they accept any burst, and it has no effect.
func (s *Setting) burstText(quota string) (string, error) {
	if s.isFileText {
		return s.text, nil
	}
	micros, period := quota, s.Period
	if s.Name == fileMaxBurst {
		micros, period, _ = strings.Cut(quota, " ")
	}
	p, err := periodOf(period, maxBurstMilliCPU)
	if err != nil {
		return "", err
	}
	burstMicroseconds := s.milli * p / 1000
	if limit, err := microsOf(micros); err != nil {
		return "", fmt.Errorf("the quota is %w", err)
	} else if limit >= 0 {
		burstMicroseconds = min(burstMicroseconds, limit)
	}
	return strconv.FormatInt(burstMicroseconds, 10), nil
}

// microsOf returns a quota or burst in microseconds, -1 for none.
func microsOf(text string) (int64, error) {
	if text == "-1" || text == "max" {
		return -1, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q, want microseconds", clip.Text(text, maxShownBytes))
	}
	return n, nil
}

// bursts orders the writes of bursts together with those of their quotas, so that no burst exceeds its quota at any step: first a burst
// falls to the smaller of its new value and the new quota, then the quota changes, then the burst rises. A burst that the advice does not
// name yields to its quota, and what an earlier plan took from it is restored as far as the quota allows.
func (p *planner) bursts(settings []Setting, neighbours []Neighbour, nodes []*quotaNode) phases {
	quotas := make(map[string]*quotaNode, len(nodes))
	for _, n := range nodes {
		quotas[n.Cgroup] = n
	}
	var out phases
	isAdvised := map[string]bool{}
	for i := range settings {
		if s := &settings[i]; isBurst(s.Name) {
			isAdvised[s.Cgroup] = true
			p.explicitBurst(&out, s, quotas[s.Cgroup])
		}
	}
	addImplied := func(f File, version int, period, burst, original string, isBehind bool) {
		n := quotas[f.Cgroup]
		if n == nil || len(n.writes) == 0 && !isBehind || isAdvised[f.Cgroup] || burst == "" {
			return
		}
		if original == "" {
			original = burst
		}
		f.Name = f.BurstFile()
		s := Setting{File: f, Key: keyOfFile(f.Name), Version: version, Period: period, Observed: burst, text: original}
		p.impliedBurst(&out, &s, n)
	}
	for i := range settings {
		if s := &settings[i]; isQuota(s.Name) {
			addImplied(s.File, s.Version, s.Period, s.Burst, s.OriginalBurst, s.IsBurstBehind)
		}
	}
	for i := range neighbours {
		if a := &neighbours[i]; a.Name == fileQuota {
			addImplied(a.File, 1, a.Period, a.Burst, a.OriginalBurst, a.IsBurstBehind)
		}
	}
	return out
}

// explicitBurst plans a burst that the advice names, or a restore. The quota's node is nil if no quota changes.
func (p *planner) explicitBurst(out *phases, s *Setting, n *quotaNode) {
	quota := s.Quota
	if n != nil {
		quota = n.currentText
	}
	desired, err := s.burstText(quota)
	if err != nil {
		p.problem(s, err.Error())
		return
	}
	p.addBurstSteps(out, s, desired, n, false)
}

// impliedBurst plans a burst that the advice does not name.
func (p *planner) impliedBurst(out *phases, s *Setting, n *quotaNode) {
	desired, err := microsOf(s.text)
	if err != nil {
		return // Polder did not write a burst
	}
	if observed, err := microsOf(s.Observed); err == nil {
		desired = max(desired, observed)
	}
	if limit, err := microsOf(quotaOf(n.currentText)); err == nil && limit >= 0 {
		desired = min(desired, limit)
	}
	p.addBurstSteps(out, s, strconv.FormatInt(desired, 10), n, true)
}

// addBurstSteps adds the writes from the present to the desired value.
func (p *planner) addBurstSteps(out *phases, s *Setting, desired string, n *quotaNode, isImplied bool) {
	old, err := microsOf(s.Observed)
	if err != nil {
		if !isImplied {
			p.problem(s, "the burst is "+err.Error())
		}
		return
	}
	new, err := microsOf(desired)
	if err != nil { // from the journal
		p.problem(s, err.Error())
		return
	}
	minimum := min(old, new)
	var quotas []*draft
	if n != nil {
		quotas = n.writes
	}
	for _, q := range quotas {
		if limit, err := microsOf(quotaOf(q.New)); err == nil && limit >= 0 {
			minimum = min(minimum, limit)
		}
	}
	current, lastWrite := s.Observed, (*draft)(nil)
	step := func(text string, needs ...*draft) *draft {
		lastWrite = &draft{
			Write: Write{File: s.File, Key: s.Key, Old: current, New: text, Period: s.period(), IsImplied: isImplied},
			needs: append(needs, lastWrite),
		}
		current = text
		return lastWrite
	}
	if minimum < old {
		out.shrink = append(out.shrink, step(strconv.FormatInt(minimum, 10)))
		for _, q := range quotas {
			q.needs = append(q.needs, lastWrite)
		}
	}
	if minimum < new {
		var needs []*draft
		if len(quotas) > 0 {
			needs = append(needs, quotas[len(quotas)-1])
		}
		out.grow = append(out.grow, step(desired, needs...))
	}
}
