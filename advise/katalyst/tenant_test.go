package katalyst

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// idlePods returns pods that request 1m and use almost nothing, changed by what their tenant writes.
func idlePods(n int, change func(i int, p *tick.Pod)) []tick.Pod {
	var pods []tick.Pod
	for i := range n {
		p := shared(fmt.Sprint("idle", i), 0.001)
		p.Requests = &tick.Resources{MilliCPU: new(1.0)}
		p.Containers[0].Requests = p.Requests
		p.Annotations = map[string]string{}
		change(i, &p)
		pods = append(pods, p)
	}
	return pods
}

func TestIdlePodsTakeNoCPUsFromAServiceByNamingPools(t *testing.T) {
	own := func(i int, p *tick.Pod) { p.Annotations[cpuEnhancement] = fmt.Sprintf(`{"cpuset_pool":"own-%d"}`, i) }
	for _, c := range []struct {
		name   string
		pods   int
		change func(i int, p *tick.Pod)
	}{
		{"a pool each", 20, own},
		{"more pools than cores", 110, own},
		{"one pool together", 20, func(_ int, p *tick.Pod) { p.Annotations[cpuEnhancement] = `{"cpuset_pool":"own"}` }},
		{"nothing is known of them", 20, func(i int, p *tick.Pod) {
			own(i, p)
			p.Requests, p.Containers[0] = nil, tick.Container{Cgroup: p.Containers[0].Cgroup}
		}},
		{"they are dedicated", 20, func(i int, p *tick.Pod) { p.QoS = tick.QoSDedicated }},
		{"they are dedicated, with NUMA nodes of their own", 2, func(i int, p *tick.Pod) {
			p.QoS, p.Annotations[memoryEnhancement] = tick.QoSDedicated, `{"numa_binding":"true","numa_exclusive":"true"}`
		}},
		{"they are dedicated and request a CPU, with NUMA nodes of their own", 1, func(i int, p *tick.Pod) {
			p.QoS, p.Annotations[memoryEnhancement] = tick.QoSDedicated, `{"numa_binding":"true","numa_exclusive":"true"}`
			p.Requests = &tick.Resources{MilliCPU: new(1000.0)}
		}},
		{"they are dedicated and request a CPU each, which is half a core", 16, func(i int, p *tick.Pod) {
			p.QoS, p.Requests = tick.QoSDedicated, &tick.Resources{MilliCPU: new(1000.0)}
		}},
		{"they need a core each", 20, func(i int, p *tick.Pod) {
			own(i, p)
			p.Containers[0].UsageMilliCPU = new(1000.0)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := New(Defaults())
			for i := range 3 {
				a := d.Decide(at(float64(i), append(idlePods(c.pods, c.change), shared("web", 30))...))
				if got := mustParse(t, poolsOf(a)[tick.PoolShare]).Size(); got < 30 {
					t.Errorf("share has %d CPUs, and the service needs 30: %q", got, a.Reasons)
				}
				on := listsByCgroup(a.Cgroups)
				for i := range c.pods {
					if on[fmt.Sprint("idle", i)] == "" {
						t.Errorf("idle%d has no CPUs", i)
					}
				}
			}
		})
	}
}

// A NUMA node of its own is refused if and only if services need it, to the exact CPU.
func TestExclusiveNUMANodesOnlyBeyondServicesNeed(t *testing.T) {
	granted, refused := 0, 0
	for cores := 10.0; cores < 40; cores += 0.25 {
		pod := idlePods(1, func(_ int, p *tick.Pod) {
			p.QoS, p.Annotations[memoryEnhancement] = tick.QoSDedicated, `{"numa_binding":"true","numa_exclusive":"true"}`
			p.Requests = &tick.Resources{MilliCPU: new(2000.0)}
		})
		a := New(Defaults()).Decide(at(0, append(pod, shared("web", cores))...))
		spare := -1 // what services leave, according to the refusal
		for _, r := range a.Reasons {
			if _, text, found := strings.Cut(r, "services need all but "); found {
				fmt.Sscan(text, &spare)
			}
		}
		list, _, _ := strings.Cut(listsByCgroup(a.Cgroups)["idle0"], " mems")
		switch got := mustParse(t, list).Size(); {
		case spare >= 24 || spare >= 0 && got != 2:
			t.Errorf("a service of %g cores: the pod has %d CPUs, and services leave %d: %q", cores, got, spare, a.Reasons)
		case spare < 0 && got != 24:
			t.Errorf("a service of %g cores: the pod has %d CPUs, want the 24 of a NUMA node: %q", cores, got, a.Reasons)
		case spare < 0:
			granted++
		default:
			refused++
		}
	}
	if granted == 0 || refused == 0 {
		t.Errorf("granted %d times, refused %d times", granted, refused)
	}
}

