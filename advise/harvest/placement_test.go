package harvest

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// placeReason finds the reason about where batch runs.
func placeReason(t *testing.T, a *tick.Advice) string {
	t.Helper()
	i := slices.IndexFunc(a.Reasons, func(r string) bool { return strings.HasPrefix(r, "batch runs on ") })
	if i < 0 {
		t.Fatalf("reasons %q", a.Reasons)
	}
	return a.Reasons[i]
}

// Cores that the services need no longer are batch's again after half a minute, and the reason states the remaining time.
func TestBatchWaitsForCores(t *testing.T) {
	d := New(Defaults())
	for _, step := range []struct {
		second   int
		services float64
		want     string
	}{
		{0, 3500, "batch runs on 10 of 16 CPUs: services use 3500m, and 2 CPUs stay idle for their bursts (99 % of 0 growths within two ticks were up to 0m)"},
		{1, 7500, "batch runs on 4 of 16 CPUs: services use 7500m, and 4 CPUs stay idle for their bursts (99 % of 1 growths within two ticks were up to 4000m)"},
		{2, 3500, "batch runs on 4 of 16 CPUs: services use 7500m, and 4 CPUs stay idle for their bursts (99 % of 2 growths within two ticks were up to 4000m)"},
		{3, 3500, "batch runs on 4 of 16 CPUs: services use 3500m, and 4 CPUs stay idle for their bursts (99 % of 3 growths within two ticks were up to 4000m)" +
			"; 8 CPUs without batch are enough, batch gets the others in 29s"},
		{31, 3500, "batch runs on 4 of 16 CPUs: services use 3500m, and 4 CPUs stay idle for their bursts (99 % of 4 growths within two ticks were up to 4000m)" +
			"; 8 CPUs without batch are enough, batch gets the others in 1s"},
		{32, 3500, "batch runs on 8 of 16 CPUs: services use 3500m, and 4 CPUs stay idle for their bursts (99 % of 5 growths within two ticks were up to 4000m)"},
		{33, 7500, "batch runs on 4 of 16 CPUs: services use 7500m, and 4 CPUs stay idle for their bursts (99 % of 6 growths within two ticks were up to 4000m)"},
		{20, 3500, "batch runs on 4 of 16 CPUs: services use 3500m, and 4 CPUs stay idle for their bursts (99 % of 6 growths within two ticks were up to 4000m)" +
			"; 8 CPUs without batch are enough, batch gets the others in 30s"}, // the clock was set back
	} {
		a := d.Decide(at(time.Duration(step.second)*time.Second, machine(step.services)))
		if diff := cmp.Diff(step.want, placeReason(t, a)); diff != "" {
			t.Errorf("after %d s (-want +got):\n%s", step.second, diff)
		}
	}
}

// Batch waits as long if the services had all that batch can lose.
func TestBatchWaitsAtItsFloor(t *testing.T) {
	d := New(Defaults())
	for _, step := range []struct {
		second   int
		services float64
		want     string
	}{{0, 14000, "batch runs on 2 of 16"}, {1, 3500, "batch runs on 2 of 16"}, {2, 3500, "batch runs on 2 of 16"}, {31, 3500, "batch runs on 10 of 16"}} {
		if got := placeReason(t, d.Decide(at(time.Duration(step.second)*time.Second, machine(step.services)))); !strings.HasPrefix(got, step.want) {
			t.Errorf("after %d s: %s; want %s", step.second, got, step.want)
		}
	}
}

// At most half of the machine is kept idle, and batch keeps its floor.
func TestBatchKeepsItsFloor(t *testing.T) {
	const floor = "; batch keeps its floor of 2 CPUs"
	for _, tt := range []struct {
		uses  []float64
		want  string
		floor bool
	}{
		{[]float64{12000}, "batch runs on 2 of 16 CPUs: services use 12000m, and 2 CPUs stay idle", false},
		{[]float64{12001}, "batch runs on 2 of 16 CPUs: services use 12001m, and 2 CPUs stay idle", true},
		{[]float64{0, 4000}, "batch runs on 8 of 16 CPUs: services use 4000m, and 4 CPUs stay idle", false},
		{[]float64{0, 13000}, "batch runs on 2 of 16 CPUs: services use 13000m, and 8 CPUs stay idle", true},
	} {
		d := New(Defaults())
		var a *tick.Advice
		for i, use := range tt.uses {
			a = d.Decide(at(time.Duration(i)*time.Second, machine(use)))
		}
		if got := placeReason(t, a); !strings.HasPrefix(got, tt.want) || strings.HasSuffix(got, floor) != tt.floor {
			t.Errorf("services use %v: %q; want %q", tt.uses, got, tt.want)
		}
	}
}

