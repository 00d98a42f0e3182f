package batch

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	units      = regexp.MustCompile(`(\d)(?:m| B)\b`)
	midSum     = regexp.MustCompile(`^mid-(cpu|memory): the smaller of prod reclaimable (\d+) \((.*)\) and unused (\d+) \(capacity (\d+) - used (\d+)\), \+ (\d+) % \(midUnallocatedPercent\) of unallocated (\d+) \(capacity (\d+) - the largest of system (\d+), kubelet (\d+) and annotation (\d+) - requests of high-priority pods (\d+)\) = (\d+)(?:; at most (\d+) \(mid(?:CPU|Memory)ThresholdPercent (\d+)\))?$`)
	prodSum    = regexp.MustCompile(`^the smallest of: requests beyond own peaks (\d+) \(\d+ pods, and \d+ with too short a history\), requests (\d+) - common peak (\d+), capacity (\d+) - the larger of common peak and sum of own peaks (\d+)$`)
	staticSum  = regexp.MustCompile(`^mid-(cpu|memory) \(static\): capacity (\d+) x (\d+) % \(midStatic(?:CPU|Memory)ReservedPercent\) = (\d+)(?:; at most (\d+) \(mid(?:CPU|Memory)ThresholdPercent (\d+)\))?$`)
	zonesHead  = regexp.MustCompile(`^batch-(cpu|memory) by NUMA node \(\w+, (?:cpu|memory)ReclaimThresholdPercent (\d+)\): (.*)$`)
	zoneSum    = regexp.MustCompile(`^(\d+): capacity (\d+) - margin (-?\d+) - (?:system|reserved) (\d+) - high-priority pods (\d+) = (-?\d+)(.*)$`)
	zoneAtMost = regexp.MustCompile(`^, at most (\d+) \(batch(?:CPU|Memory)ThresholdPercent (\d+)\)`)
	zoneRatio  = regexp.MustCompile(`^, x (\d)\.(\d\d) \(node\.koordinator\.sh/cpu-normalization-ratio\) = (\d+)$`)
)

// figures returns the numbers of a match; -1 for missing ones.
func figures(match []string) []int64 {
	out := make([]int64, len(match))
	for i, text := range match {
		n, err := strconv.ParseInt(text, 10, 64)
		if out[i] = n; err != nil {
			out[i] = -1
		}
	}
	return out
}

// redoMid recalculates the sums of the mid resources from the reasons' text, and returns the offer.
func redoMid(t testing.TB, reasons []string) map[string]int64 {
	t.Helper()
	ends := map[string]int64{}
	for _, reason := range reasons {
		if !strings.HasPrefix(reason, "mid-") {
			continue
		}
		plain := units.ReplaceAllString(reason, "$1")
		capped := func(left, capacity, maximum, percent int64) int64 {
			if maximum >= 0 && (maximum != capacity*percent/100 || maximum >= left) {
				t.Errorf("%s: the cap", reason)
			}
			if maximum >= 0 {
				return maximum
			}
			return left
		}
		if m := staticSum.FindStringSubmatch(plain); m != nil {
			f := figures(m)
			if f[4] != f[2]*f[3]/100 {
				t.Errorf("%s: the sum", reason)
			}
			ends[m[1]] = capped(f[4], f[2], f[5], f[6])
			continue
		}
		m := midSum.FindStringSubmatch(plain)
		if m == nil {
			t.Errorf("%s: cannot be redone", reason)
			continue
		}
		f := figures(m)
		prod := int64(0)
		if p := prodSum.FindStringSubmatch(m[3]); p != nil {
			g := figures(p)
			prod = max(min(g[1], g[2]-g[3], g[4]-max(g[3], g[5])), 0)
		} else if !strings.HasPrefix(m[3], "earlier use is unknown; ") {
			t.Errorf("%s: what is reclaimable of prod pods cannot be redone", reason)
		}
		if prod != f[2] {
			t.Errorf("%s: of prod pods %d are reclaimable", reason, prod)
		}
		if unused := max(f[5]-f[6], 0); unused != f[4] {
			t.Errorf("%s: %d are unused", reason, unused)
		}
		if unallocated := max(f[9]-max(f[10], f[11], f[12])-f[13], 0); unallocated != f[8] {
			t.Errorf("%s: %d are unallocated", reason, unallocated)
		}
		if sum := min(f[2], f[4]) + f[8]*f[7]/100; sum != f[14] {
			t.Errorf("%s: the sum is %d", reason, sum)
		}
		ends[m[1]] = capped(f[14], f[9], f[15], f[16])
	}
	return ends
}

// redoNUMA does the same with the batch resources by NUMA node: "cpu 0" and so on.
func redoNUMA(t testing.TB, reasons []string) map[string]int64 {
	t.Helper()
	ends := map[string]int64{}
	for _, reason := range reasons {
		head := zonesHead.FindStringSubmatch(units.ReplaceAllString(reason, "$1"))
		if head == nil {
			continue
		}
		percent := figures(head)[2]
		for zone := range strings.SplitSeq(head[3], "; ") {
			m := zoneSum.FindStringSubmatch(zone)
			if m == nil {
				t.Errorf("%s: %q cannot be redone", reason, zone)
				continue
			}
			f := figures(m[:7])
			f[3], _ = strconv.ParseInt(m[3], 10, 64)
			left, _ := strconv.ParseInt(m[6], 10, 64)
			if f[3] != f[2]*(100-percent)/100 || left != f[2]-f[3]-f[4]-f[5] {
				t.Errorf("%s: %q", reason, zone)
			}
			rest := m[7]
			if c := zoneAtMost.FindStringSubmatch(rest); c != nil {
				g := figures(c)
				if g[1] != f[2]*g[2]/100 || g[1] >= left {
					t.Errorf("%s: %q: the cap", reason, zone)
				}
				left, rest = g[1], strings.TrimPrefix(rest, c[0])
			}
			if after, ok := strings.CutPrefix(rest, ", negative: 0"); ok {
				if left >= 0 {
					t.Errorf("%s: %q: %d is not less than nothing", reason, zone, left)
				}
				left, rest = 0, after
			}
			if c := zoneRatio.FindStringSubmatch(rest); c != nil {
				g := figures(c)
				if (left*(g[1]*100+g[2])+99)/100 != g[3] {
					t.Errorf("%s: %q: the ratio", reason, zone)
				}
				left, rest = g[3], ""
			}
			if rest != "" {
				t.Errorf("%s: %q is left over", reason, rest)
			}
			ends[head[1]+" "+m[1]] = left
		}
	}
	return ends
}