// For any pools that pods name and any needs: no pool has less than its proportion in whole cores, or than its need if that is less, no pod
// is without CPUs, and a need of less than a core gets no CPUs of its own.
func TestNoPoolFallsBelowItsProportion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		needs := map[string]float64{}
		var pods []tick.Pod
		for i := range rapid.IntRange(0, 40).Draw(t, "pods") {
			cores := rapid.SampledFrom([]float64{0.001, 0.4, 1, 1.5, 3, 10, 30}).Draw(t, "cores")
			pool := rapid.SampledFrom([]string{"share", "a", "b", "c", fmt.Sprint("p", i)}).Draw(t, "pool")
			pods = append(pods, pooled(fmt.Sprint("pod", i), pool, cores))
			needs[pool] += cores
		}
		a := New(Defaults()).Decide(at(0, pods...))
		sizes, all, total := map[string]int{}, 0.0, 0
		for _, p := range a.Pools {
			set, err := cpus.Parse(p.CPUs)
			if err != nil {
				t.Fatal(err)
			}
			if sizes[p.Name] = set.Size(); p.Name != tick.PoolReclaim {
				total += set.Size()
			}
		}
		for pool, need := range needs { // pods without a pool of their own are in share
			if pool != tick.PoolShare && sizes[pool] == 0 {
				needs[tick.PoolShare] += need
				delete(needs, pool)
			} else if pool != tick.PoolShare && need < 0.999 {
				t.Fatalf("pool %s needs %g cores and has %d CPUs of its own", pool, need, sizes[pool])
			}
		}
		const maximum = 44 // without the floor; no pool can use more
		for pool := range needs {
			needs[pool] = min(needs[pool], maximum)
			all += needs[pool]
		}
		units := 0
		for _, need := range needs {
			units += max(int(math.Ceil(need/2)), 1)
		}
		for pool, need := range needs {
			minimum := math.Floor(need/all*maximum/2+1e-6) * 2
			if units <= maximum/2 {
				minimum = need
			}
			minimum = min(minimum, need)
			if needs[tick.PoolShare]/all*maximum < 2 { // share has a core at any need
				minimum -= 2
			}
			if float64(sizes[pool])+1e-6 < minimum {
				t.Fatalf("pool %s needs %g of %g cores and has %d CPUs of %d: %v", pool, need, all, sizes[pool], total, sizes)
			}
		}
		for path, list := range listsByCgroup(a.Cgroups) {
			if list == "" {
				t.Fatalf("%s has no CPUs", path)
			}
		}
	})
}

// A pod has whole NUMA nodes while services leave them, loses them immediately otherwise, and does not get them again at each lull.
func TestExclusiveNUMANodesReturnToServices(t *testing.T) {
	d := New(Defaults())
	has := func(seconds, load float64) string {
		return listsByCgroup(d.Decide(at(seconds, alone("db", 2000), shared("web", load))).Cgroups)["db"]
	}
	const whole, part = "0-11,24-35 mems 0", "0,24 mems 0"
	for _, step := range []struct {
		seconds, load float64
		want          string
	}{{0, 1, whole}, {1, 30, part}, {2, 30, part}, {3, 1, part}, {20, 1, part}} {
		if got := has(step.seconds, step.load); got != step.want {
			t.Fatalf("at %vs with a load of %v: %s; want %s", step.seconds, step.load, got, step.want)
		}
	}
	now := 30.0
	for ; has(now, 1) != whole; now += 10 {
		if now > 2000 {
			t.Fatal("it never gets them again")
		}
	}
	if now < 60 {
		t.Errorf("it has them again after %vs, before the shared pool's hold was over", now)
	}
}

// A pod that claims to be a system pod is not confined, and its use is not offered.
func TestWhatIsNotConfinedIsStillCounted(t *testing.T) {
	system := shared("agent", 30)
	system.QoS, system.UsageMilliCPU = tick.QoSSystem, new(30_000.0)
	batch := reclaimed("batch")
	batch.UsageMilliCPU = new(5000.0)
	for name, use := range map[string]*float64{"with the machine's use": new(35_000.0), "without": nil} {
		tk := at(0, system, batch)
		tk.Sample.CPU = &tick.NodeCPU{UsageMilliCPU: use}
		a := New(Defaults()).Decide(tk)
		if got := *a.Reclaimed.MilliCPU; got > 14_000 || got < 12_000 {
			t.Errorf("%s: offers %dm of 48000m, and a system pod uses 30000m: %q", name, got, a.Reasons)
		}
		wantReason(t, a, "system: 30000m are used outside of the confined pods")
	}
}

