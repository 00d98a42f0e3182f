package memory

import (
	"polder/advise/koordinator/annotation"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// values are all values that memory QoS sets on one cgroup.
type values struct {
	least, low, high          int64
	ratio, scale, adjust      int64
	priority                  int64
	usePriority, killTogether bool
	// unknown are those that could not be determined: they stay unchanged.
	unknown knobs
}

// neutral has the kernel's defaults.
var neutral = values{high: tick.Unlimited, scale: 50}

// knobs is a set of the values, as bits at the positions that the state file uses.
type knobs uint16

const (
	knobMin knobs = 1 << iota
	knobLow
	knobHigh
	knobRatio
	knobScale
	knobAdjust
	knobPriority
	knobUsePriority
	knobOOMGroup
)

// static returns the values that are the settings themselves, for any cgroup. A value out of range stays the kernel's default.
func static(m *sloconfig.MemoryQOS) values {
	v := neutral
	if m == nil {
		return v
	}
	own := *m
	_ = annotation.Sound(own.Numbers()) // reported when it was read
	for into, from := range map[*int64]*int64{
		&v.ratio: own.WmarkRatio, &v.scale: own.WmarkScalePermill, &v.adjust: own.WmarkMinAdj,
		&v.priority: own.Priority,
	} {
		if from != nil {
			*into = *from
		}
	}
	v.usePriority = own.PriorityEnable != nil && *own.PriorityEnable == 1
	v.killTogether = own.OOMKillGroup != nil && *own.OOMKillGroup == 1
	return v
}

// want advises values that differ from the kernel's defaults, and the default if a value was advised before.
func (n *node) want(cgroup string, v *values) {
	differs := v.differs()
	if n.state.Cgroups[cgroup] == nil && differs == 0 {
		return
	}
	h := n.state.Cgroups.Remember(cgroup)
	if differs|v.unknown&h.Keys != 0 {
		h.At = n.now
	}
	h.Keys |= differs
	if k := h.Keys &^ v.unknown; k != 0 {
		n.advice.Cgroups = append(n.advice.Cgroups, v.entry(cgroup, k))
	}
}

func (v *values) differs() (k knobs) {
	note := func(at knobs, differs bool) {
		if differs {
			k |= at
		}
	}
	note(knobMin, v.least != neutral.least)
	note(knobLow, v.low != neutral.low)
	note(knobHigh, v.high != neutral.high)
	note(knobRatio, v.ratio != neutral.ratio)
	note(knobScale, v.scale != neutral.scale)
	note(knobAdjust, v.adjust != neutral.adjust)
	note(knobPriority, v.priority != neutral.priority)
	note(knobUsePriority, v.usePriority)
	note(knobOOMGroup, v.killTogether)
	return k
}

// entry returns an entry with the values of the set.
func (v *values) entry(cgroup string, k knobs) tick.Cgroup {
	c := tick.Cgroup{Cgroup: cgroup}
	own := *v // a copy, not the loop's variable
	for _, number := range []struct {
		at   knobs
		into **int64
		from *int64
	}{
		{knobMin, &c.MemoryMinBytes, &own.least},
		{knobLow, &c.MemoryLowBytes, &own.low},
		{knobHigh, &c.MemoryHighBytes, &own.high},
		{knobRatio, &c.MemoryWmarkRatioPercent, &own.ratio},
		{knobScale, &c.MemoryWmarkScalePermille, &own.scale},
		{knobAdjust, &c.MemoryWmarkMinAdjPercent, &own.adjust},
		{knobPriority, &c.MemoryPriority, &own.priority},
	} {
		if k&number.at != 0 {
			*number.into = number.from
		}
	}
	if k&knobUsePriority != 0 {
		c.MemoryUsePriorityOOM = &own.usePriority
	}
	if k&knobOOMGroup != 0 {
		c.MemoryOOMGroup = &own.killTogether
	}
	return c
}
