package katalyst

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/kubepods"
	"polder/lib/tick"
)

// clusterMachine draws a machine of NUMA nodes with cores of different widths.
func clusterMachine(t *rapid.T) *tick.Topology {
	topology := &tick.Topology{}
	next := 0
	for id := range rapid.IntRange(1, 4).Draw(t, "NUMA nodes") {
		first := next
		for range rapid.IntRange(1, 12).Draw(t, "cores") {
			threads := rapid.SampledFrom([]int{1, 2, 2, 2, 4}).Draw(t, "threads")
			topology.Cores = append(topology.Cores, fmt.Sprintf("%d-%d", next, next+threads-1))
			next += threads
		}
		node := tick.TopologyNUMA{ID: id * 2, CPUs: fmt.Sprintf("%d-%d", first, next-1)}
		if rapid.Bool().Draw(t, "memory is known") {
			node.MemoryBytes = new(rapid.Float64Range(0, 1e12).Draw(t, "bytes"))
		}
		topology.NUMANodes = append(topology.NUMANodes, node)
	}
	topology.CPUs = fmt.Sprintf("0-%d", next-1)
	return topology
}

// clusterPod draws a pod of a cluster.
func clusterPod(t *rapid.T) tick.Pod {
	name := rapid.StringMatching(`[a-h]`).Draw(t, "name")
	number := func(what string, maximum float64) *float64 {
		if rapid.Bool().Draw(t, what+" is missing") {
			return nil
		}
		return new(rapid.Float64Range(0, maximum).Draw(t, what))
	}
	p := tick.Pod{
		UID: "uid-" + name, Namespace: "default", Name: name,
		QoS:         rapid.SampledFrom([]string{"shared", "shared", "shared", "reclaimed", "dedicated", "dedicated", "system", ""}).Draw(t, "qos"),
		Missing:     rapid.SampledFrom([]string{"", "", "", tick.MissingCgroup, tick.MissingCluster}).Draw(t, "missing"),
		Terminating: rapid.IntRange(0, 5).Draw(t, "terminating") == 0,
		StartTime:   rapid.SampledFrom([]string{"", "nonsense", start.Format(time.RFC3339), start.Add(time.Hour).Format(time.RFC3339)}).Draw(t, "startTime"),
		Annotations: map[string]string{},
		Requests:    &tick.Resources{MilliCPU: number("request", 30000)},
	}
	if pool := rapid.SampledFrom([]string{"", "batch", "flink", "web", "share", "reclaim", "a/b"}).Draw(t, "pool"); pool != "" {
		p.Annotations[cpuEnhancement] = fmt.Sprintf(`{"cpuset_pool":%q}`, pool)
	}
	p.Annotations[memoryEnhancement] = rapid.SampledFrom([]string{
		"", "{", `{"numa_binding":"true"}`, `{"numa_binding":"true","numa_exclusive":"true"}`, `{"numa_exclusive":"true"}`, `{"numa_binding":true}`,
	}).Draw(t, "memory enhancement")
	p.Cgroup = rapid.SampledFrom([]string{"/kubepods/pod-", "/kubepods/besteffort/pod-", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod-"}).Draw(t, "tier") + name
	for i := range rapid.IntRange(0, 2).Draw(t, "containers") {
		p.Containers = append(p.Containers, tick.Container{
			Cgroup: fmt.Sprintf("%s/c%d", p.Cgroup, i), CPUSetCPUs: rapid.SampledFrom([]string{"", "1", "2-3", "0-4"}).Draw(t, "in force"),
			UsageMilliCPU: number("usage", 20000), Load1: number("load1", 20), Load5: number("load5", 20),
			Memory: &tick.Memory{RSSBytes: number("rss", 1e10)},
		})
	}
	return p
}

// For any machine, pods of a cluster, exclusive and reserved CPUs, over several ticks and restarts: the pools divide the CPUs that are not
// given away, none is empty, no two share a CPU, every cgroup is within its pool, and the sum of the NUMA nodes' parts is the whole.
func TestClusterProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Defaults()
		s.PoolMinCPUs = rapid.SampledFrom([]int{1, 8}).Draw(t, "pool-min-cpus")
		s.ReservedCPUs = rapid.SampledFrom([]string{"", "0", "0-2", "1,3"}).Draw(t, "reserved")
		d, topology, now := New(s), clusterMachine(t), start
		for range rapid.IntRange(1, 6).Draw(t, "ticks") {
			if rapid.IntRange(0, 4).Draw(t, "machine changes") == 0 {
				topology = clusterMachine(t)
			}
			if rapid.IntRange(0, 4).Draw(t, "restart") == 0 {
				d = restarted(t, d)
			}
			now = now.Add(time.Duration(rapid.IntRange(-10, 50).Draw(t, "seconds")) * time.Second)
			tk := &tick.Tick{V: 1, Node: "n", Time: now, Sample: &tick.Sample{
				IntervalSeconds: new(1.0), Topology: topology, Memory: &tick.NodeMemory{TotalBytes: new(1e11)},
				CgroupVersion: rapid.IntRange(1, 2).Draw(t, "cgroup version"),
				Kubelet: &tick.Kubelet{
					CPUManagerPolicy: rapid.SampledFrom([]string{"none", "static"}).Draw(t, "policy"),
					ExclusiveCPUs:    rapid.SampledFrom([]string{"", "", "2-3", "0-5", "0-191"}).Draw(t, "exclusive"),
				},
				Pods: rapid.SliceOfNDistinct(rapid.Custom(clusterPod), 0, 8, func(p tick.Pod) string { return p.Name }).Draw(t, "pods"),
				Config: tick.Raw(rapid.SampledFrom([]string{
					"", `{"katalyst":{"adminQoSConfiguration":{"config":{"reclaimedResourceConfig":{"enableReclaim":false}}}}}`,
					`{"katalyst":{"adminQoSConfiguration":{"config":{"reclaimedResourceConfig":{"reservedResourceForReport":{"cpu":3,"memory":"1Gi"},"minReclaimedResourceForReport":{"cpu":"2"},"minIgnoredReclaimedResourceForReport":{"cpu":"1","memory":"1Mi"}}}}}}`,
				}).Draw(t, "config")),
			}}
			for _, numa := range topology.NUMANodes {
				tk.Sample.NUMANodes = append(tk.Sample.NUMANodes, tick.NUMASample{ID: numa.ID, Memory: &tick.NUMAMemory{FreeBytes: new(rapid.Float64Range(0, 1e11).Draw(t, "free"))}})
			}
			before := map[string]string{}
			if n := d.Nodes["n"]; n != nil {
				maps.Copy(before, n.Dedicated)
			}
			a := d.Decide(tk)
			if a.Reclaimed == nil {
				if !strings.Contains(a.Reasons[0], "are reserved") {
					t.Fatalf("no decision: %q", a.Reasons)
				}
				continue
			}
			checkCluster(t, d.Nodes["n"], tk, a, before)
		}
	})
}