// System pods do not run on kubelet's reservations for daemons: they use allocatable CPUs.
func TestKubeletsReservationsHideNoSystemPod(t *testing.T) {
	agent, batch := shared("agent", 30), reclaimed("batch")
	agent.QoS, agent.UsageMilliCPU = tick.QoSSystem, new(30_000.0)
	batch.UsageMilliCPU = new(5000.0)
	for _, daemons := range []float64{0, 8000} { // their use of the 10 reserved cores
		tk := at(0, agent, batch)
		tk.Sample.CPU = &tick.NodeCPU{UsageMilliCPU: new(35_000 + daemons)}
		tk.Sample.Allocatable = &tick.Resources{MilliCPU: new(38_000.0)}
		tk.Sample.Tiers = []tick.Tier{{Name: tick.TierPods, Cgroup: "/kubepods"}}
		tk.Sample.Pods[0].Cgroup, tk.Sample.Pods[1].Cgroup = "/kubepods/podagent", "/kubepods/besteffort/podbatch"
		a := New(Defaults()).Decide(tk)
		if got := *a.Reclaimed.MilliCPU; got > 4000 || got < 2000 {
			t.Errorf("daemons use %gm: offers %dm of 38000m, and a system pod uses 30000m: %q", daemons, got, a.Reasons)
		}
	}
}

// If systemd is the first process, the rules make each of its slices a system pod. Under kubelet these are not pods: its reservations cover
// what runs there, including kubelet. Without kubelet they count.
func TestSystemdsSlicesAreNoPodsUnderKubelet(t *testing.T) {
	slice := shared("system.slice", 3)
	slice.QoS, slice.QoSSource, slice.Cgroup, slice.UsageMilliCPU = tick.QoSSystem, tick.QoSFromRule, "/system.slice", new(3000.0)
	slice.Memory = &tick.Memory{RSSBytes: new(float64(4 << 30))}
	agent := slice
	agent.Name, agent.QoSSource, agent.Cgroup = "agent", tick.QoSFromKatalyst, "/kubepods.slice/kubepods-podagent.slice"
	offer := func(kubelet bool, pods ...tick.Pod) [2]int64 {
		tk := at(0, pods...)
		if kubelet {
			tk.Sample.Tiers = []tick.Tier{{Name: tick.TierPods, Cgroup: "/kubepods.slice"}}
		}
		r := New(Defaults()).Decide(tk).Reclaimed
		return [2]int64{*r.MilliCPU, *r.MemoryBytes}
	}
	without, counted := offer(true), offer(true, agent)
	if without[0]-counted[0] != 4000 || without[1]-counted[1] != 4<<30 {
		t.Errorf("with a system pod of 3 cores and 4 GiB the offer falls from %d to %d", without, counted)
	}
	if got := offer(true, slice); got != without {
		t.Errorf("with system.slice the offer is %d; want %d as without", got, without)
	}
	if got := offer(true, slice, agent); got != counted {
		t.Errorf("with system.slice and a system pod the offer is %d; want %d as with that pod", got, counted)
	}
	if got := offer(false, slice); got[0] != counted[0] {
		t.Errorf("without kubelet the offer is %d; want %d, as system.slice uses 3 cores", got, counted)
	}
}

