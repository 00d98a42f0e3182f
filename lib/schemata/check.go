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
		return out, checkValues(out, m.MB, func(v *Value) error { return checkBandwidth(m, v) })
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
	return out, checkValues(out, m.L3, func(v *Value) error { return checkWays(v.Part, whole, m.MinCBMBits) })
}

func checkValues(l Line, ids []int64, check func(*Value) error) error {
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

func checkWays(mask, whole uint64, minimum int64) error {
	switch {
	case mask == 0:
		return fmt.Errorf("a mask without a way")
	case mask&^whole != 0:
		return fmt.Errorf("%x is not within the machine's mask %x", mask, whole)
	case !Contiguous(mask):
		return fmt.Errorf("%x is not one block of ways", mask)
	case int64(bits.OnesCount64(mask)) < minimum:
		return fmt.Errorf("%x has fewer ways than the minimum of %d", mask, minimum)
	}
	return nil
}

func checkBandwidth(m *tick.Resctrl, v *Value) error {
	maximum, unit := uint64(100), " %"
	if m.Vendor == AMD {
		maximum, unit = UnlimitedAMD, " eighths of a GB/s"
	}
	minimum := uint64(max(m.MBMin, 1))
	if v.Part < minimum || v.Part > maximum {
		return fmt.Errorf("%d is not from %d to %d%s", v.Part, minimum, maximum, unit)
	}
	if step := uint64(max(m.MBGranularity, 1)); m.Vendor != AMD {
		v.Part = min((v.Part+step-1)/step*step, maximum)
	}
	return nil
}
