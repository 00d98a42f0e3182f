package katalyst

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

func enhancedBy(p tick.Pod, annotation, text string) tick.Pod {
	p.Annotations = map[string]string{annotation: text}
	return p
}

func bound(name string, milliCPU float64) tick.Pod {
	return enhancedBy(dedicated(name, milliCPU), memoryEnhancement, `{"numa_binding":"true"}`)
}

func alone(name string, milliCPU float64) tick.Pod {
	return enhancedBy(dedicated(name, milliCPU), memoryEnhancement, `{"numa_binding":"true","numa_exclusive":"true"}`)
}

func pooled(name, pool string, cores float64) tick.Pod {
	return enhancedBy(shared(name, cores), cpuEnhancement, fmt.Sprintf(`{"cpuset_pool":%q}`, pool))
}

// listsByCgroup returns an advice's cgroups by path, without their common prefix.
func listsByCgroup(list []tick.Cgroup) map[string]string {
	m := map[string]string{}
	for _, c := range list {
		text := c.CPUSetCPUs
		if c.CPUSetMems != "" {
			text += " mems " + c.CPUSetMems
		}
		m[strings.TrimPrefix(c.Cgroup, "/kubepods/")] = text
	}
	return m
}

// restarted returns a decider that continues from the saved state of another one.
func restarted(t interface {
	Helper()
	Fatal(...any)
}, d *Decider,
) *Decider {
	t.Helper()
	data, err := tick.Marshal(d.State())
	if err != nil {
		t.Fatal(err)
	}
	next := New(d.Settings)
	if err := tick.Unmarshal(data, next.State()); err != nil {
		t.Fatal(err)
	}
	return next
}

func wantReason(t *testing.T, a *tick.Advice, text string) {
	t.Helper()
	if !strings.Contains(strings.Join(a.Reasons, "\n"), text) {
		t.Errorf("reasons %q; want %q among them", a.Reasons, text)
	}
}

func wantNoReason(t *testing.T, a *tick.Advice, text string) {
	t.Helper()
	if strings.Contains(strings.Join(a.Reasons, "\n"), text) {
		t.Errorf("reasons %q; want no %q", a.Reasons, text)
	}
}

func TestNUMABinding(t *testing.T) {
	for _, c := range []struct {
		name   string
		pods   []tick.Pod
		pools  map[string]string // of dedicated pods
		db     string            // what the container of db gets
		reason string
	}{
		{"within one node", []tick.Pod{bound("db", 6000)}, map[string]string{"db": "0-2,24-26"}, "0-2,24-26 mems 0", ""},
		{"a whole node's CPUs", []tick.Pod{bound("db", 24000)}, map[string]string{"db": "0-11,24-35"}, "0-11,24-35 mems 0", ""},
		{
			"as few nodes as needed",
			[]tick.Pod{bound("db", 26000)},
			map[string]string{"db": "0-12,24-36"},
			"0-12,24-36 mems 0-1",
			"dedicated pod default/db is bound to NUMA nodes 0-1: no single one has 26 CPUs free",
		},
		{"without numa_binding its memory is anywhere", []tick.Pod{dedicated("db", 6000)}, map[string]string{"db": "0-2,24-26"}, "0-2,24-26", ""},
		{"numa_binding false", []tick.Pod{enhancedBy(dedicated("db", 6000), memoryEnhancement, `{"numa_binding":"false"}`)}, map[string]string{"db": "0-2,24-26"}, "0-2,24-26", ""},
		{"exclusive: the whole node", []tick.Pod{alone("db", 2000)}, map[string]string{"db": "0-11,24-35"}, "0-11,24-35 mems 0", ""},
		{"exclusive comes first", []tick.Pod{bound("aa", 2000), alone("db", 2000)}, map[string]string{"aa": "12,36", "db": "0-11,24-35"}, "0-11,24-35 mems 0", ""},
		{
			"two exclusive ones do not fit two nodes",
			[]tick.Pod{alone("aa", 2000), alone("db", 2000)},
			map[string]string{"aa": "0-11,24-35"},
			"21-23,45-47",
			"dedicated pod default/db requests 2 CPUs in NUMA nodes of its own, 18 are available: it stays in the shared pool",
		},
		{
			"exclusive for more than are available",
			[]tick.Pod{alone("db", 30000)},
			map[string]string{},
			"4-11,15-23,28-35,39-47",
			"dedicated pod default/db requests 30 CPUs in NUMA nodes of its own, 42 are available",
		},
		{
			"broken JSON",
			[]tick.Pod{enhancedBy(dedicated("db", 2000), memoryEnhancement, `{"numa_binding":`)},
			map[string]string{"db": "0,24"},
			"0,24",
			"pod default/db: annotation katalyst.kubewharf.io/memory_enhancement: want a JSON object",
		},
		{
			"no string",
			[]tick.Pod{enhancedBy(dedicated("db", 2000), memoryEnhancement, `{"numa_binding":true}`)},
			map[string]string{"db": "0,24"},
			"0,24",
			`numa_binding is neither "true" nor "false"`,
		},
		{
			"exclusive alone",
			[]tick.Pod{enhancedBy(dedicated("db", 2000), memoryEnhancement, `{"numa_exclusive":"true"}`)},
			map[string]string{"db": "0,24"},
			"0,24",
			"numa_exclusive has no effect without numa_binding",
		},
		{"on a shared pod it is nothing", []tick.Pod{enhancedBy(shared("db", 1), memoryEnhancement, `{"numa_binding":"true","numa_exclusive":"true"}`)}, map[string]string{}, "11,22-23,35,46-47", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := New(Defaults()).Decide(at(0, c.pods...))
			got := map[string]string{}
			for _, p := range a.Pools {
				if pod, ok := strings.CutPrefix(p.Name, "dedicated/default/"); ok {
					got[pod] = p.CPUs
				}
			}
			if diff := cmp.Diff(c.pools, got); diff != "" {
				t.Errorf("dedicated pools (-want +got):\n%s", diff)
			}
			if got := listsByCgroup(a.Cgroups)["db"]; got != c.db {
				t.Errorf("db gets %q; want %q", got, c.db)
			}
			if c.reason != "" {
				wantReason(t, a, c.reason)
			}
		})
	}
}