func parsed(t *rapid.T, list string) cpus.Set {
	set, err := cpus.Parse(list)
	if err != nil {
		t.Fatalf("list %q: %v", list, err)
	}
	return set
}

func checkCluster(t *rapid.T, n *node, tk *tick.Tick, a *tick.Advice, before map[string]string) {
	online, exclusive := parsed(t, tk.Sample.Topology.CPUs), parsed(t, tk.Sample.Kubelet.ExclusiveCPUs)
	exclusive = exclusive.Intersection(online)
	seen, of := cpus.Set{}, map[string]cpus.Set{}
	for _, p := range a.Pools {
		set := parsed(t, p.CPUs)
		if set.IsEmpty() || !set.Intersection(seen).IsEmpty() || !set.IsSubsetOf(online) || !set.Intersection(exclusive).IsEmpty() {
			t.Fatalf("pool %s %s: empty, or overlapping another, or not free: %v", p.Name, p.CPUs, a.Pools)
		}
		if _, twice := of[p.Name]; twice {
			t.Fatalf("pool %s stands twice", p.Name)
		}
		seen, of[p.Name] = seen.Union(set), set
	}
	if len(a.Pools) > 0 && (of["share"].IsEmpty() || !seen.Union(exclusive).Equals(online)) {
		t.Fatalf("pools %v do not divide %s less %s", a.Pools, online, exclusive)
	}
	for k, list := range before { // existing pods keep theirs
		if now := n.Dedicated[k]; now != "" && now != list && len(a.Pools) > 0 && !strings.Contains(strings.Join(a.Reasons, "\n"), "pod "+k+" moves from") {
			t.Fatalf("dedicated %s moved from %s to %s without a reason", k, list, now)
		}
	}
	milliCPU, bytes, divided := int64(0), int64(0), false
	for _, numa := range a.Reclaimed.NUMANodes {
		milliCPU += *numa.MilliCPU
		if numa.MemoryBytes != nil {
			bytes, divided = bytes+*numa.MemoryBytes, true
		}
		if *numa.MilliCPU < 0 || numa.MemoryBytes != nil && *numa.MemoryBytes < 0 {
			t.Fatalf("negative part: %+v", numa)
		}
	}
	if *a.Reclaimed.MilliCPU < 0 || *a.Reclaimed.MilliCPU > int64(online.Size())*1000 || milliCPU != *a.Reclaimed.MilliCPU || divided && bytes != *a.Reclaimed.MemoryBytes {
		t.Fatalf("reclaimed %d, %d; parts %d, %d", *a.Reclaimed.MilliCPU, *a.Reclaimed.MemoryBytes, milliCPU, bytes)
	}
	pods := map[string]*tick.Pod{}
	for i := range tk.Sample.Pods {
		p := &tk.Sample.Pods[i]
		pods[p.Cgroup] = p
		for _, c := range p.Containers {
			pods[c.Cgroup] = p
		}
	}
	for _, c := range append(append([]tick.Cgroup(nil), a.Cgroups...), a.Fallback...) {
		p, set := pods[c.Cgroup], parsed(t, c.CPUSetCPUs)
		if p == nil {
			checkTier(t, c, tk, online, of["reclaim"])
			continue
		}
		if c.CPUIdle != nil && *c.CPUIdle && p.QoS != "reclaimed" {
			t.Fatalf("cgroup %s of %+v is idle", c.Cgroup, p)
		}
		if c.CPUIdle != nil && c.CPUSetCPUs == "" {
			continue // only the class, or the undo of the values of a former batch pod
		}
		isConfined := p.QoS != "system" && (p.QoS == "reclaimed" || !n.shape.hasExclusiveCPUs(p))
		if !isConfined && (c.CPUSetCPUs == "" || set.Equals(online.Difference(exclusive))) {
			continue // it had a list in another class, or before kubelet gave one of its containers exclusive CPUs
		}
		if p.Missing == tick.MissingCgroup || p.QoS == "" || p.QoS == "system" {
			t.Fatalf("cgroup %s of %+v", c.Cgroup, p)
		}
		if c.CPUSetCPUs == "" && c.CPUMaxMilliCPU == nil || !set.IsSubsetOf(online.Difference(exclusive)) || !set.Intersection(of["reserve"]).IsEmpty() && len(a.Pools) > 0 {
			t.Fatalf("cgroup %+v is on CPUs that are not its: %v", c, a.Pools)
		}
		if own := of["dedicated/"+policy.Key(p)]; p.QoS == "dedicated" && !own.IsEmpty() && !own.Equals(set) {
			t.Fatalf("dedicated %s is on %s; want %s", p.Name, set, own)
		}
		for name, pool := range of {
			if strings.HasPrefix(name, "dedicated/") && name != "dedicated/"+policy.Key(p) && !pool.Intersection(set).IsEmpty() {
				t.Fatalf("%s runs on CPUs of %s", p.Name, name)
			}
		}
		if p.QoS == "reclaimed" && !of["reclaim"].IsEmpty() && !set.IsSubsetOf(of["reclaim"]) {
			t.Fatalf("reclaimed %s runs on %s beside its pool %s", p.Name, set, of["reclaim"])
		}
	}
	if _, err := tick.Marshal(a); err != nil {
		t.Fatal(err)
	}
}