func TestUseOutsideEveryPodIsUse(t *testing.T) {
	web, batch := shared("web", 2), reclaimed("batch")
	web.UsageMilliCPU, batch.UsageMilliCPU = new(2000.0), new(10_000.0)
	batch.Memory = &tick.Memory{RSSBytes: new(float64(10 << 30))}
	tk := at(0, web, batch)
	before := New(Defaults()).Decide(tk)
	tk.Sample.CPU = &tick.NodeCPU{UsageMilliCPU: new(32_000.0)}
	tk.Sample.Memory.AvailableBytes = new(*tk.Sample.Memory.TotalBytes - 30<<30)
	a := New(Defaults()).Decide(tk)
	if got := *before.Reclaimed.MilliCPU - *a.Reclaimed.MilliCPU; got != 20_000 {
		t.Errorf("20000m are used outside, and %dm less are offered: %q", got, a.Reasons)
	}
	if got := *before.Reclaimed.MemoryBytes - *a.Reclaimed.MemoryBytes; got < 20<<30-2 || got > 20<<30 {
		t.Errorf("20 GiB are used outside, and %d bytes less are offered: %q", got, a.Reasons)
	}
	wantReason(t, a, "system: 20000m are used outside of the confined pods")

	tk.Sample.Allocatable = &tick.Resources{MilliCPU: new(38_000.0)} // 10 cores are reserved for it
	if got := *New(Defaults()).Decide(tk).Reclaimed.MilliCPU; got != *a.Reclaimed.MilliCPU {
		t.Errorf("with 10 of the 20 cores kept by kubelet %dm are offered, want %dm", got, *a.Reclaimed.MilliCPU)
	}
	// Under kubelet its reservations cover what runs outside of all pods: the guide's formula has no other term for it.
	tk.Sample.Allocatable = nil
	tk.Sample.Tiers = []tick.Tier{{Name: tick.TierPods, Cgroup: "/kubepods", UsageMilliCPU: new(32_000.0)}}
	tk.Sample.Pods[0].Cgroup, tk.Sample.Pods[1].Cgroup = "/kubepods/podweb", "/kubepods/besteffort/podbatch"
	wantNoReason(t, New(Defaults()).Decide(tk), "m are used outside of the confined pods")
}

func TestZeroIsNotUnknown(t *testing.T) {
	zero := func() *float64 { return new(0.0) }
	for _, c := range []struct {
		name     string
		of       tick.Container
		milliCPU float64
		bytes    float64
	}{
		{"all read, and 0", tick.Container{UsageMilliCPU: zero(), Load1: zero(), Load5: zero(), Memory: &tick.Memory{RSSBytes: zero()}}, 0, 0},
		{"use alone read, and 0", tick.Container{UsageMilliCPU: zero(), Memory: &tick.Memory{RSSBytes: zero()}}, 0, 0},
		{"no threads", tick.Container{Threads: zero(), Memory: &tick.Memory{RSSBytes: zero()}}, 0, 0},
		{"nothing read: no more than the machine", tick.Container{}, 2000, 4 << 30},
		{"0, and a request", tick.Container{
			UsageMilliCPU: zero(), Load1: zero(), Load5: zero(), Memory: &tick.Memory{RSSBytes: zero()},
			Requests: &tick.Resources{MilliCPU: new(700.0), MemoryBytes: new(5000.0)},
		}, 700, 5000},
	} {
		pod := tick.Pod{Name: "p", QoS: tick.QoSShared, Containers: []tick.Container{c.of}}
		e := sumNeeds(inputs{settings: Defaults().clampedTo(2000, 4<<30)}, []member{{Pod: &pod, class: tick.QoSShared}}, make([]group, 1))
		if e.milliCPU != c.milliCPU || e.memoryBytes != c.bytes {
			t.Errorf("%s: need %gm and %g bytes; want %gm and %g", c.name, e.milliCPU, e.memoryBytes, c.milliCPU, c.bytes)
		}
	}
}

func TestHoldDownsBeginWithTheFirstRealDecision(t *testing.T) {
	d := New(Defaults())
	unknown := shared("web", 1)
	unknown.Containers[0] = tick.Container{Cgroup: unknown.Containers[0].Cgroup}
	guessed := d.Decide(at(0, unknown))
	known := d.Decide(at(1, shared("web", 1)))
	if got := mustParse(t, poolsOf(guessed)[tick.PoolShare]).Size(); got != 8 {
		t.Errorf("while nothing is known share has %d CPUs; want 8", got)
	}
	if got := mustParse(t, poolsOf(known)[tick.PoolShare]).Size(); got != 6 {
		t.Errorf("a second later share has %d CPUs; want 6: %q", got, known.Reasons)
	}
	d.Decide(at(2, shared("web", 9)))
	wantReason(t, d.Decide(at(3, shared("web", 1))), "; hold-down: 14 CPUs")
}

func TestNoDefaultExceedsTheMachine(t *testing.T) {
	r := Defaults().resolve(&dynamic{}, false, 2000, 1e9)
	if r.reserveMilliCPU > 2000 || r.floorMilliCPU > 2000 || r.reserveMemoryBytes > 1e9 {
		t.Errorf("of 2 CPUs and 1 GB: reserve %dm and %d bytes, floor %dm", r.reserveMilliCPU, r.reserveMemoryBytes, r.floorMilliCPU)
	}
}
