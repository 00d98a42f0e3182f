package rule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// measure runs the load rule over one tick every 10 seconds, with the given loads.
func measureLoad(s Settings, loads ...float64) (m Measure) {
	w := cpuPressure.New()
	for i, l := range loads {
		m = w.Measure(&s, tickAt(10*i, sharedPod("a", l/2, l/2), sharedPod("idle", 0)))
	}
	return m
}

// samples counts the samples of all pools.
func samples(w *cpuWindow) (n int) {
	for _, l := range w.Pools {
		n += len(l.Window.Samples)
	}
	return n
}

// onlyLoad are the settings with which only the load is measured.
func onlyLoad() Settings {
	s := Defaults()
	s.SuppressionEnabled = false
	return s
}

func repeat(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }

func TestLoadBounds(t *testing.T) {
	s := onlyLoad()
	full := 10 * 3 // ten samples, one every third tick
	for _, tt := range []struct {
		name       string
		loads      []float64
		soft, hard bool
	}{
		{"under", repeat(43.9, full), false, false},
		{"at the lower bound", repeat(44, full), false, false},
		{"over the lower bound", repeat(44.5, full), true, false},
		{"at the upper bound", repeat(44*1.8, full), true, false},
		{"over the upper bound", repeat(80, full), true, true},
		{"seven samples are not enough", repeat(80, 7*3), false, false},
		{"eight of ten are, also if the window is not full", repeat(80, 7*3+1), true, true},
		{"seven of ten", slices.Concat(repeat(1, 9), repeat(80, 7*3)), false, false},
		{"eight of ten", slices.Concat(repeat(1, 6), repeat(80, 8*3)), true, true},
		{"long ago", slices.Concat(repeat(80, full), repeat(1, 3*3)), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := measureLoad(s, tt.loads...)
			if len(m.Findings) != 2 {
				t.Fatalf("Measure = %+v; want two findings", m)
			}
			soft, hard := m.Findings[0], m.Findings[1]
			if soft.Met != tt.soft || hard.Met != tt.hard || soft.Hard || !hard.Hard {
				t.Errorf("met soft %v, hard %v; want %v, %v", soft.Met, hard.Met, tt.soft, tt.hard)
			}
			if last := tt.loads[len(tt.loads)-1]; soft.Value != last || soft.Threshold != 44 || hard.Threshold != 44*1.8 {
				t.Errorf("value %v against %v and %v; want the present load %v", soft.Value, soft.Threshold, hard.Threshold, last)
			}
			if hard.Cooldown != 300*time.Second || hard.GracePeriodSeconds != nil {
				t.Errorf("cooldown %s, grace %v; want 5 minutes and the pod's own", hard.Cooldown, hard.GracePeriodSeconds)
			}
			if (soft.Taint != nil) != tt.soft || len(soft.Candidates) != 0 {
				t.Errorf("soft: taint %v, candidates %v", soft.Taint, ranked(soft))
			}
			if tt.hard && cmp.Diff([]string{"a"}, ranked(hard)) != "" {
				t.Errorf("candidates %v; want only a", ranked(hard))
			}
		})
	}
}

func TestLoadVictimByHistory(t *testing.T) {
	s := onlyLoad()
	s.LoadSyncPeriod = time.Second
	w := cpuPressure.New()
	var m Measure
	for i := range 10 {
		steady, spike := sharedPod("steady", 50), sharedPod("burst", 40)
		if i == 9 {
			spike = sharedPod("burst", 100)
		}
		m = w.Measure(&s, tickAt(i, spike, steady, sharedPod("twin-b", 50), sharedPod("twin-a", 50)))
	}
	if d := cmp.Diff([]string{"steady", "twin-a", "twin-b", "burst"}, ranked(m.Findings[1])); d != "" {
		t.Errorf("order of the candidates (-want +got):\n%s", d)
	}
	// A pod that disappears is no candidate, whatever its load was.
	m = w.Measure(&s, tickAt(10, sharedPod("twin-b", 150)))
	if d := cmp.Diff([]string{"twin-b"}, ranked(m.Findings[1])); d != "" {
		t.Errorf("after the others have ended (-want +got):\n%s", d)
	}
}

