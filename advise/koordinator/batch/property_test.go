package batch

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"polder/advise/koordinator/annotation"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// figure draws a number as it may occur in a sample, or none.
func figure(t *rapid.T, what string, usual float64) *float64 {
	switch rapid.IntRange(0, 9).Draw(t, what+" is") {
	case 0:
		return nil
	case 1:
		return new(rapid.SampledFrom([]float64{0, -1, 1e18, 1e308, -1e308, math.MaxInt64, 0.4}).Draw(t, what))
	}
	return new(math.Trunc(rapid.Float64Range(0, usual).Draw(t, what)))
}

func drawnPod(t *rapid.T, name string) tick.Pod {
	p := tick.Pod{
		UID: name, Name: name, QoS: tick.QoSShared, QoSSource: tick.QoSFromKubernetes,
		KubernetesQOS: rapid.SampledFrom([]string{"Guaranteed", "Burstable", "BestEffort", ""}).Draw(t, "kubernetes"),
		Phase:         rapid.SampledFrom([]string{"", "Running", "Running", "Pending", "Succeeded", "Failed", "Unknown"}).Draw(t, "phase"),
		Missing:       rapid.SampledFrom([]string{"", "", "", tick.MissingCgroup, tick.MissingCluster}).Draw(t, "missing"),
		UsageMilliCPU: figure(t, "use", 4000),
		Memory:        &tick.Memory{RSSBytes: figure(t, "rss", 1e10), WorkingSetBytes: figure(t, "working set", 1e10), UsageBytes: figure(t, "memory", 1e10)},
		Requests:      &tick.Resources{MilliCPU: figure(t, "request", 4000), MemoryBytes: figure(t, "memory request", 1e10)},
	}
	if class := rapid.SampledFrom([]string{"", "", "LSE", "LSR", "LS", "BE", "SYSTEM", "nonsense"}).Draw(t, "class"); class != "" {
		p.Labels = map[string]string{"koordinator.sh/qosClass": class}
	}
	if ids := rapid.SampledFrom([]string{"", "", `[{"node":0}]`, `[{"node":1}]`, `[{"node":5}]`, `7`}).Draw(t, "NUMA nodes"); ids != "" {
		p.Annotations = map[string]string{annotation.Status: `{"numaNodeResources":` + ids + `}`}
	}
	return p
}

func drawnSample(t *rapid.T) *tick.Sample {
	s := twoNodes(sample())
	s.Capacity = &tick.Resources{MilliCPU: figure(t, "capacity", 64000), MemoryBytes: figure(t, "capacity memory", 1e12)}
	s.Allocatable = &tick.Resources{MilliCPU: figure(t, "allocatable", 64000), MemoryBytes: figure(t, "allocatable memory", 1e12)}
	s.CPU.UsageMilliCPU, s.Memory.TotalBytes, s.Memory.AvailableBytes = figure(t, "node use", 64000), figure(t, "total", 1e12), figure(t, "available", 1e12)
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		s.Pods = append(s.Pods, drawnPod(t, fmt.Sprint("p", i)))
	}
	if text := rapid.SampledFrom([]string{"", `{"resources":{"cpu":"2","memory":"3Gi"}}`, `{"reservedCPUs":"0-3"}`, `{"resources":{"cpu":1e30}}`, `[`}).Draw(t, "reservation"); text != "" {
		s.Annotations = map[string]string{annotation.Reservation: text}
	}
	return s
}

func drawnStrategies(t *rapid.T) *sloconfig.Strategies {
	percent := func(what string) *int64 {
		if rapid.Bool().Draw(t, what+" is not set") {
			return nil
		}
		return new(rapid.OneOf(rapid.Int64Range(0, 200), rapid.Int64()).Draw(t, what))
	}
	return strategies(func(c *sloconfig.Colocation) {
		c.CPUReclaimThresholdPercent, c.MemoryReclaimThresholdPercent = percent("cpu threshold"), percent("memory threshold")
		c.BatchCPUThresholdPercent, c.BatchMemoryThresholdPercent = percent("cpu cap"), percent("memory cap")
		c.MidUnallocatedPercent, c.MidCPUThresholdPercent = percent("unallocated"), percent("mid cap")
		c.CPUCalculatePolicy = rapid.SampledFrom([]*string{nil, new("usage"), new("maxUsageRequest"), new("request")}).Draw(t, "cpu policy")
		c.MemoryCalculatePolicy = rapid.SampledFrom([]*string{nil, new("usage"), new("maxUsageRequest"), new("request")}).Draw(t, "memory policy")
	})
}

// For any input, no offer is negative or over its cap, and the reasons' sums equal the offers.
func TestOffersHaveBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, st := drawnSample(t), drawnStrategies(t)
		a := advised(s, st)
		if len(a.Reasons) == 0 {
			t.Fatal("no reason")
		}
		if a.Reclaimed == nil {
			return
		}
		check := func(what string, got *int64, capacity *float64, cap *int64) {
			if got == nil {
				return
			}
			if *got < 0 || *got > maxAmount {
				t.Errorf("%s = %d: %v", what, *got, a.Reasons)
			}
			if cap == nil || *cap < 0 || capacity == nil {
				return
			}
			whole, _ := wholeNumber(capacity)
			limit := new(big.Int).Mul(big.NewInt(whole), big.NewInt(min(*cap, maxPercent)))
			if limit.Quo(limit, big.NewInt(100)); big.NewInt(*got).Cmp(limit) > 0 {
				t.Errorf("%s = %d, over %d %% of %d: %v", what, *got, *cap, whole, a.Reasons)
			}
		}
		c := &st.Colocation
		check("batch-cpu", a.Reclaimed.MilliCPU, s.Capacity.MilliCPU, c.BatchCPUThresholdPercent)
		check("batch-memory", a.Reclaimed.MemoryBytes, s.Capacity.MemoryBytes, c.BatchMemoryThresholdPercent)
		check("mid-cpu", a.Mid.MilliCPU, s.Capacity.MilliCPU, c.MidCPUThresholdPercent)
		check("mid-memory", a.Mid.MemoryBytes, nil, nil)
		for _, n := range a.Reclaimed.NUMANodes {
			check("a NUMA node's CPU", n.MilliCPU, new(5000.0), c.BatchCPUThresholdPercent)
			check("a NUMA node's memory", n.MemoryBytes, new(gi(50)), c.BatchMemoryThresholdPercent)
		}
	})
}