// checkTier checks the tier: it is pinned to the reclaim pool if that is safe and it contains only reclaimed pods, else it has all CPUs.
func checkTier(t *rapid.T, c tick.Cgroup, tk *tick.Tick, online, reclaim cpus.Set) {
	if kubepods.Of(c.Cgroup+"/pod1").BestEffort != c.Cgroup && kubepods.Of(c.Cgroup+"/kubepods-besteffort-pod1.slice").BestEffort != c.Cgroup {
		t.Fatalf("cgroup %s belongs to no pod", c.Cgroup)
	}
	set := parsed(t, c.CPUSetCPUs)
	if set.Equals(online) {
		return
	}
	if set.IsEmpty() || !set.IsSubsetOf(reclaim) {
		t.Fatalf("tier %+v is not within the reclaim pool %s", c, reclaim)
	}
	if tk.Sample.CgroupVersion != 2 && tk.Sample.Kubelet.CPUManagerPolicy != "none" {
		t.Fatalf("tier %+v is narrowed on version 1 under a static CPU manager", c)
	}
	for _, p := range tk.Sample.Pods {
		if strings.HasPrefix(p.Cgroup, c.Cgroup+"/") && p.QoS != tick.QoSReclaimed {
			t.Fatalf("tier %+v is narrowed with %s pod %s in it", c, p.QoS, p.Name)
		}
	}
}

// Moving the excess of some parts to others neither loses nor adds anything, and leaves no part above its limit if all fit.
func TestExcessIsMoved(t *testing.T) {
	sum := func(list []int64) (total int64) {
		for _, x := range list {
			total += x
		}
		return total
	}
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 5).Draw(t, "count")
		amounts := rapid.SliceOfN(rapid.Int64Range(0, 1<<rapid.IntRange(1, 53).Draw(t, "bits")), count, count)
		before, limits := amounts.Draw(t, "parts"), amounts.Draw(t, "limits")
		parts := slices.Clone(before)
		moveExcess(parts, limits)
		if sum(parts) != sum(before) {
			t.Fatalf("parts %v within %v: %v, which add up to another sum", before, limits, parts)
		}
		for i, part := range parts {
			if sum(before) <= sum(limits) && part > limits[i] || part < min(before[i], limits[i]) {
				t.Fatalf("parts %v within %v: %v", before, limits, parts)
			}
		}
	})
}
