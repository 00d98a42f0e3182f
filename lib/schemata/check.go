package schemata

import (
	"fmt"
	"math/bits"
	"slices"

	"polder/lib/tick"
)

// These are the vendors, as in [tick.Resctrl].
const (
	Intel = "intel"
	AMD   = "amd"
)

// UnlimitedAMD means no limit of the memory bandwidth on AMD's machines, which count it in eighths of a GB/s.
const UnlimitedAMD = 2048

// Check checks a line against the machine's abilities, and returns it as the kernel will show it: bandwidth in percent is
// rounded up to the machine's next step. The error names the machine's abilities.
func Check(m *tick.Resctrl, l Line) (Line, error) {
	if len(l.Values) == 0 {
		return Line{}, fmt.Errorf("%s names no domain", l.Resource)
	}
	out := Line{Resource: l.Resource, Values: slices.Clone(l.Values)}
	switch l.Resource {
	case MB:
		if m.MBps {
			return Line{}, fmt.Errorf("%s: memory bandwidth is in MiB/s here (resctrl is mounted with mba_MBps), not in percent", l)
		}
		return out, each(out, m.MB, func(v *Value) error { return bandwidth(m, v) })
	case L3:
		if m.CDP {
			return Line{}, fmt.Errorf("%s: the cache is divided for code and data here (resctrl is mounted with cdp): L3CODE and L3DATA", l)
		}
	default:
		if !m.CDP {
			return Line{}, fmt.Errorf("%s: the cache is not divided for code and data here: L3", l)
		}
	}
	whole, err := Mask(m.CBMMask)
	if err != nil && len(m.L3) > 0 {
		return Line{}, fmt.Errorf("%s: the machine's mask: %w", l, err)
	}
	return out, each(out, m.L3, func(v *Value) error { return ways(v.Part, whole, m.MinCBMBits) })
}

func each(l Line, ids []int64, check func(*Value) error) error {
	if len(ids) == 0 {
		return fmt.Errorf("%s: this machine cannot divide that", l)
	}
	for i := range l.Values {
		v := &l.Values[i]
		if !slices.Contains(ids, v.ID) {
			return fmt.Errorf("%s: there is no domain %d: the machine has %v", l, v.ID, ids)
		}
		if err := check(v); err != nil {
			return fmt.Errorf("%s: domain %d: %w", l, v.ID, err)
		}
	}
	return nil
}

func ways(mask, whole uint64, least int64) error {
	switch {
	case mask == 0:
		return fmt.Errorf("a mask without a way")
	case mask&^whole != 0:
		return fmt.Errorf("%x is not within the machine's mask %x", mask, whole)
	case !Contiguous(mask):
		return fmt.Errorf("%x is not one block of ways", mask)
	case int64(bits.OnesCount64(mask)) < least:
		return fmt.Errorf("%x has fewer ways than the least of %d", mask, least)
	}
	return nil
}

func bandwidth(m *tick.Resctrl, v *Value) error {
	most, unit := uint64(100), " %"
	if m.Vendor == AMD {
		most, unit = UnlimitedAMD, " eighths of a GB/s"
	}
	least := uint64(max(m.MBMin, 1))
	if v.Part < least || v.Part > most {
		return fmt.Errorf("%d is not from %d to %d%s", v.Part, least, most, unit)
	}
	if step := uint64(max(m.MBGranularity, 1)); m.Vendor != AMD {
		v.Part = min((v.Part+step-1)/step*step, most)
	}
	return nil
}