// A dedicated pod keeps its CPUs whatever else changes, also across a restart, and is moved only if it cannot keep them.
func TestDedicatedPodKeepsItsCPUs(t *testing.T) {
	d := New(Defaults())
	d.Decide(at(0, bound("db", 4000)))
	steps := []struct {
		what string
		pods []tick.Pod
		want map[string]string
	}{
		{"another comes", []tick.Pod{bound("aa", 4000), bound("db", 4000)}, map[string]string{"aa": "2-3,26-27 mems 0", "db": "0-1,24-25 mems 0"}},
		{"the services are busy", []tick.Pod{bound("aa", 4000), bound("db", 4000), shared("s", 60)}, map[string]string{"aa": "2-3,26-27 mems 0", "db": "0-1,24-25 mems 0"}},
		{"one ends, an exclusive one starts", []tick.Pod{bound("aa", 4000), alone("zz", 4000)}, map[string]string{"aa": "2-3,26-27 mems 0", "zz": "12-23,36-47 mems 1"}},
		{"it requests more", []tick.Pod{bound("aa", 6000), alone("zz", 4000)}, map[string]string{"aa": "0-2,24-26 mems 0", "zz": "12-23,36-47 mems 1"}},
		{"it is no longer bound", []tick.Pod{dedicated("aa", 6000), alone("zz", 4000)}, map[string]string{"aa": "0-2,24-26 mems 0-1", "zz": "12-23,36-47 mems 1"}},
		{"and still not", []tick.Pod{dedicated("aa", 6000), alone("zz", 4000)}, map[string]string{"aa": "0-2,24-26 mems 0-1", "zz": "12-23,36-47 mems 1"}},
	}
	for i, step := range steps {
		d = restarted(t, d)
		got := listsByCgroup(d.Decide(at(float64(i+1), step.pods...)).Cgroups)
		delete(got, "s")
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
	tk := at(10, bound("aa", 6000))
	tk.Sample.Topology.CPUs = "1-47" // CPU 0 went offline
	tk.Sample.Topology.NUMANodes[0].CPUs = "1-11,24-35"
	a := d.Decide(tk)
	wantReason(t, a, `dedicated pod default/aa moves from CPUs "0-2,24-26" to `)
}

// Memory of a node that one pod uses alone is not available to others, and all of it counts as the pod's.
func TestExclusiveMemory(t *testing.T) {
	tk := at(0, alone("db", 2000))
	for i := range tk.Sample.Topology.NUMANodes {
		tk.Sample.Topology.NUMANodes[i].MemoryBytes = new(97962212.0 * 1024)
		tk.Sample.NUMANodes = append(tk.Sample.NUMANodes, tick.NUMASample{ID: i, Memory: &tick.NUMAMemory{FreeBytes: new(90e9)}})
	}
	a := New(Defaults()).Decide(tk)
	want := int64(97962212*1024 - 5<<30)
	if got := *a.Reclaimed.MemoryBytes; got != want {
		t.Errorf("reclaimed memory = %d; want the other node's less the reserve, %d", got, want)
	}
	for _, numa := range a.Reclaimed.NUMANodes {
		if of := map[int]int64{0: 0, 1: want}; *numa.MemoryBytes != of[numa.ID] {
			t.Errorf("node %d: %d bytes; want %d", numa.ID, *numa.MemoryBytes, of[numa.ID])
		}
	}
	if cpu := *a.Reclaimed.NUMANodes[0].MilliCPU; cpu != 0 {
		t.Errorf("node 0: %dm are reclaimed; want none", cpu)
	}
}

func TestNamedPools(t *testing.T) {
	for _, c := range []struct {
		name     string
		pods     []tick.Pod
		sizes    map[string]int
		milliCPU int64
		reasons  []string
	}{
		{
			"the reserve is divided",
			[]tick.Pod{shared("a", 1), pooled("b", "batch", 3)},
			map[string]int{"share": 4, "batch": 6, "reclaim": 38},
			38000,
			[]string{"share: reserve 2000m of 4000m (default) + need 1000m of 1 container = 3000m -> 4 CPUs", "batch: reserve 2000m of 4000m (default) + need 3000m of 1 container = 5000m -> 6 CPUs"},
		},
		{
			"what does not divide is the common one's",
			[]tick.Pod{pooled("b", "batch", 1), pooled("f", "flink", 1)},
			map[string]int{"share": 2, "batch": 4, "flink": 4, "reclaim": 38},
			38000,
			[]string{"share: reserve 1334m of 4000m", "flink: reserve 1333m"},
		},
		{
			"over the limit",
			[]tick.Pod{shared("a", 30), pooled("b", "batch", 60)},
			map[string]int{"share": 18, "batch": 26, "reclaim": 4},
			4000,
			[]string{"share: ", "; 32 CPUs are needed, the shared pools divide 44: the reclaimed pool keeps its floor of 4 CPUs (default)"},
		},
		{"the common one by name", []tick.Pod{pooled("b", "share", 1)}, map[string]int{"share": 6, "reclaim": 42}, 42000, nil},
		{
			"reserved",
			[]tick.Pod{pooled("b", "reclaim", 1)},
			map[string]int{"share": 6, "reclaim": 42},
			42000,
			[]string{`pod default/b: annotation katalyst.kubewharf.io/cpu_enhancement: cpuset_pool "reclaim" is a reserved name: the pod stays in pool share`},
		},
		{"no word", []tick.Pod{pooled("b", "dedicated/default/x", 1)}, map[string]int{"share": 6, "reclaim": 42}, 42000, []string{`"dedicated/default/x" is not a word`}},
		{"no text", []tick.Pod{enhancedBy(shared("b", 1), cpuEnhancement, `{"cpuset_pool":["x"]}`)}, map[string]int{"share": 6, "reclaim": 42}, 42000, []string{"is not a string"}},
		{"of dedicated pods it is nothing", []tick.Pod{enhancedBy(dedicated("b", 2000), cpuEnhancement, `{"cpuset_pool":"batch"}`)}, map[string]int{"share": 4, "dedicated/default/b": 2, "reclaim": 42}, 42000, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := New(Defaults()).Decide(at(0, c.pods...))
			got := map[string]int{}
			for _, p := range a.Pools {
				set := mustParse(t, p.CPUs)
				got[p.Name] = set.Size()
				checkWhole(t, p.Name, set)
			}
			if diff := cmp.Diff(c.sizes, got); diff != "" {
				t.Errorf("sizes (-want +got):\n%s", diff)
			}
			if *a.Reclaimed.MilliCPU != c.milliCPU {
				t.Errorf("reclaimed %d; want %d", *a.Reclaimed.MilliCPU, c.milliCPU)
			}
			for _, text := range c.reasons {
				wantReason(t, a, text)
			}
		})
	}
}