func TestLoadBoundsStayWithTheSample(t *testing.T) {
	s := onlyLoad()
	s.LoadSyncPeriod = time.Second
	w := cpuPressure.New()
	var m Measure
	for i := range 10 {
		x := tickAt(i, sharedPod("a", 50))
		if i > 1 { // the pool is larger when most samples are taken
			x.Advice.Pools[0].CPUs = "0-63"
		}
		m = w.Measure(&s, x)
	}
	if m.Findings[0].Met {
		t.Errorf("met by samples that were under the bound when they were taken: %+v", m.Findings[0])
	}
	if m.Findings[0].Threshold != 64 {
		t.Errorf("Threshold = %v; want the present bound 64", m.Findings[0].Threshold)
	}
}

func TestLoadMissing(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(*tick.Tick)
		measured bool
		err      string
	}{
		{"no advice", func(x *tick.Tick) { x.Advice = nil }, false, "no advice"},
		{"no load at all", func(x *tick.Tick) { x.Sample.Pods = []tick.Pod{sharedPod("a")} }, false, "no load1 of any of the 1 shared pods"},
		{"one without load", func(x *tick.Tick) { x.Sample.Pods = append(x.Sample.Pods, sharedPod("b")) }, true, "no load1 of 1 of 2"},
		{"no shared pods", func(x *tick.Tick) { x.Sample.Pods = nil }, true, ""},
		{"bad pool", func(x *tick.Tick) { x.Advice.Pools[0].CPUs = "a-b" }, false, "pool share"},
		{"empty pool", func(x *tick.Tick) { x.Advice.Pools[0].CPUs = "" }, false, "pool share has no CPUs"},
		{"small machine", func(x *tick.Tick) { x.Advice.Pools = nil }, true, ""},
		{"small machine without an offer", func(x *tick.Tick) { x.Advice.Pools, x.Advice.Reclaimed = nil, nil }, false, "neither a pool share nor reclaimed"},
		{"small machine without topology", func(x *tick.Tick) { x.Advice.Pools, x.Sample.Topology = nil, nil }, false, "no topology"},
		{"all CPUs are offered", func(x *tick.Tick) { x.Advice.Pools = nil; *x.Advice.Reclaimed.MilliCPU = 48000 }, false, "leaves none"},
		{"the pod's own load", func(x *tick.Tick) { x.Sample.Pods = []tick.Pod{{UID: "u", QoS: "shared", Load1: new(1.0)}} }, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := onlyLoad()
			x := tickAt(0, sharedPod("a", 1))
			tt.change(x)
			w := cpuPressure.New().(*cpuWindow)
			m := w.Measure(&s, x)
			if got := len(m.Findings) > 0; got != tt.measured || (samples(w) > 0) != tt.measured {
				t.Errorf("measured %v with %d samples; want %v", got, samples(w), tt.measured)
			}
			if got := fmt.Sprint(m.Errors); !strings.Contains(got, tt.err) || (tt.err == "") != (len(m.Errors) == 0) {
				t.Errorf("reported errors %s; want %q", got, tt.err)
			}
		})
	}
}

func TestLoadQuotaMode(t *testing.T) {
	s := onlyLoad()
	x := tickAt(0, sharedPod("a", 1))
	x.Advice.Pools = nil
	if m := cpuPressure.New().Measure(&s, x); m.Findings[0].Threshold != 44 {
		t.Errorf("Threshold = %v; want 48 CPUs less the 4 offered", m.Findings[0].Threshold)
	}
}