// The weight of a growth within two ticks halves in ten minutes.
func TestBurstsAge(t *testing.T) {
	p := placement{}
	for _, step := range []struct{ second, use float64 }{{0, 0}, {1, 800}, {601, 0}} {
		p.observe(start.Add(time.Duration(step.second)*time.Second), time.Second, step.use, 1000)
	}
	if got := p.Bursts[160]; got < 0.499 || got > 0.501 {
		t.Errorf("a growth of ten minutes ago counts %v", got)
	}
}

// Idle cores require eight CPUs, two cores, and more than one of them for batch and services.
func TestIdleCoresNeedEnoughCPUs(t *testing.T) {
	for _, tt := range []struct {
		name     string
		topology tick.Topology
		minCPUs  int
		reserved string
		want     bool
	}{
		{"8 CPUs", tick.Topology{CPUs: "0-7", Cores: []string{"0-1", "2-3", "4-5", "6-7"}}, 8, "", true},
		{"7 CPUs", tick.Topology{CPUs: "0-6"}, 8, "", false},
		{"2 cores", tick.Topology{CPUs: "0-3", Cores: []string{"0-1", "2-3"}}, 1, "", true},
		{"a core of two is left", tick.Topology{CPUs: "0-3", Cores: []string{"0-1", "2-3"}}, 1, "0-1", false},
		{"one core", tick.Topology{CPUs: "0-3", Cores: []string{"0-3"}}, 1, "", false},
	} {
		s, settings := machine(0), Defaults()
		s.Topology, settings.MinCPUs, settings.ReservedCPUs = &tt.topology, tt.minCPUs, tt.reserved
		a := New(settings).Decide(at(0, s))
		if got := len(a.Pools) > 0; got != tt.want {
			t.Errorf("%s: pools %+v, %q", tt.name, a.Pools, a.Reasons)
		}
	}
}

// The offer is divided over the NUMA nodes in proportion to batch's CPUs.
func TestOfferByNUMANode(t *testing.T) {
	a := New(withoutLimits()).Decide(at(0, machine(3500)))
	batch := cpusOf(t, a.Cgroups)
	sum := int64(0)
	for i, list := range []string{"0-3,8-11", "4-7,12-15"} {
		node, _ := cpus.Parse(list)
		got, want := *a.Reclaimed.NUMANodes[i].MilliCPU, *a.Reclaimed.MilliCPU*int64(batch.Intersection(node).Size())/int64(batch.Size())
		if got < want || got > want+1 {
			t.Errorf("node %d: %dm of %dm, want %dm", i, got, *a.Reclaimed.MilliCPU, want)
		}
		sum += got
	}
	if sum != *a.Reclaimed.MilliCPU || *a.Reclaimed.NUMANodes[0].MilliCPU == *a.Reclaimed.NUMANodes[1].MilliCPU {
		t.Errorf("%+v of %d, batch is on %s", a.Reclaimed.NUMANodes, *a.Reclaimed.MilliCPU, batch)
	}
}

// Neither the root cgroup, nor an unnamed one, nor one that does not exist is confined.
func TestOnlyBatchsCgroupsAreConfined(t *testing.T) {
	s := machine(3500)
	for _, p := range []struct{ cgroup, qos, missing, phase string }{
		{"/", tick.QoSReclaimed, "", ""},
		{"x", tick.QoSReclaimed, "", ""},
		{"", tick.QoSReclaimed, "", ""},
		{"/a", tick.QoSShared, "", ""},
		{"/b", tick.QoSReclaimed, tick.MissingCgroup, ""},
		{"/c", tick.QoSReclaimed, "", "Failed"},
	} {
		s.Pods = append(s.Pods, tick.Pod{UID: p.cgroup, Cgroup: p.cgroup, QoS: p.qos, Missing: p.missing, Phase: p.phase, UsageMilliCPU: new(0.0)})
	}
	cpusOf(t, New(withoutLimits()).Decide(at(0, s)).Cgroups)
}

