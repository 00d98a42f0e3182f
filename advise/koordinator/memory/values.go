package memory

import (
	"polder/advise/koordinator/annotation"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// values are all values that memory QoS sets on one cgroup.
type values struct {
	min, low, high            int64
	ratio, scale, adjust      int64
	priority                  int64
	usePriority, killTogether bool
	// unknown are those that could not be determined: they stay unchanged.
	unknown keys
}

// kernelDefaults has the kernel's defaults.
var kernelDefaults = values{high: tick.Unlimited, scale: 50}

// keys is a set of the values, as bits at the positions that the state file uses.
type keys uint16

const (
	keyMin keys = 1 << iota
	keyLow
	keyHigh
	keyRatio
	keyScale
	keyAdjust
	keyPriority
	keyUsePriority
	keyOOMGroup
)

// staticValues returns the values that are the settings themselves, for any cgroup. A value out of range stays the kernel's default.
func staticValues(m *sloconfig.MemoryQOS) values {
	v := kernelDefaults
	if m == nil {
		return v
	}
	valid := *m
	_ = annotation.DropInvalid(valid.Numbers()) // reported when it was read
	for into, from := range map[*int64]*int64{
		&v.ratio: valid.WmarkRatio, &v.scale: valid.WmarkScalePermill, &v.adjust: valid.WmarkMinAdj,
		&v.priority: valid.Priority,
	} {
		if from != nil {
			*into = *from
		}
	}
	v.usePriority = valid.PriorityEnable != nil && *valid.PriorityEnable == 1
	v.killTogether = valid.OOMKillGroup != nil && *valid.OOMKillGroup == 1
	return v
}

// advise advises values that differ from the kernel's defaults, and the default if a value was advised before.
func (n *round) advise(cgroup string, v *values) {
	changed := v.changedKeys()
	if n.state.Cgroups[cgroup] == nil && changed == 0 {
		return
	}
	h := n.state.Cgroups.Entry(cgroup)
	if changed|v.unknown&h.Keys != 0 {
		h.At = n.now
	}
	h.Keys |= changed
	if k := h.Keys &^ v.unknown; k != 0 {
		n.advice.Cgroups = append(n.advice.Cgroups, v.entry(cgroup, k))
	}
}

func (v *values) changedKeys() (k keys) {
	note := func(at keys, differs bool) {
		if differs {
			k |= at
		}
	}
	note(keyMin, v.min != kernelDefaults.min)
	note(keyLow, v.low != kernelDefaults.low)
	note(keyHigh, v.high != kernelDefaults.high)
	note(keyRatio, v.ratio != kernelDefaults.ratio)
	note(keyScale, v.scale != kernelDefaults.scale)
	note(keyAdjust, v.adjust != kernelDefaults.adjust)
	note(keyPriority, v.priority != kernelDefaults.priority)
	note(keyUsePriority, v.usePriority)
	note(keyOOMGroup, v.killTogether)
	return k
}

// entry returns an entry with the values of the set.
func (v *values) entry(cgroup string, k keys) tick.Cgroup {
	c := tick.Cgroup{Cgroup: cgroup}
	own := *v // a copy, not the loop's variable
	for _, number := range []struct {
		at   keys
		into **int64
		from *int64
	}{
		{keyMin, &c.MemoryMinBytes, &own.min},
		{keyLow, &c.MemoryLowBytes, &own.low},
		{keyHigh, &c.MemoryHighBytes, &own.high},
		{keyRatio, &c.MemoryWmarkRatioPercent, &own.ratio},
		{keyScale, &c.MemoryWmarkScalePermille, &own.scale},
		{keyAdjust, &c.MemoryWmarkMinAdjPercent, &own.adjust},
		{keyPriority, &c.MemoryPriority, &own.priority},
	} {
		if k&number.at != 0 {
			*number.into = number.from
		}
	}
	if k&keyUsePriority != 0 {
		c.MemoryUsePriorityOOM = &own.usePriority
	}
	if k&keyOOMGroup != 0 {
		c.MemoryOOMGroup = &own.killTogether
	}
	return c
}
