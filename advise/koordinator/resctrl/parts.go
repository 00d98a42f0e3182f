package resctrl

import (
	"fmt"
	"math/bits"

	"polder/lib/schemata"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// groupParts returns the lines of a group with an explanation of the sums, and the settings that cannot be applied.
func groupParts(m *tick.Resctrl, q *sloconfig.ResctrlQOS) (lines, terms []string, problems []error) {
	for _, part := range []func(*tick.Resctrl, *sloconfig.ResctrlQOS) ([]schemata.Line, string, error){cache, bandwidth} {
		partLines, term, err := part(m, q)
		switch {
		case err != nil:
			problems = append(problems, err)
		case len(partLines) > 0:
			for _, l := range partLines {
				lines = append(lines, l.String())
			}
			terms = append(terms, term)
		}
	}
	return lines, terms, problems
}

// cache returns the lines that assign a group its ways of the L3 cache, with an explanation; none if the machine cannot divide it.
func cache(m *tick.Resctrl, q *sloconfig.ResctrlQOS) ([]schemata.Line, string, error) {
	if len(m.L3) == 0 {
		return nil, "", nil
	}
	if q.CATRangeStartPercent == nil || q.CATRangeEndPercent == nil {
		return nil, "", fmt.Errorf("catRangeStartPercent or catRangeEndPercent is not set")
	}
	start, end := *q.CATRangeStartPercent, *q.CATRangeEndPercent
	if start < 0 || end > 100 || end <= start {
		return nil, "", fmt.Errorf("catRangeStartPercent %d and catRangeEndPercent %d: want 0 to 100, the end above the start", start, end)
	}
	fullMask, err := schemata.Mask(m.CBMMask)
	if err != nil || !schemata.Contiguous(fullMask) || fullMask&1 == 0 {
		return nil, "", fmt.Errorf("the machine's cache mask %.60q is not one block of ways from the first", m.CBMMask)
	}
	n := int64(bits.Len64(fullMask))
	from, to := ceilPercent(n*start), ceilPercent(n*end)
	term := fmt.Sprintf("L3 %d-%d %% of %d ways", start, end, n)
	if minBits := min(max(m.MinCBMBits, 1), n); to-from < minBits { // extend upwards first, then downwards
		to = min(from+minBits, n)
		from = to - minBits
		term += fmt.Sprintf(", at least %d", minBits)
	}
	mask := uint64(1)<<to - uint64(1)<<from
	term += fmt.Sprintf(" = %d to %d = %x", from, to-1, mask)
	if m.CDP {
		return []schemata.Line{schemata.Uniform(schemata.L3Code, m.L3, mask), schemata.Uniform(schemata.L3Data, m.L3, mask)}, term, nil
	}
	return []schemata.Line{schemata.Uniform(schemata.L3, m.L3, mask)}, term, nil
}

// ceilPercent divides by a hundred and rounds up.
func ceilPercent(n int64) int64 { return (n + 99) / 100 }

// fullAMD is the memory bandwidth of an AMD machine's domain in eighths of a GB/s, as in Koordinator: four fifths of Milan's 25 GB/s. No
// file of the kernel contains the machine's own.
const fullAMD = 160

// bandwidth returns the line that assigns a group its part of the memory bandwidth; none if the machine cannot divide it.
func bandwidth(m *tick.Resctrl, q *sloconfig.ResctrlQOS) ([]schemata.Line, string, error) {
	if len(m.MB) == 0 {
		return nil, "", nil
	}
	switch {
	case q.MBAPercent == nil:
		return nil, "", fmt.Errorf("mbaPercent is not set")
	case *q.MBAPercent < 1 || *q.MBAPercent > 100:
		return nil, "", fmt.Errorf("mbaPercent %d: want 1 to 100", *q.MBAPercent)
	case m.MBps:
		return nil, "", fmt.Errorf("mbaPercent %d: memory bandwidth is in MiB/s here (mounted with mba_MBps)", *q.MBAPercent)
	}
	percent := *q.MBAPercent
	var part int64
	switch m.Vendor {
	case schemata.Intel:
		step := m.MBGranularity
		if step < 1 || step > 100 {
			step = 10
		}
		part = min((min(max(percent, m.MBMin), 100)+step-1)/step*step, 100)
	case schemata.AMD:
		if part = max(fullAMD*percent/100, m.MBMin); percent == 100 {
			part = schemata.UnlimitedAMD
		}
	default:
		return nil, "", fmt.Errorf("mbaPercent %d: this processor's unit of memory bandwidth is unknown", percent)
	}
	return []schemata.Line{schemata.Uniform(schemata.MB, m.MB, uint64(part))}, fmt.Sprintf("MB %d %% = %d", percent, part), nil
}