// The shape is rebuilt if the machine, the reserved or the exclusive CPUs have changed, and otherwise not.
func TestShapeIsOfTheMachine(t *testing.T) {
	n := &node{}
	for _, step := range []struct {
		cpus, reserved, exclusive, want string
	}{
		{"0-7", "", "", "0-7"}, {"0-7", "0-1", "", "2-7"}, {"0-7", "0-1", "1-2", "3-7"}, {"0-7", "0-1", "2", "3-7"}, {"0-9", "0-1", "2", "3-9"}, {"0-9", "", "", "0-9"},
	} {
		see := func() *shape {
			if err := n.updateShape(&tick.Topology{CPUs: step.cpus}, step.reserved, step.exclusive); err != nil {
				t.Fatal(err)
			}
			return n.shape
		}
		before := n.shape
		if sh := see(); sh == before || sh.availList != step.want {
			t.Errorf("%+v: batch may have %s", step, sh.availList)
		}
		if n.shape != see() {
			t.Errorf("%+v: worked out twice", step)
		}
	}
	if d := n.shape.divide("", 2, 8, nil); n.shape.divide("", 4, 8, nil) == nil || d != n.shape.divide("", 2, 8, nil) {
		t.Error("a division is worked out again after another one")
	}
	for want := range maxDivisions + 10 {
		if d := n.shape.divide("", want, 8, nil); d != n.shape.divide("", want, 8, nil) || len(n.shape.divisions) > maxDivisions {
			t.Fatalf("division %d is worked out twice, or %d are remembered", want, len(n.shape.divisions))
		}
	}
}

// Kubelet's cgroup of the BestEffort pods is pinned to batch's CPUs while it contains only batch, so that a new pod is confined from its
// start; it has all CPUs again as soon as it contains a service.
func TestBestEffortTierIsConfined(t *testing.T) {
	const tier = "/kubepods/besteffort"
	s := machine(3500)
	s.Pods[1].Cgroup = tier + "/podspark"
	d := New(withoutLimits())
	list := func(a *tick.Advice) (now, fallback string) {
		for i, cgroups := range [][]tick.Cgroup{a.Cgroups, a.Fallback} {
			at := slices.IndexFunc(cgroups, func(c tick.Cgroup) bool { return c.Cgroup == tier })
			if at < 0 {
				t.Fatalf("the tier is not in %+v: %q", cgroups, a.Reasons)
			}
			*[]*string{&now, &fallback}[i] = cgroups[at].CPUSetCPUs
		}
		return now, fallback
	}
	a := d.Decide(at(0, s))
	now, fallback := list(a)
	pool := a.Pools[slices.IndexFunc(a.Pools, func(p tick.Pool) bool { return p.Name == tick.PoolReclaim })]
	narrow, _ := cpus.Parse(now)
	if floor, _ := cpus.Parse(fallback); now != pool.CPUs || floor.IsEmpty() || !floor.IsSubsetOf(narrow) {
		t.Errorf("the tier has %s and for the fallback %s; the pool is %s", now, fallback, pool.CPUs)
	}
	s.Pods = append(s.Pods, podOf("plain", tick.QoSShared, 100))
	s.Pods[2].Cgroup = tier + "/podplain"
	a = d.Decide(at(time.Second, s))
	if now, fallback = list(a); now != "0-15" || fallback != "0-15" {
		t.Errorf("a service is in the tier: it has %s and %s", now, fallback)
	}
	if !strings.Contains(strings.Join(a.Reasons, "\n"), `pod "shop/plain" in it is not of class reclaimed`) {
		t.Errorf("reasons %q", a.Reasons)
	}
}

// A batch pod that becomes a service gets all CPUs again, also after a restart; nothing is advised for it after a minute.
func TestFormerBatchHasAllCPUs(t *testing.T) {
	d := New(withoutLimits())
	listOf := func(list []tick.Cgroup) string {
		for _, c := range list {
			if c.Cgroup == "/spark" {
				return c.CPUSetCPUs
			}
		}
		return ""
	}
	for second := range 60 {
		d.Decide(at(time.Duration(second)*time.Second, machine(4000)))
	}
	d = restarted(t, d)
	former := machine(4000)
	former.Pods[1].QoS = tick.QoSShared
	for _, second := range []int{60, 119, 120} {
		want := map[int]string{60: "0-15", 119: "0-15"}[second]
		a := d.Decide(at(time.Duration(second)*time.Second, former))
		if list, fallback := listOf(a.Cgroups), listOf(a.Fallback); list != want || fallback != want {
			t.Errorf("second %d: CPUs %q, in the fallback %q; want %q", second, list, fallback, want)
		}
	}
}

// A difference across a pause, as with a state file of days ago, is no growth within two ticks, unless ticks are so rare.
func TestPauseIsNoBurst(t *testing.T) {
	for _, tt := range []struct {
		pause, interval time.Duration
		want            float64
	}{{2 * time.Second, time.Second, 0.5}, {72 * time.Hour, time.Second, 0}, {10 * time.Minute, 5 * time.Minute, 0.5}} {
		p := placement{}
		p.observe(start, tt.interval, 100, 1000)
		p.observe(start.Add(tt.pause), tt.interval, 600, 1000)
		if got, _ := p.Bursts.Quantile(0.99); math.Abs(got-tt.want) > 0.01 {
			t.Errorf("after %s with ticks every %s the burst is %v; want %v", tt.pause, tt.interval, got, tt.want)
		}
	}
}
