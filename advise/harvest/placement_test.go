package harvest

import (
	"fmt"
	"math"
	"math/rand/v2"
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

// busy returns a machine of which batch uses all that services leave, except some idle CPUs.
func busy(services, idle float64) *tick.Sample {
	s := machine(services)
	batch := max(16000-services-idle, 0)
	s.CPU.UsageMilliCPU, s.Pods[1].UsageMilliCPU = new(services+batch), &batch
	return s
}

// Batch leaves CPUs at once if too few are idle, by at least as much as the services' use grew. What is not needed any more is batch's
// again after half a minute, and the reason states the remaining time.
func TestBatchWaitsForCores(t *testing.T) {
	d := New(Defaults())
	reason := func(batch, wanted int, use float64, idle float64, growths int, growth int, more string) string {
		return fmt.Sprintf("batch runs on %d of 16 CPUs, so that %d CPUs are idle for bursts of the services, which use %.0fm "+
			"(idle now: %.0fm; 99 %% of %d growths within two ticks were up to %dm)%s", batch, wanted, use, idle, growths, growth, more)
	}
	for _, step := range []struct {
		second         int
		services, idle float64
		want           string
	}{
		{0, 3500, 0, reason(10, 2, 3500, 0, 0, 0, "")}, // what services use, and a core
		{1, 7500, 0, reason(6, 4, 7500, 0, 1, 4000, "")},
		{2, 3500, 4000, reason(6, 4, 7500, 4000, 2, 4000, "")},
		{3, 3500, 6500, reason(6, 4, 3500, 6500, 3, 4000, "; 8 CPUs without batch are enough, batch gets the others in 29s")},
		{31, 3500, 6500, reason(6, 4, 3500, 6500, 4, 4000, "; 8 CPUs without batch are enough, batch gets the others in 1s")},
		{32, 3500, 6500, reason(8, 4, 3500, 6500, 5, 4000, "")},
		{33, 7500, 1000, reason(4, 4, 7500, 1000, 6, 4000, "")},
		// The clock was set back.
		{20, 3500, 5000, reason(4, 4, 3500, 5000, 6, 4000, "; 8 CPUs without batch are enough, batch gets the others in 30s")},
	} {
		a := d.Decide(at(time.Duration(step.second)*time.Second, busy(step.services, step.idle)))
		if diff := cmp.Diff(step.want, placeReason(t, a)); diff != "" {
			t.Errorf("after %d s (-want +got):\n%s", step.second, diff)
		}
	}
}

// How many CPUs batch leaves follows from how many are idle: from as many as are wanted to these besides all that services use.
func TestWithoutBatch(t *testing.T) {
	unknown := math.NaN()
	for _, tt := range []struct {
		name                  string
		idle                  idleCPUs
		current, wanted, used int
		grown                 float64
		want                  int
	}{
		{"first", idleCPUs{milliCPU: 9000}, 0, 2, 12, 0, 14},
		{"unknown", idleCPUs{milliCPU: unknown}, 4, 2, 12, 0, 14},
		{"as wanted", idleCPUs{milliCPU: 2000}, 4, 2, 12, 0, 4},
		{"nearly", idleCPUs{milliCPU: 1500}, 4, 2, 12, 0, 4},
		{"too few", idleCPUs{milliCPU: 1499}, 4, 2, 12, 0, 5},
		{"none", idleCPUs{}, 4, 2, 12, 0, 6},
		{"in a burst", idleCPUs{}, 4, 2, 12, 5500, 10},
		{"a burst that enough were idle for", idleCPUs{milliCPU: 2000}, 4, 2, 12, 5500, 4},
		{"in a large burst", idleCPUs{}, 4, 2, 12, 1e12, 14},
		{"at the most", idleCPUs{}, 14, 2, 12, 0, 14},
		{"less than one CPU too many", idleCPUs{milliCPU: 2999}, 4, 2, 12, 0, 4},
		{"one too many", idleCPUs{milliCPU: 3000}, 4, 2, 12, 0, 3},
		{"far too many", idleCPUs{milliCPU: 20000}, 14, 2, 12, 0, 2},
		{"too many, because the guard limits batch", idleCPUs{20000, true}, 14, 2, 12, 0, 14},
		{"too few, although the guard limits batch", idleCPUs{0, true}, 4, 2, 12, 0, 6},
		{"services use less than before", idleCPUs{milliCPU: 2000}, 14, 2, 4, 0, 6},
	} {
		if got := tt.idle.withoutBatch(tt.current, tt.wanted, tt.used, tt.grown); got != tt.want {
			t.Errorf("%s: %d CPUs; want %d", tt.name, got, tt.want)
		}
	}
}

// Batch leaves as much as the services' use grew only if it grew: in a tick in which it falls nothing but what is missing of the buffer.
func TestFallingUseIsNoGrowth(t *testing.T) {
	for _, tt := range []struct {
		name string
		uses []float64 // by second; no CPU is idle
		want int       // CPUs without batch: 4, and the buffer, none of which is idle
	}{
		{"steady", []float64{9000, 9000, 9000}, 4 + 1},
		{"it falls", []float64{9000, 9000, 4000}, 4 + 1},
		{"it grows", []float64{9000, 9000, 12000}, 4 + 4},
		{"it grows in two ticks", []float64{9000, 10500, 12000}, 4 + 4},
	} {
		d := New(withoutLimits())
		var a *tick.Advice
		for second, services := range tt.uses {
			if second > 0 {
				d.Nodes["n"].Placement.WithoutBatch = "44-47"
			}
			s := machine(services)
			s.Topology = &tick.Topology{CPUs: "0-47"}
			s.CPU.UsageMilliCPU, s.Pods[1].UsageMilliCPU = new(48000.0), new(48000-services)
			a = d.Decide(at(time.Duration(second)*time.Second, s))
		}
		if got := 48 - cpusOf(t, a.Cgroups).Size(); got != tt.want {
			t.Errorf("%s: %d CPUs without batch; want %d: %s", tt.name, got, tt.want, placeReason(t, a))
		}
	}
}

// Beside services that are spread over all CPUs, and batch that uses all that it gets, the buffer becomes idle within seconds, and batch's
// CPUs change seldom, although the services' use varies. What batch leaves is less than what services use.
func TestBufferSettles(t *testing.T) {
	const use, cpus, minutes = 7000.0, 16, 10
	r := rand.New(rand.NewPCG(3, 4))
	d := New(withoutLimits())
	without, changes, shortTicks := 0, 0, 0
	for second := range minutes * 60 {
		now := use + 600*(r.Float64()-0.5)
		idle := float64(without) * (1000 - now/cpus) // services use the same part of each CPU
		next := cpus - cpusOf(t, d.Decide(at(time.Duration(second)*time.Second, busy(now, idle))).Cgroups).Size()
		if second >= 60 && next != without {
			changes++
		}
		if without = next; second >= 60 && idle < 1500 {
			shortTicks++
		}
	}
	if changes > minutes || shortTicks > minutes*60/20 || without >= ceilCPUs(use) {
		t.Errorf("%d changes and %d ticks without enough idle CPUs in %d minutes; %d CPUs without batch at the end",
			changes, shortTicks, minutes, without)
	}
}

// Batch gets back what was too much in every tick of the hold-down: services whose use alternates leave many CPUs idle in some ticks, also
// in the one in which it ends, and a batch that got all of these would take the buffer of the next tick, over and over.
func TestBufferOfAlternatingServices(t *testing.T) {
	const cpus, low, high, buffer, minutes = 48, 3000.0, 9000.0, 7000.0, 10
	for _, period := range []int{2, 7} { // ticks, with high use in about half of them
		r := rand.New(rand.NewPCG(3, 4))
		d := New(withoutLimits())
		without, changes, shortTicks := 0, 0, 0
		for second := range minutes * 60 {
			services := low + 300*r.Float64()
			if second%period < period/2 {
				services += high - low
			}
			idle := float64(without) * (1000 - services/cpus) // services use the same part of each CPU
			s := machine(services)
			s.Topology = &tick.Topology{CPUs: "0-47"}
			s.CPU.UsageMilliCPU, s.Pods[1].UsageMilliCPU = new(cpus*1000-idle), new(cpus*1000-services-idle)
			next := cpus - cpusOf(t, d.Decide(at(time.Duration(second)*time.Second, s)).Cgroups).Size()
			if second >= 120 && next != without {
				changes++
			}
			if without = next; second >= 120 && idle < buffer-idleSlackMilliCPU {
				shortTicks++
			}
		}
		if changes > 0 || shortTicks > 0 {
			t.Errorf("in %d minutes of services that alternate every %d ticks there are %d changes, and %d ticks in which the buffer is not idle",
				minutes, period, changes, shortTicks)
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
	}{
		{0, 14000, "batch runs on 2 of 16"},
		{1, 3500, "batch runs on 2 of 16"},
		{2, 3500, "batch runs on 2 of 16"},
		{31, 3500, "batch runs on 8 of 16"},
	} {
		if got := placeReason(t, d.Decide(at(time.Duration(step.second)*time.Second, machine(step.services)))); !strings.HasPrefix(got, step.want) {
			t.Errorf("after %d s: %s; want %s", step.second, got, step.want)
		}
	}
}

// After a pause batch waits for its CPUs anew: they were idle because isolate had applied the fallback, which gives batch its floor.
// Ticks that are always so rare are no pause.
func TestBatchWaitsAfterAPause(t *testing.T) {
	for _, tt := range []struct {
		seconds  []int
		interval float64
		want     []int
	}{
		{[]int{0, 1, 41, 50, 60, 70, 71}, 1, []int{6, 6, 6, 6, 6, 6, 10}},
		{[]int{0, 40, 80}, 40, []int{6, 6, 10}},
	} {
		d, got := New(withoutLimits()), []int(nil)
		for i, second := range tt.seconds {
			idle := 2000.0
			if i >= 2 {
				idle = 7000
			}
			s := busy(7500, idle)
			s.IntervalSeconds = &tt.interval
			got = append(got, cpusOf(t, d.Decide(at(time.Duration(second)*time.Second, s)).Cgroups).Size())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("ticks at %v s: batch has %v CPUs; want %v", tt.seconds, got, tt.want)
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
		{[]float64{12000}, "batch runs on 2 of 16 CPUs, so that 2 CPUs are idle", false},
		{[]float64{12001}, "batch runs on 2 of 16 CPUs, so that 2 CPUs are idle", true},
		{[]float64{0, 4000}, "batch runs on 10 of 16 CPUs, so that 4 CPUs are idle", false},
		{[]float64{0, 13000}, "batch runs on 2 of 16 CPUs, so that 8 CPUs are idle", true},
	} {
		d := New(Defaults())
		var a *tick.Advice
		for i, use := range tt.uses {
			a = d.Decide(at(time.Duration(i)*time.Second, busy(use, 0)))
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

// Idle cores require as many CPUs as are set, two cores, and more than one of them for batch and services; a reason names what is missing.
func TestIdleCoresNeedEnoughCPUs(t *testing.T) {
	for _, tt := range []struct {
		name     string
		topology tick.Topology
		minCPUs  int
		reserved string
		want     string // the beginning of the reason
	}{
		{"8 CPUs", tick.Topology{CPUs: "0-7", Cores: []string{"0-1", "2-3", "4-5", "6-7"}}, 8, "", "batch runs on 6 of 8 CPUs"},
		{"7 CPUs", tick.Topology{CPUs: "0-6"}, 8, "", "7 CPUs are too few for a buffer of idle CPUs (minimum 8): batch runs on all"},
		{"2 cores", tick.Topology{CPUs: "0-3", Cores: []string{"0-1", "2-3"}}, 1, "", "batch runs on 2 of 4 CPUs"},
		{
			"a core of two is left",
			tick.Topology{CPUs: "0-3", Cores: []string{"0-1", "2-3"}},
			1, "0-1",
			"batch may use 2 of 4 CPUs, no more than a core: ",
		},
		{"one core", tick.Topology{CPUs: "0-3", Cores: []string{"0-3"}}, 1, "", "batch may use 4 of 4 CPUs, no more than a core: "},
	} {
		s, settings := machine(0), Defaults()
		s.Topology, settings.MinCPUs, settings.ReservedCPUs = &tt.topology, tt.minCPUs, tt.reserved
		a := New(settings).Decide(at(0, s))
		hasReason := slices.ContainsFunc(a.Reasons, func(r string) bool { return strings.HasPrefix(r, tt.want) })
		if hasPools := len(a.Pools) > 0; hasPools != strings.HasPrefix(tt.want, "batch runs on") || !hasReason {
			t.Errorf("%s: pools %+v, %q; want the reason %q", tt.name, a.Pools, a.Reasons, tt.want)
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
