package batch

import (
	"math"
	"strings"
	"testing"
	"time"

	"polder/advise/koordinator/annotation"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// idleNode returns the node when the system uses 100m and 1 Gi.
func idleNode(pods ...tick.Pod) *tick.Sample {
	s := sample(pods...)
	cpu, memory := 100.0, gi(1)
	for _, p := range pods {
		cpu, memory = cpu+*p.UsageMilliCPU, memory+*p.Memory.RSSBytes
	}
	s.CPU.UsageMilliCPU, s.Memory.AvailableBytes = &cpu, new(gi(100)-memory)
	return s
}

// trained returns a state that has seen the pods with their uses for some days.
func trained(t *testing.T, pods []tick.Pod, days float64) (*State, time.Duration) {
	t.Helper()
	st, s := &State{}, shipped()
	after := time.Duration(0)
	for ; after <= time.Duration(days*24*float64(time.Hour)); after += time.Minute {
		st.Advise(at(idleNode(pods...), after), s, &tick.Advice{})
	}
	return st, after
}

// Mid is the smaller of the prod pods' reclaimable requests and the unused part, plus a part of what no pod requests.
func TestMid(t *testing.T) {
	const g = 1 << 30
	for name, c := range map[string]struct {
		pods   []tick.Pod
		sample func(*tick.Sample)
		config func(*sloconfig.Colocation)
		cpu    int64
		memory int64
	}{
		"cold: nothing is reclaimable":     {},
		"no pod requested anything":        {config: func(c *sloconfig.Colocation) { c.MidUnallocatedPercent = new(int64(100)) }, cpu: 8000, memory: 70 * g},
		"half of it":                       {config: func(c *sloconfig.Colocation) { c.MidUnallocatedPercent = new(int64(50)) }, cpu: 4000, memory: 35 * g},
		"less what pods ask for":           {pods: []tick.Pod{onePod("a", "Burstable", 3, 10, 1, 10)}, config: func(c *sloconfig.Colocation) { c.MidUnallocatedPercent = new(int64(100)) }, cpu: 6000, memory: 70 * g},
		"less what is reserved":            {sample: func(s *tick.Sample) { s.Allocatable.MilliCPU = new(5000.0) }, config: func(c *sloconfig.Colocation) { c.MidUnallocatedPercent = new(int64(100)) }, cpu: 5000, memory: 70 * g},
		"more is requested than there is":  {pods: []tick.Pod{onePod("a", "Burstable", 30, 1000, 1, 10)}, config: func(c *sloconfig.Colocation) { c.MidUnallocatedPercent = new(int64(100)) }},
		"batch pods ask for nothing of it": {pods: []tick.Pod{onePod("a", "BestEffort", -1, 0, 1, 10)}, config: func(c *sloconfig.Colocation) { c.MidUnallocatedPercent = new(int64(100)) }, cpu: 9000, memory: 80 * g},
		"capped": {config: func(c *sloconfig.Colocation) {
			c.MidUnallocatedPercent, c.MidCPUThresholdPercent, c.MidMemoryThresholdPercent = new(int64(100)), new(int64(10)), new(int64(0))
		}, cpu: 1000},
		"static": {config: func(c *sloconfig.Colocation) {
			c.MidReclaimMode, c.MidStaticCPUReservedPercent, c.MidStaticMemoryReservedPercent = new("static"), new(int64(15)), new(int64(7))
		}, cpu: 1500, memory: 7 * g},
		"static, capped": {config: func(c *sloconfig.Colocation) {
			c.MidReclaimMode, c.MidStaticCPUReservedPercent, c.MidCPUThresholdPercent = new("static"), new(int64(15)), new(int64(10))
		}, cpu: 1000},
		"reserved by annotation": {sample: func(s *tick.Sample) {
			s.Annotations = map[string]string{annotation.Reservation: `{"resources":{"cpu":"6","memory":"80Gi"}}`}
		}, config: func(c *sloconfig.Colocation) { c.MidUnallocatedPercent = new(int64(100)) }, cpu: 4000, memory: 20 * g},
		"capped at a part of memory": {config: func(c *sloconfig.Colocation) {
			c.MidUnallocatedPercent, c.MidMemoryThresholdPercent = new(int64(100)), new(int64(45))
		}, cpu: 8000, memory: 45 * g},
		"a cap over 100 % binds nothing": {config: func(c *sloconfig.Colocation) {
			c.MidUnallocatedPercent, c.MidMemoryThresholdPercent, c.MidCPUThresholdPercent = new(int64(100)), new(int64(400)), new(int64(101))
		}, cpu: 8000, memory: 70 * g},
		"static above 100 % is capped": {config: func(c *sloconfig.Colocation) {
			c.MidReclaimMode, c.MidStaticCPUReservedPercent, c.MidStaticMemoryReservedPercent = new("static"), new(int64(250)), new(int64(101))
		}, cpu: 10000, memory: 100 * g},
		"static above 100 %, as is the cap": {config: func(c *sloconfig.Colocation) {
			c.MidReclaimMode, c.MidStaticCPUReservedPercent, c.MidCPUThresholdPercent = new("static"), new(int64(250)), new(int64(200))
		}, cpu: 20000},
		"static, not set": {config: func(c *sloconfig.Colocation) { c.MidReclaimMode = new("static") }},
	} {
		s := sample(c.pods...)
		if c.sample != nil {
			c.sample(s)
		}
		st := shipped()
		if c.config != nil {
			c.config(&st.Colocation)
		}
		a := advised(s, st)
		if ends := redoMid(t, a.Reasons); a.Mid != nil && (ends["cpu"] != *a.Mid.MilliCPU || ends["memory"] != *a.Mid.MemoryBytes || len(ends) != 2) {
			t.Errorf("%s: by the reasons: %v: %q", name, ends, a.Reasons)
		}
		if a.Mid == nil || *a.Mid.MilliCPU != c.cpu || *a.Mid.MemoryBytes != c.memory {
			t.Errorf("%s: mid %d, %d; want %d, %d: %v", name, *a.Mid.MilliCPU, *a.Mid.MemoryBytes, c.cpu, c.memory, a.Reasons)
		}
	}
}

// If the capacity of one resource is unknown, nothing is advised for that resource.
func TestMidOfOneResource(t *testing.T) {
	for _, cpuKnown := range []bool{true, false} {
		s, st := sample(), shipped()
		st.Colocation.MidUnallocatedPercent = new(int64(100))
		if cpuKnown {
			s.Capacity.MemoryBytes = nil
		} else {
			s.Capacity.MilliCPU = nil
		}
		a := advised(s, st)
		if a.Mid == nil || (a.Mid.MilliCPU != nil) != cpuKnown || (a.Mid.MemoryBytes == nil) != cpuKnown {
			t.Errorf("CPU known: %t: %+v: %q", cpuKnown, a.Mid, a.Reasons)
		}
		if ends := redoMid(t, a.Reasons); len(ends) != 1 || cpuKnown && ends["cpu"] != 8000 || !cpuKnown && ends["memory"] != 70<<30 {
			t.Errorf("CPU known: %t: by the reasons %v", cpuKnown, ends)
		}
	}
}

// The request of a prod pod beyond its predicted peak is reclaimable from the end of the first day on; nothing is of mid pods and of LSE
// pods' CPUs.
func TestReclaimable(t *testing.T) {
	pods := []tick.Pod{
		onePod("prod", "Burstable", 4, 20, 1, 10), onePod("mid", "Burstable", 2, 2, 0.1, 1, label("koordinator.sh/priority-class", "koord-mid")),
		onePod("lse", "Guaranteed", 2, 6, 0.1, 1, label("koordinator.sh/qosClass", "LSE")),
	}
	st, after := trained(t, pods, 0.9)
	a := &tick.Advice{}
	st.Advise(at(sample(pods...), after), shipped(), a)
	if *a.Mid.MilliCPU != 0 || *a.Mid.MemoryBytes != 0 || !strings.Contains(strings.Join(a.Reasons, "\n"), "(0 pods, and 2 with too short a history)") {
		t.Errorf("before a day is over: %d, %d: %v", *a.Mid.MilliCPU, *a.Mid.MemoryBytes, a.Reasons)
	}

	st, after = trained(t, pods, 1.1)
	young := append(pods, onePod("young", "Burstable", 3, 3, 0, 0))
	a = &tick.Advice{}
	st.Advise(at(idleNode(young...), after), shipped(), a)
	if !strings.Contains(strings.Join(a.Reasons, "\n"), "(2 pods, and 1 with too short a history)") {
		t.Errorf("reasons %q", a.Reasons)
	}
	// A constant use lies in its bucket, whose upper end is at most 5 % higher, plus the margin of a tenth. The young pod's request counts
	// only in the common sum: so the sum of the single pods is smaller.
	near := func(what string, got *int64, want, slack float64) {
		t.Helper()
		if float64(*got) > want || float64(*got) < want-slack {
			t.Errorf("%s = %d; want %.0f and up to %.0f less: %v", what, *got, want, slack, a.Reasons)
		}
	}
	near("mid-cpu", a.Mid.MilliCPU, 4000-1000*1.1, 100)
	near("mid-memory", a.Mid.MemoryBytes, gi(20)-gi(10)*1.1+gi(6)-gi(1)*1.1, gi(11)*1.1*0.05+12<<20)
	// Without it the common sum is smaller, because the system's peak counts there.
	a = &tick.Advice{}
	st.Advise(at(idleNode(pods...), after), shipped(), a)
	near("mid-cpu", a.Mid.MilliCPU, 4000-(1100+100)*1.1, 100)
	near("mid-memory", a.Mid.MemoryBytes, gi(26)-gi(11+1)*1.1, gi(12)*1.1*0.05+24<<20)
	if ends := redoMid(t, a.Reasons); ends["cpu"] != *a.Mid.MilliCPU || ends["memory"] != *a.Mid.MemoryBytes || ends["cpu"] == 0 {
		t.Errorf("by the reasons: %v; want %d and %d: %q", ends, *a.Mid.MilliCPU, *a.Mid.MemoryBytes, a.Reasons)
	}

	// The common history of the prod pods and that of the system are required.
	for what, forget := range map[string]func(*history){"prod": func(h *history) { h.Prod = usage{} }, "system": func(h *history) { h.System = usage{} }} {
		text, _ := tick.Marshal(st)
		other := &State{}
		if err := tick.Unmarshal(text, other); err != nil {
			t.Fatal(err)
		}
		forget(&other.History)
		blank := &tick.Advice{}
		other.Advise(at(idleNode(pods...), after), shipped(), blank)
		if *blank.Mid.MilliCPU != 0 || *blank.Mid.MemoryBytes != 0 {
			t.Errorf("without the history of %s: %d, %d", what, *blank.Mid.MilliCPU, *blank.Mid.MemoryBytes)
		}
	}
	// A terminating pod's request is not reclaimable.
	leaving := []tick.Pod{pods[0]}
	leaving[0].Terminating = true
	text, _ := tick.Marshal(st)
	other, blank := &State{}, &tick.Advice{}
	if err := tick.Unmarshal(text, other); err != nil {
		t.Fatal(err)
	}
	other.Advise(at(idleNode(leaving...), after), shipped(), blank)
	if *blank.Mid.MilliCPU != 0 || *blank.Mid.MemoryBytes != 0 {
		t.Errorf("of a pod on its way out: %d, %d", *blank.Mid.MilliCPU, *blank.Mid.MemoryBytes)
	}
	// Nor is the room for the peaks.
	if free := st.History.reclaimable(start.Add(after), st.pods, amounts{1400, int64(gi(14))}).reclaimable; free[cpu] > 400-130 || free[memory] > int64(gi(14)-gi(12)*1.1) {
		t.Errorf("on a node without room: %v", free)
	}

	// It is never more than the unused part.
	busy := idleNode(pods...)
	busy.CPU.UsageMilliCPU = new(9900.0)
	s := shipped()
	s.Colocation.MetricAggregateDurationSeconds = new(int64(60))
	a = &tick.Advice{}
	st.Advise(at(busy, after+2*time.Minute), s, a)
	if got := *a.Mid.MilliCPU; got != 100 {
		t.Errorf("mid-cpu of a busy node = %d; want 100: %v", got, a.Reasons)
	}

	// The history of a pod that no longer exists is removed.
	st.Advise(at(sample(), after+3*time.Minute), shipped(), &tick.Advice{})
	if len(st.History.Pods) != 0 {
		t.Errorf("%d histories of pods that ended", len(st.History.Pods))
	}
}

// A peak is the value that is not exceeded in 95 of 100 minutes, or 98 for memory; older observations count less.
func TestPeak(t *testing.T) {
	h := &histogram{}
	for i := range 1000 {
		v := 1000.0
		if i%50 == 0 {
			v = 4000 // 2 of 100
		}
		h.count(bucketOf(v, 25))
	}
	near := func(what string, share, want float64) {
		t.Helper()
		got, ok := h.peak(share, 25)
		if !ok || got < want || got > want*1.06+2 {
			t.Errorf("%s: peak %.0f, %t; want %.0f and up to 5 %% more", what, got, ok, want)
		}
	}
	near("p95", 0.95, 1000)
	near("p99", 0.99, 4000)
	h.decay(math.Exp2(-5)) // five half-lives later
	for range 1000 {
		h.count(bucketOf(200, 25))
	}
	near("after a change", 0.95, 200)
	h.decay(1e-9)
	if _, ok := h.peak(0.95, 25); ok || len(h.Counts) != 0 {
		t.Errorf("forgotten, and yet %+v", h)
	}
}

// Every value belongs to a bucket, up to the last one.
func TestBuckets(t *testing.T) {
	for r := range resources {
		for _, v := range []float64{0, 1, 25, 26, 1000, 1e6, 1e9, 1e11} {
			b := bucketOf(v, firstBucket[r])
			if from, to := bucketStart(b, firstBucket[r]), bucketStart(b+1, firstBucket[r]); v < from*(1-1e-9) || v >= to*(1+1e-9) {
				t.Errorf("%g lies in bucket %d, from %g to %g", v, b, from, to)
			}
		}
		for _, v := range []float64{-1, math.NaN(), math.Inf(-1)} {
			if b := bucketOf(v, firstBucket[r]); b != 0 {
				t.Errorf("bucket of %g is %d", v, b)
			}
		}
		if b := bucketOf(math.Inf(1), firstBucket[r]); b != maxBucket {
			t.Errorf("bucket of infinity is %d", b)
		}
	}
}

// The history is bounded, whatever a state file and a stream contain.
func TestHistoryIsBounded(t *testing.T) {
	st := &State{}
	var pods []tick.Pod
	for i := range maxHistories + 100 {
		pods = append(pods, onePod(strings.Repeat("x", i), "Burstable", 1, 1, 0.1, 1))
	}
	for i := range 5 {
		st.Advise(at(sample(pods...), time.Duration(i)*time.Minute), shipped(), &tick.Advice{})
	}
	if n := len(st.History.Pods); n != maxHistories {
		t.Errorf("%d histories; want %d", n, maxHistories)
	}
	hostile := &State{}
	text := `{"known":"2030-01-01T00:00:00Z","uses":{"pods":{"uid-a":null,"uid-b":[{"sum":[1,2,3,4,5,6,7,8,9],"n":[1,1,1,1,1,1,1,1,1]},{"sum":[-9223372036854775808],"n":[9223372036854775807]}]},"at":[9000000000000000000,5],"node":[{"sum":[-7,9000000000000000000,3],"n":[1,-4]},{"sum":[9000000000000000000],"n":[9000000000000000000]}]},"history":{"pods":{"uid-a":{"from":"2025-01-01T00:00:00Z","used":[{"first":-5,"counts":[1,-7]},{"first":9999999,"counts":[3]}]}}}}`
	if err := tick.Unmarshal([]byte(text), hostile); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		a := &tick.Advice{}
		hostile.Advise(at(sample(onePod("a", "Burstable", 1, 1, 0.1, 1), onePod("b", "Burstable", 1, 1, 0.1, 1)), time.Duration(i)*time.Minute), shipped(), a)
		if *a.Reclaimed.MilliCPU < 0 || *a.Mid.MilliCPU < 0 {
			t.Errorf("tick %d: %v", i, a.Reasons)
		}
	}
	h := hostile.History.Pods["uid-a"]
	if !h.Counts[0].isValid() || !h.Counts[1].isValid() {
		t.Errorf("%+v is not sound", h.Counts)
	}
}

// A pod's history of null in a state file counts as none, also after a pause, which shifts the histories of all pods.
func TestNullHistoryAfterAPause(t *testing.T) {
	st := &State{}
	const text = `{"history":{"trained":"2026-03-01T11:00:00Z","pods":{"uid-a":null,"uid-gone":null}}}`
	if err := tick.Unmarshal([]byte(text), st); err != nil {
		t.Fatal(err)
	}
	st.Advise(at(sample(onePod("a", "Burstable", 1, 1, 1, 10)), 0), shipped(), &tick.Advice{})
	if h := st.History.Pods["uid-a"]; h == nil || !h.Since.Equal(start) || len(st.History.Pods) != 1 {
		t.Errorf("the histories are %+v", st.History.Pods)
	}
}
