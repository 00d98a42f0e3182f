package class

import (
	"fmt"
	"path"
	"time"

	"polder/lib/tick"
)

// ReschedOnSmallMachines is the default of [Settings.ReschedInterval]: [SmallMachineInterval] on machines with fewer than
// [SmallMachineCPUs] CPUs, never on others. There policies keep CPUs free for services or apart from batch, and each further CPU would
// cost as much again (docs/adr/0021 has the measurements).
const (
	ReschedOnSmallMachines time.Duration = -1
	SmallMachineInterval                 = time.Millisecond
	SmallMachineCPUs                     = 8
)

// Batch and the other programs must each use this part of the machine for CPUs to be rescheduled more often, within bothRanFor.
const (
	usedPermille = 10
	bothRanFor   = 10 * time.Second
)

// isAtTop reports whether there is batch with a class, all of it in top-level cgroups. Services beside batch in kubelet's cgroups do not
// wait less if CPUs are rescheduled more often, and batch has less CPU then (docs/adr/0021).
func (c *choices) isAtTop() bool {
	for _, cgroup := range c.chosen {
		if parent := path.Dir(cgroup); parent != "/" && c.current[parent] == "" {
			return false
		}
	}
	return len(c.chosen) > 0
}

// adviseResched advises when CPUs are rescheduled: while all batch is at the top of the hierarchy, and both batch and other programs use
// CPU. An unknown use, or an unknown size of the machine, changes nothing.
func (st *State) adviseResched(t *tick.Tick, a *tick.Advice, isAtTop bool, s Settings, m Machine) {
	onWait, interval := s.ReschedOnWait && className(s.Class) == Idle, s.ReschedInterval
	if interval == ReschedOnSmallMachines {
		interval = 0
		if m.MilliCPU > 0 && m.MilliCPU < SmallMachineCPUs*1000 {
			interval = SmallMachineInterval
		}
	}
	if interval <= 0 && !onWait || !isAtTop {
		st.BothRanAt = time.Time{}
		return
	}
	cpu := t.Sample.CPU
	if batch, isKnown := batchUse(t.Sample); isKnown && cpu != nil && cpu.UsageMilliCPU != nil && m.MilliCPU > 0 {
		used := float64(m.MilliCPU) * usedPermille / 1000
		switch {
		case batch >= used && *cpu.UsageMilliCPU-batch >= used:
			st.BothRanAt = t.Time
		case t.Time.Sub(st.BothRanAt) >= bothRanFor || st.BothRanAt.After(t.Time): // or the clock was set back
			st.BothRanAt = time.Time{}
		}
	}
	if st.BothRanAt.IsZero() {
		return
	}
	a.ReschedOnWait = onWait
	when := "when a task waits behind batch"
	if interval > 0 {
		a.ReschedIntervalSeconds = new(interval.Seconds())
		every := fmt.Sprintf("every %s", interval)
		if onWait {
			every = fmt.Sprintf("%s, or %s where the kernel does not permit that", when, every)
		}
		when = every
	}
	a.Reasons = append(a.Reasons, fmt.Sprintf("CPUs are rescheduled %s: batch runs beside services", when))
}
