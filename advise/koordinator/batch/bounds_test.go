package batch

import (
	"fmt"
	"testing"
	"time"

	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// A histogram of a state file is valid only if its buckets exist.
func TestValidHistograms(t *testing.T) {
	for _, tt := range []struct {
		first, counts int
		want          bool
	}{
		{0, 0, true},
		{-1, 1, false},
		{0, maxBucket + 1, true},
		{0, maxBucket + 2, false},
		{maxBucket, 1, true},
		{maxBucket + 1, 1, false},
		{maxBucket, 2, false},
		{1 << 62, 0, false},
	} {
		h := &histogram{First: tt.first, Counts: make([]float32, tt.counts)}
		if got := h.isValid(); got != tt.want {
			t.Errorf("%d buckets from the %d. on: %v", tt.counts, tt.first, got)
		}
		h.count(5) // it must not panic, whatever was read
		if !h.isValid() {
			t.Errorf("%d buckets from the %d. on: no good after a count", tt.counts, tt.first)
		}
	}
}

// A machine with unknown CPUs has an unknown capacity, not 0.
func TestTheMachinesOwnCapacity(t *testing.T) {
	for _, tt := range []struct {
		topology *tick.Topology
		want     int64
		known    bool
	}{{nil, 0, false}, {&tick.Topology{}, 0, false}, {&tick.Topology{CPUs: "x"}, 0, false}, {&tick.Topology{CPUs: "0-3"}, 4000, true}} {
		if got, known := machineCapacity(&tick.Sample{Topology: tt.topology}, cpu); got != tt.want || known != tt.known {
			t.Errorf("%+v: %d, %v", tt.topology, got, known)
		}
	}
	if _, known := machineCapacity(&tick.Sample{}, memory); known {
		t.Error("memory that was not read is known")
	}
	if got, known := machineCapacity(&tick.Sample{Memory: &tick.NodeMemory{TotalBytes: new(5.0)}}, memory); got != 5 || !known {
		t.Errorf("memory: %d, %v", got, known)
	}
}

// For any percentage of any capacity: a product that does not fit saturates at the largest number, without a panic.
func TestScaleStopsAtTheMaximum(t *testing.T) {
	for _, tt := range []struct{ v, by, of, want, up int64 }{
		{maxAmount, 204_800, 100, maxSum, maxSum}, // the smallest product that the division cannot handle
		{maxAmount, maxPercent, 100, maxSum, maxSum},
		{maxAmount, 204_799, 100, maxSum, maxSum},
		{10, 15, 100, 1, 2},
		{10, 10, 100, 1, 1},
		{0, 15, 100, 0, 0},
	} {
		if got := scale(tt.v, tt.by, tt.of); got != tt.want {
			t.Errorf("%d * %d / %d: %d; want %d", tt.v, tt.by, tt.of, got, tt.want)
		}
		if got := scaleUp(tt.v, tt.by, tt.of); got != tt.up {
			t.Errorf("%d * %d / %d, rounded up: %d; want %d", tt.v, tt.by, tt.of, got, tt.up)
		}
	}
	for _, tt := range [][4]int64{{10, -15, 100, -1}, {-10, 15, 100, -1}, {-10, -15, 100, 1}, {10, 0, 100, 0}} {
		if got := scale(tt[0], tt[1], tt[2]); got != tt[3] {
			t.Errorf("%v: %d", tt, got)
		}
	}
}

// A pod reduces the batch offer if it is of a high class, or claims a low one that neither the API server nor suppression confirms.
func TestHighPriorityPods(t *testing.T) {
	free := label("koordinator.sh/priority-class", "koord-free")
	batch := label("koordinator.sh/priority-class", "koord-batch")
	be := label("koordinator.sh/qosClass", "BE")
	number := func(n int64) func(*tick.Pod) { return func(p *tick.Pod) { p.Priority = &n } }
	for name, tt := range map[string]struct {
		kubernetes string
		change     []func(*tick.Pod)
		want       bool
	}{
		"no label":                               {"Burstable", nil, true},
		"free by its label alone":                {"Burstable", []func(*tick.Pod){free}, true},
		"batch by its label alone":               {"Burstable", []func(*tick.Pod){batch}, true},
		"confined by suppression":                {"Burstable", []func(*tick.Pod){batch, be}, false},
		"of Kubernetes' class BestEffort":        {"BestEffort", []func(*tick.Pod){free}, false},
		"batch by its number, too":               {"Burstable", []func(*tick.Pod){batch, number(5500)}, false},
		"free by its label, batch by its number": {"Burstable", []func(*tick.Pod){free, number(5500)}, false},
		"batch by its label, free by its number": {"Burstable", []func(*tick.Pod){batch, number(3500)}, false},
		"batch by its number alone":              {"Burstable", []func(*tick.Pod){number(5500)}, false},
		"prod by its number":                     {"Burstable", []func(*tick.Pod){batch, number(9500)}, true},
	} {
		p := onePod("a", tt.kubernetes, 1, 1, 1, 1, tt.change...)
		if one, _ := podOf(&p, &sloconfig.Colocation{}); one.isHighPriority != tt.want {
			t.Errorf("%s: it takes %v", name, one.isHighPriority)
		}
	}
}

// Page cache counts if that is set, and unknown page cache does not count as 0.
func TestMemoryInUse(t *testing.T) {
	v := func(n float64) *float64 { return &n }
	withCache := &sloconfig.Colocation{MetricMemoryCollectPolicy: new(string(sloconfig.UsageWithPageCache))}
	for _, tt := range []struct {
		m           *tick.Memory
		plain, with int64 // -1 means unknown
	}{
		{nil, -1, -1},
		{&tick.Memory{}, -1, -1},
		{&tick.Memory{RSSBytes: v(5), CacheBytes: v(3), UsageBytes: v(9), WorkingSetBytes: v(7)}, 5, 8},
		{&tick.Memory{RSSBytes: v(5), UsageBytes: v(9), WorkingSetBytes: v(7)}, 5, 9},
		{&tick.Memory{CacheBytes: v(3), UsageBytes: v(9), WorkingSetBytes: v(7)}, 7, 9},
		{&tick.Memory{RSSBytes: v(5)}, 5, -1},
	} {
		for policy, want := range map[*sloconfig.Colocation]int64{{}: tt.plain, withCache: tt.with} {
			got, known := memoryOf(tt.m, policy)
			if !known {
				got = -1
			}
			if got != want {
				t.Errorf("%+v, with page cache %v: %d; want %d", tt.m, policy == withCache, got, want)
			}
		}
	}
}

// The slots are a twentieth of the window wide, so that the number of slots does not depend on the window.
func TestSlotsOfAnyWindow(t *testing.T) {
	for _, over := range []time.Duration{time.Minute, 5 * time.Minute, time.Hour} {
		var s slots
		for second := range 2 * int(over.Seconds()) {
			s.advance(start.Add(time.Duration(second)*time.Second), over)
		}
		width := max(over/slotCount, minSlotWidth)
		if got, want := len(s.At), int(over/width); got != want {
			t.Errorf("of %s: %d slots; want %d", over, got, want)
		}
		now := start.Add(over / 2) // the clock was set back
		if s.advance(now, over); s.At[len(s.At)-1] > now.UnixNano() {
			t.Errorf("of %s: the last slot begins at %d, which is after %d", over, s.At[len(s.At)-1], now.UnixNano())
		}
	}
}

// After a gap of exactly degradeTimeMinutes the last offer is not too stale to be repeated.
func TestAGapOfTheDegradeTime(t *testing.T) {
	for gap, stays := range map[time.Duration]bool{15 * time.Minute: true, 15*time.Minute + 1: false} {
		st := &State{}
		st.Advise(at(sample(), 0), shipped(), &tick.Advice{})
		a := &tick.Advice{}
		if st.Advise(at(nil, gap), shipped(), a); (a.Reclaimed != nil) != stays || a.Withdrawn != "" {
			t.Errorf("after %s: %+v, %q", gap, a.Reclaimed, a.Reasons)
		}
	}
}

// The maximum number of NUMA nodes counts, and with one more none does.
func TestTheMostNUMANodes(t *testing.T) {
	for n, want := range map[int]int{maxZones: maxZones, maxZones + 1: 0} {
		topology := &tick.Topology{}
		for i := range n {
			topology.NUMANodes = append(topology.NUMANodes, tick.TopologyNUMA{ID: i, CPUs: fmt.Sprint(i), MemoryBytes: new(1.0)})
		}
		if got := len(zonesOf(topology)); got != want {
			t.Errorf("of %d: %d; want %d", n, got, want)
		}
	}
}