// Each pool is measured separately, with its own pods, samples and bounds; a dedicated pod's CPUs and the system's belong to no pool.
func TestLoadNamedPools(t *testing.T) {
	s := onlyLoad()
	s.LoadSyncPeriod = time.Second
	w := cpuPressure.New()
	named := func(name, pool string, load float64) tick.Pod {
		p := sharedPod(name, load)
		p.Annotations = map[string]string{annotationCPU: `{"cpuset_pool": "` + pool + `"}`}
		return p
	}
	var m Measure
	for i := range 10 {
		x := tickAt(i, sharedPod("a", 7.5), named("b", "batch", 8), named("c", "batch", 3), named("lost", "flink", 1))
		x.Advice.Pools = []tick.Pool{
			{Name: tick.PoolReserve, CPUs: "0-1"},
			{Name: tick.PoolReclaim, CPUs: "2-9"},
			{Name: tick.PoolDedicatedPrefix + "ns/pod", CPUs: "10-19"},
			{Name: "batch", CPUs: "20-25"},
			{Name: tick.PoolShare, CPUs: "26-29"},
		}
		m = w.Measure(&s, x)
	}
	type row struct {
		Part             string
		Value, Threshold float64
		Met, Hard        bool
		Candidates       []string
	}
	var got []row
	for _, f := range m.Findings {
		got = append(got, row{f.Part, f.Value, f.Threshold, f.Met, f.Hard, ranked(f)})
	}
	want := []row{
		{"batch", 11, 6, true, false, nil},
		{"batch", 11, 6 * 1.8, true, true, []string{"b", "c"}},
		{"share", 8.5, 4, true, false, nil},
		{"share", 8.5, 4 * 1.8, true, true, []string{"a", "lost"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("findings (-want +got):\n%s", d)
	}
	// A pool that is gone is dropped with its samples.
	x := tickAt(10, named("b", "batch", 8))
	m = w.Measure(&s, x)
	if len(m.Findings) != 2 || m.Findings[0].Part != tick.PoolShare || m.Findings[0].Value != 8 || w.(*cpuWindow).Pools["batch"] != nil {
		t.Errorf("without its pool: %+v; want the pod's load in share", m.Findings)
	}
}

// A pool that cannot be read does not affect the others.
func TestLoadOneBadPool(t *testing.T) {
	s := onlyLoad()
	x := tickAt(0, sharedPod("a", 1))
	x.Advice.Pools = append(x.Advice.Pools, tick.Pool{Name: "batch", CPUs: "x"})
	m := cpuPressure.New().Measure(&s, x)
	if len(m.Findings) != 2 || m.Findings[0].Part != tick.PoolShare || len(m.Errors) != 1 || !strings.Contains(m.Errors[0], "pool batch") {
		t.Errorf("Measure = %+v; want share measured, and batch an error", m)
	}
	x = tickAt(0, sharedPod("a", 80), sharedPod("b", 80))
	x.Advice.Pools = []tick.Pool{{Name: "batch", CPUs: "0-1"}}
	if m = cpuPressure.New().Measure(&s, x); len(m.Findings) != 2 || len(m.Errors) != 1 || !strings.Contains(m.Errors[0], "no pool share") {
		t.Errorf("Measure = %+v; want batch measured, and share an error", m)
	}
	for _, f := range m.Findings {
		if f.Part != "batch" || f.Value != 0 {
			t.Errorf("%s has a load of %v; want 0: pods of another pool do not run on its CPUs", f.About(), f.Value)
		}
	}
}

// A container on CPUs that kubelet assigned to it exclusively adds no load to a pool.
func TestLoadExclusiveCPUs(t *testing.T) {
	s := onlyLoad()
	for _, tt := range []struct {
		name, exclusive, cpus string
		request               float64
		want                  float64
	}{
		{"its own", "4-7", "4-5", 2000, 1},
		{"the pool's", "4-7", "0-3", 2000, 9},
		{"another number", "4-7", "4-5", 1500, 9},
		{"none given", "", "4-5", 2000, 9},
		{"unknown", "x", "4-5", 2000, 9},
		{"no cpuset", "4-7", "", 2000, 9},
	} {
		x := tickAt(0, sharedPod("a", 1), sharedPod("own", 8))
		x.Sample.Kubelet = &tick.Kubelet{CPUManagerPolicy: "static", ExclusiveCPUs: tt.exclusive}
		c := &x.Sample.Pods[1].Containers[0]
		c.CPUSetCPUs, c.Requests = tt.cpus, &tick.Resources{MilliCPU: new(tt.request)}
		if m := cpuPressure.New().Measure(&s, x); m.Findings[0].Value != tt.want {
			t.Errorf("%s: load %v; want %v", tt.name, m.Findings[0].Value, tt.want)
		}
	}
}

// A pod in a CPU partition of its own adds no load to a pool; in a partition that contains all pods it does.
func TestLoadInAPartition(t *testing.T) {
	s := onlyLoad()
	for _, tt := range []struct {
		name, partition string
		want            float64
	}{
		{"the pod's", "/own", 1}, {"above the pod", "/above", 1}, {"another's", "/other", 9}, {"a name that begins alike", "/abo", 9}, {"all pods'", "/all", 9},
	} {
		x := tickAt(0, sharedPod("a", 1), sharedPod("own", 8))
		x.Sample.Pods[0].Cgroup, x.Sample.Pods[1].Cgroup = "/all/a", map[string]string{"/own": "/own", "/above": "/above/own"}[tt.partition]
		if x.Sample.Pods[1].Cgroup == "" {
			x.Sample.Pods[1].Cgroup = "/all/above/own"
		}
		x.Sample.Partitions = []tick.Partition{{Cgroup: tt.partition, CPUs: "8-11"}}
		if m := cpuPressure.New().Measure(&s, x); m.Findings[0].Value != tt.want {
			t.Errorf("%s: load %v; want %v", tt.name, m.Findings[0].Value, tt.want)
		}
	}
}

func TestLoadHysteresis(t *testing.T) {
	s := onlyLoad()
	s.LoadHysteresis, s.LoadSyncPeriod, s.LoadMetricRingSize, s.LoadThresholdMetPercentage = 0.1, time.Second, 1, 1
	w := cpuPressure.New()
	for i, tt := range []struct {
		load      float64
		met       bool
		threshold float64
	}{{44, false, 44}, {45, true, 44}, {42, true, 44 * 0.9}, {39.6, false, 44 * 0.9}, {42, false, 44}} {
		f := w.Measure(&s, tickAt(i, sharedPod("a", tt.load))).Findings[0]
		if f.Met != tt.met || f.Threshold != tt.threshold {
			t.Errorf("load %v: met %t against %v; want %t against %v", tt.load, f.Met, f.Threshold, tt.met, tt.threshold)
		}
	}
}

func TestLoadOff(t *testing.T) {
	s := onlyLoad()
	w := cpuPressure.New()
	w.Measure(&s, tickAt(0, sharedPod("a", 80)))
	s.LoadEnabled = false
	if m := w.Measure(&s, tickAt(30, sharedPod("a", 80))); len(m.Findings) != 0 || samples(w.(*cpuWindow)) != 0 {
		t.Errorf("switched off: %+v, %d samples; want nothing measured and the samples dropped", m, samples(w.(*cpuWindow)))
	}
}

func TestTimeStepsBack(t *testing.T) {
	s := onlyLoad()
	w := cpuPressure.New()
	for i := range 8 {
		w.Measure(&s, tickAt(10000+30*i, sharedPod("a", 80)))
	}
	m := w.Measure(&s, tickAt(0, sharedPod("a", 80)))
	if !m.Findings[1].Met {
		t.Errorf("the window was lost when the clock was set back: %+v", m.Findings[1])
	}
	if m.Findings[1].Since != "2026-11-21T12:00:00Z" {
		t.Errorf("Since = %s; want the present, never the future", m.Findings[1].Since)
	}
	before := len(w.(*cpuWindow).Pools[tick.PoolShare].Window.Samples)
	w.Measure(&s, tickAt(29, sharedPod("a", 80)))
	if n := len(w.(*cpuWindow).Pools[tick.PoolShare].Window.Samples); n != before {
		t.Errorf("a sample was taken before the period was over")
	}
	w.Measure(&s, tickAt(30, sharedPod("a", 80)))
	if n := len(w.(*cpuWindow).Pools[tick.PoolShare].Window.Samples); n != before+1 {
		t.Errorf("%d samples after a period; want %d: is it blocked until the old time?", n, before+1)
	}
}
