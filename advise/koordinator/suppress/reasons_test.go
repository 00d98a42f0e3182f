package suppress

import (
	"regexp"
	"strconv"
	"testing"

	"polder/lib/sloconfig"
)

var (
	sumText   = regexp.MustCompile(`capacity (\d+)m \* (\d+) % .* - services (\d+)m .* - system (\d+)m .* = (-?\d+)m -> (?:quota )?(\d+)(?:m| CPUs?)(.*)$`)
	stepText  = regexp.MustCompile(`; it grows by a tenth of (all (\d+) CPUs a step, rounded up|the machine a step): from (\d+)m? by (\d+)m?`)
	closeText = regexp.MustCompile(`; (\d+)m is within a hundredth of the machine \((\d+)m\) of the current (\d+)m, which stays`)
	lsrText   = regexp.MustCompile(`; (\d+) of the (\d+) of LSR pods \((\d+) \* (\d+) / (\d+)\), (\d+) of the other (\d+)`)
)

func numbers(match []string) []int {
	out := make([]int, len(match))
	for i, text := range match {
		out[i], _ = strconv.Atoi(text)
	}
	return out
}

// The results of a load that falls and rises can be recalculated from the reasons: the sum, the step, the share of LSR pods' CPUs.
func TestReasonsAddUp(t *testing.T) {
	seen := map[string]int{}
	for _, mode := range []string{sloconfig.SuppressCPUSet, sloconfig.SuppressCFSQuota} {
		st := &State{}
		for _, left := range []float64{31_000, 9_000, 31_000, 31_000, 31_000, 31_000, 31_000, 30_900, 30_000, -1, 3000, 3100} {
			s := withBudget(left, pinned("LSR", "r", "2-3,26-27"))
			if st.CPUs != "" {
				s.Tiers[1].CPUSetCPUs = st.CPUs // isolate has applied it
			}
			if st.QuotaMilliCPU > 0 {
				s.Tiers[1].CPUMaxMilliCPU = new(st.QuotaMilliCPU)
			}
			a := st.step(s, byPolicy(mode))
			got := parse(st.CPUs).Size()
			if mode == sloconfig.SuppressCFSQuota {
				got = int(st.QuotaMilliCPU)
			}
			m := sumText.FindStringSubmatch(a.Reasons[0])
			if m == nil {
				t.Fatalf("cannot be redone: %q", a.Reasons)
			}
			n := numbers(m)
			if n[1]*n[2]/100-n[3]-n[4] != n[5] || n[6] != got {
				t.Errorf("%q: want %d in the end", a.Reasons[0], got)
			}
			want := max((n[5]+999)/1000, minCPUs)
			if mode == sloconfig.SuppressCFSQuota {
				want = max(n[5], minQuotaMilliCPU)
			}
			if c := stepText.FindStringSubmatch(m[7]); c != nil {
				seen["step "+mode]++
				f := numbers(c)
				step := n[1] / 10
				if mode == sloconfig.SuppressCPUSet {
					step = (f[2] + 9) / 10
				}
				if f[4] != step || f[3]+f[4] >= want {
					t.Errorf("%q: the step", a.Reasons[0])
				}
				want = f[3] + f[4]
			}
			if c := closeText.FindStringSubmatch(m[7]); c != nil {
				seen["close"]++
				f := numbers(c)
				if f[1] != want || f[2] != n[1]/100 || max(f[3]-want, want-f[3]) >= f[2] {
					t.Errorf("%q: the band", a.Reasons[0])
				}
				want = f[3]
			}
			if want != got {
				t.Errorf("%q: it comes to %d; want %d", a.Reasons[0], want, got)
			}
			if c := lsrText.FindStringSubmatch(m[7]); (c != nil) != (mode == sloconfig.SuppressCPUSet) {
				t.Errorf("%q: LSR pods' CPUs", a.Reasons[0])
			} else if c != nil {
				f := numbers(c)
				lsr := parse(st.CPUs).Intersection(parse("2-3,26-27")).Size()
				if f[3]*f[4]/f[5] != f[1] || f[1] != lsr || f[2] != f[4] || f[1]+f[6] != got || f[2]+f[7] != f[5] {
					t.Errorf("%q: %d of LSR pods' CPUs", a.Reasons[0], lsr)
				}
			}
		}
	}
	if seen["step "+sloconfig.SuppressCPUSet] == 0 || seen["step "+sloconfig.SuppressCFSQuota] == 0 || seen["close"] == 0 {
		t.Errorf("not every text was seen: %v", seen)
	}
}
