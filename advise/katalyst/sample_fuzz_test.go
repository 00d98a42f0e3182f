package katalyst

import (
	"testing"
	"time"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// FuzzSample decides from arbitrary samples: the offer is never negative nor more than the machine has, and every list has only online
// CPUs.
func FuzzSample(f *testing.F) {
	for _, seed := range []string{
		`{"intervalSeconds":1,"topology":{"cpus":"0-15","cores":["0,8","1,9"]},"memory":{"totalBytes":1e11},"pods":[{"uid":"u","name":"p","qos":"shared","cgroup":"/x","containers":[{"cgroup":"/x/c","usageMilliCPU":1e308,"load1":-1}]}]}`,
		`{"intervalSeconds":1,"topology":{"cpus":"0-15","numaNodes":[{"id":0,"cpus":"0-7"},{"id":0,"cpus":"0-15"}]},"pods":[{"name":"d","qos":"dedicated","cgroup":"/d","requests":{"milliCPU":1e9}},{"name":"d","qos":"dedicated","cgroup":"/d","requests":{"milliCPU":4000}}]}`,
		`{"intervalSeconds":1,"topology":{"cpus":"0-1"},"allocatable":{"milliCPU":-5},"capacity":{"memoryBytes":1e308},"pods":[{"qos":"reclaimed","cgroup":"/r","limits":{"milliCPU":1e308}}]}`,
		`{"topology":{"cpus":"5,900-901"}}`, `{}`,
		`{"intervalSeconds":1,"topology":{"cpus":"0-15","numaNodes":[{"id":0,"cpus":"0-7","memoryBytes":0},{"id":7,"cpus":"8-15"},{"id":9,"cpus":""}]},"numaNodes":[{"id":0,"memory":{"freeBytes":1}},{"id":7,"memory":{"freeBytes":1e300}},{"id":9,"memory":{"freeBytes":3}}],"kubelet":{"cpuManagerPolicy":"static","exclusiveCPUs":"14-15"},"cgroupVersion":1,"memory":{"totalBytes":1e11},"pods":[{"uid":"u","name":"d","qos":"dedicated","cgroup":"/kubepods/podd","annotations":{"katalyst.kubewharf.io/memory_enhancement":"{\"numa_binding\":\"true\",\"numa_exclusive\":\"true\"}"},"requests":{"milliCPU":2000}},{"name":"s","qos":"shared","startTime":"2026-01-01T00:00:00Z","cgroup":"/kubepods/besteffort/pods","annotations":{"katalyst.kubewharf.io/cpu_enhancement":"{\"cpuset_pool\":\"batch\"}"}},{"qos":"reclaimed","missing":"cgroup","terminating":true}]}`,
	} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		d := New(Defaults())
		for i, text := range []string{first, second, first} {
			var s tick.Sample
			if err := tick.Unmarshal([]byte(text), &s); err != nil {
				return
			}
			a := d.Decide(&tick.Tick{V: 1, Node: "n", Time: time.Unix(1_767_225_600+int64(i)*60, 0), Sample: &s})
			if len(a.Reasons) == 0 {
				t.Errorf("no reason for %s", text)
			}
			if a.Reclaimed == nil {
				continue
			}
			online, err := cpus.Parse(s.Topology.CPUs)
			if err != nil {
				t.Fatalf("decided with CPUs %q", s.Topology.CPUs)
			}
			if m := a.Reclaimed.MilliCPU; m == nil || *m < 0 || *m > int64(online.Size())*1000 {
				t.Errorf("reclaimed CPU of %s = %v", text, m)
			}
			if m := a.Reclaimed.MemoryBytes; m != nil && *m < 0 {
				t.Errorf("reclaimed memory of %s = %d", text, *m)
			}
			for _, p := range a.Pools {
				if set, err := cpus.Parse(p.CPUs); err != nil || !set.IsSubsetOf(online) {
					t.Errorf("pool %+v of %s: %v", p, text, err)
				}
			}
			for _, c := range append(a.Cgroups, a.Fallback...) {
				if set, err := cpus.Parse(c.CPUSetCPUs); err != nil || !set.IsSubsetOf(online) || c.CPUMaxMilliCPU != nil && *c.CPUMaxMilliCPU < tick.Unlimited {
					t.Errorf("cgroup %+v of %s: %v", c, text, err)
				}
			}
			if _, err := tick.Marshal(a); err != nil {
				t.Errorf("advice of %s: %v", text, err)
			}
		}
	})
}