// More use or a larger request of a high-priority pod never increases batch pods' resources.
func TestMoreUseNeverGivesMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, st := drawnSample(t), drawnStrategies(t)
		p := drawnPod(t, "grows")
		p.Phase, p.Labels = "Running", map[string]string{"koordinator.sh/qosClass": rapid.SampledFrom([]string{"LS", "LSR", "LSE", "SYSTEM"}).Draw(t, "class")}
		with := func(p tick.Pod, more float64) *tick.Advice {
			other := *s
			other.Pods = append(append([]tick.Pod(nil), s.Pods...), p)
			other.CPU, other.Memory = &tick.NodeCPU{}, &tick.NodeMemory{TotalBytes: s.Memory.TotalBytes}
			if s.CPU.UsageMilliCPU != nil { // the node's use includes its pod's
				other.CPU.UsageMilliCPU = new(*s.CPU.UsageMilliCPU + more)
			}
			if s.Memory.AvailableBytes != nil {
				other.Memory.AvailableBytes = new(*s.Memory.AvailableBytes - more)
			}
			return advised(&other, st)
		}
		grown := p
		more := rapid.Float64Range(1, 20000).Draw(t, "more")
		moreUse := 0.0
		grow := func(f *float64) *float64 {
			if f == nil {
				return nil
			}
			return new(*f + more)
		}
		if rapid.Bool().Draw(t, "of use") {
			moreUse = more
			grown.UsageMilliCPU = grow(p.UsageMilliCPU)
			grown.Memory = &tick.Memory{RSSBytes: grow(p.Memory.RSSBytes), WorkingSetBytes: grow(p.Memory.WorkingSetBytes), UsageBytes: grow(p.Memory.UsageBytes)}
		} else {
			grown.Requests = &tick.Resources{MilliCPU: grow(p.Requests.MilliCPU), MemoryBytes: grow(p.Requests.MemoryBytes)}
		}
		if left, total := s.Memory.AvailableBytes, s.Memory.TotalBytes; left != nil && total != nil && (*left < more || *left > *total) || s.CPU.UsageMilliCPU != nil && (*s.CPU.UsageMilliCPU < 0 || *s.CPU.UsageMilliCPU >= float64(maxAmount)) {
			return // the node cannot use more
		}
		before, after := with(p, 0), with(grown, moreUse)
		if before.Reclaimed == nil || after.Reclaimed == nil {
			return
		}
		// The system's use is the node's less the pods' after truncation: it may lose a unit.
		less := func(what string, x, y *int64) {
			if x != nil && y != nil && *y > *x+1 {
				t.Errorf("%s: %d, and with more use %d: %v; %v", what, *x, *y, before.Reasons, after.Reasons)
			}
		}
		less("batch-cpu", before.Reclaimed.MilliCPU, after.Reclaimed.MilliCPU)
		less("batch-memory", before.Reclaimed.MemoryBytes, after.Reclaimed.MemoryBytes)
		for i := range before.Reclaimed.NUMANodes {
			less("a NUMA node's CPU", before.Reclaimed.NUMANodes[i].MilliCPU, after.Reclaimed.NUMANodes[i].MilliCPU)
			less("a NUMA node's memory", before.Reclaimed.NUMANodes[i].MemoryBytes, after.Reclaimed.NUMANodes[i].MemoryBytes)
		}
	})
}

// The arithmetic equals that of unbounded numbers, saturated at the largest.
func TestArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64Range(-maxAmount, maxAmount).Draw(t, "v")
		by, of := rapid.Int64Range(-maxPercent, maxPercent).Draw(t, "by"), rapid.Int64Range(1, 1000).Draw(t, "of")
		exact := new(big.Int).Mul(big.NewInt(v), big.NewInt(by))
		want := new(big.Int).Quo(exact, big.NewInt(of))
		if got := scale(v, by, of); want.CmpAbs(big.NewInt(maxSum)) <= 0 && want.Int64() != got || want.CmpAbs(big.NewInt(maxSum)) > 0 && absolute(got) != uint64(maxSum) {
			t.Errorf("scaled(%d, %d, %d) = %d; want %s", v, by, of, got, want)
		}
		if v >= 0 && by >= 0 {
			up := new(big.Int).Add(exact, big.NewInt(of-1))
			if up.Quo(up, big.NewInt(of)); up.CmpAbs(big.NewInt(maxSum)) <= 0 && up.Int64() != scaleUp(v, by, of) {
				t.Errorf("scaledUp(%d, %d, %d) = %d; want %s", v, by, of, scaleUp(v, by, of), up)
			}
		}
	})
	if got := add(maxSum, maxSum); got != maxSum {
		t.Errorf("add(huge, huge) = %d", got)
	}
	if got := subtract(-maxSum, maxSum); got != -maxSum {
		t.Errorf("less(-huge, huge) = %d", got)
	}
}