// A named pool shrinks like the common one; without pods it is removed after one hold-down. Need takes precedence over a hold-down.
func TestNamedPoolsInTime(t *testing.T) {
	d := New(Defaults())
	for _, step := range []struct {
		seconds      float64
		share, batch float64 // load; negative means no such pod
		want         string
		reason       string
	}{
		{0, 1, 9, "share 4, batch 12, reclaim 32", ""},
		{1, 1, 1, "share 4, batch 12, reclaim 32", "batch: reserve 2000m of 4000m (default) + need 1000m of 1 container = 3000m -> 12 CPUs in whole cores; hold-down: 12 CPUs for 29s more"},
		{30, 1, 1, "share 4, batch 10, reclaim 34", "4 CPUs are needed: it shrinks by 2 per step"},
		{31, 34, 1, "share 36, batch 8, reclaim 4", "other pools need the rest"},
		{32, 1, -1, "share 36, batch 8, reclaim 4", "batch: it has no pods any more; hold-down: 8 CPUs for 29s more"},
		{40, 1, 1, "share 36, batch 8, reclaim 4", ""},
		{90, 1, -1, "share 34, batch 0, reclaim 14", ""},
	} {
		var pods []tick.Pod
		if step.share >= 0 {
			pods = append(pods, shared("a", step.share))
		}
		if step.batch >= 0 {
			pods = append(pods, pooled("b", "batch", step.batch))
		}
		a := d.Decide(at(step.seconds, pods...))
		pools := poolsOf(a)
		got := fmt.Sprintf("share %d, batch %d, reclaim %d", mustParse(t, pools["share"]).Size(), mustParse(t, pools["batch"]).Size(), mustParse(t, pools["reclaim"]).Size())
		if got != step.want {
			t.Errorf("at %vs: %s; want %s: %q", step.seconds, got, step.want, a.Reasons)
		}
		wantReason(t, a, step.reason)
	}
}

// A pool that grows or shrinks does not move the others' CPUs.
func TestNamedPoolsStay(t *testing.T) {
	d := New(Defaults())
	before := poolsOf(d.Decide(at(0, shared("a", 5), pooled("b", "batch", 5), pooled("f", "flink", 5))))
	after := poolsOf(d.Decide(at(1, shared("a", 5), pooled("b", "batch", 11), pooled("f", "flink", 5))))
	if before["share"] != after["share"] || before["flink"] != after["flink"] || !mustParse(t, before["batch"]).IsSubsetOf(mustParse(t, after["batch"])) {
		t.Errorf("pools went from %v to %v; want batch alone to grow", before, after)
	}
}

func TestPoolsThatNeedLessThanACoreAreMerged(t *testing.T) {
	var pods []tick.Pod
	for i := range 30 {
		pods = append(pods, pooled(fmt.Sprintf("p%02d", i), fmt.Sprintf("pool-%02d", i), 0.1))
	}
	a := New(Defaults()).Decide(at(0, pods...))
	if names := slices.Sorted(maps.Keys(poolsOf(a))); !slices.Equal(names, []string{"reclaim", "share"}) {
		t.Errorf("pools %v", names)
	}
	wantReason(t, a, "pools pool-00, pool-01, pool-02, pool-03, pool-04 and 25 more are merged with share: each needs less than a core")
	if got := listsByCgroup(a.Cgroups)["p07"]; got != poolsOf(a)["share"] {
		t.Errorf("p07 is on %q", got)
	}
}

func TestEachPoolGetsItsProportion(t *testing.T) {
	for _, c := range []struct {
		sizes []float64
		total int
		want  []int
	}{
		{[]float64{10, 20, 30}, 44, []int{7, 15, 22}},
		{[]float64{1, 1, 100}, 10, []int{1, 1, 8}},
		{[]float64{5, 5}, 9, []int{5, 4}},
		{[]float64{1, 2}, 30, []int{10, 20}},
		{[]float64{0, 3}, 7, []int{0, 7}},
		{[]float64{1, 1, 1}, 2, []int{1, 1, 1}},
	} {
		got := apportion(c.sizes, c.total)
		sum := 0
		for _, n := range got {
			sum += n
		}
		if len(c.sizes) == 2 && c.sizes[0] == c.sizes[1] {
			slices.Sort(got)
			slices.Reverse(got)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("apportion(%v, %d) = %v; want %v", c.sizes, c.total, got, c.want)
		}
	}
}

func TestPoolNameError(t *testing.T) {
	for name, refused := range map[string]bool{
		"batch": false, "flink-2.1_x": false, "reclaimer": false, "x": false, strings.Repeat("a", 63): false,
		"reclaim": true, "reserve": true, "dedicated": true, "isolation-1": true, "isolation1": true, "systemd": true, "interrupt": true, "fallback": true, "reserve-x": true,
		"batch-NUMA0": true, "a b": true, "dedicated/x": true, "-a": true, "a\n": true, "ü": true, strings.Repeat("a", 64): true, "..": true,
	} {
		if got := poolNameError(name) != ""; got != refused {
			t.Errorf("refused %q = %v; want %v", name, got, refused)
		}
	}
}
