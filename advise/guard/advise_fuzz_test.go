package guard

import (
	"testing"
	"time"

	"polder/advise/class"
	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// FuzzAdvise runs the guard on arbitrary samples, with arbitrary advice and after an arbitrary state: its values are never wider than the
// policy's, no list is empty, no value is one that the kernel refuses, and the state is bounded and can be written again.
func FuzzAdvise(f *testing.F) {
	const sample = `{"cgroupVersion":2,"topology":{"cpus":"0-7","cores":["0,4","1,5","x","0-7"]},"cpu":{"pressure":{"some":{"avg10":1e300}}},"pods":[
		{"uid":"w","name":"w","qos":"shared","cgroup":"/w","usageMilliCPU":1e308,"cpuWaitPermille":1e308,"memoryPressure":{"some":{"avg10":99}},"ioPressure":{"some":{"avg10":-1}}},
		{"uid":"j","name":"j","qos":"reclaimed","cgroup":"/b/j","usageMilliCPU":6000,"memory":{"usageBytes":1e308},"limits":{"milliCPU":-5}},
		{"uid":"k","name":"k","qos":"reclaimed","cgroup":"/b/k","usageMilliCPU":1e308,"containers":[{"cgroup":"/b/k/c","usageMilliCPU":-1},{"cgroup":"x"},{"cgroup":"/"}]}]}`
	const advice = `{"policy":"x","cgroups":[{"cgroup":"/b","cpuMaxMilliCPU":5000},{"cgroup":"/b/j","cpusetCPUs":"0-7","memoryHighBytes":1},{"cgroup":"/b/k/c","cpusetCPUs":"8191"}],"fallback":[{"cgroup":"/b/j","cpusetCPUs":"9"},{"cgroup":"/b","cpuMaxMilliCPU":-1}]}`
	const state = `{"services":{"w":{"seen":"2026-11-22T11:59:00Z","cpu":[0,1e308,-1e308,1e308]},"x":null},"batch":{"/b":{"quota":true,"memory":true,"base":-9223372036854775808,"floor":9223372036854775807,"bytes":-1},"/b/j":null,"":{"quota":true}},
		"steps":[{"kind":"CPUs","at":"9999-01-01T00:00:00Z"},{"kind":"quota","use":-1},{"kind":"quota"},{"kind":"quota"},{"kind":"quota"},{"kind":"memory"},{"kind":"no"}],"hold":-1,"overTicks":-9223372036854775808,"known":"9999-01-01T00:00:00Z"}`
	f.Add(`{}`, `{}`, `{}`, 0.0)
	f.Add(sample, advice, `{}`, 0.0)
	f.Add(sample, advice, state, 0.0)
	f.Add(sample, `{}`, state, 1e5)
	// A limit below the kernel's least, to which the quota is reverted.
	f.Add(`{"cgroupVersion":2,"pods":[{"uid":"j","name":"j","qos":"reclaimed","cgroup":"/b/j","usageMilliCPU":6,"limits":{"milliCPU":5}}]}`,
		`{}`, `{"batch":{"/b/j":{"quota":true}}}`, 0.0)
	f.Add(`{"cgroupVersion":2,"pods":[{"uid":"j","name":"j","qos":"reclaimed","cgroup":"/b/j","usageMilliCPU":6,"limits":{"milliCPU":1e308}}]}`,
		`{}`, `{"batch":{"/b/j":{"quota":true}}}`, 0.0)
	f.Fuzz(func(t *testing.T, sample, advice, state string, target float64) {
		x := &tick.Tick{V: 1, Node: "n", Sample: new(tick.Sample)}
		var policyCgroups tick.Advice
		var st *State
		if tick.Unmarshal([]byte(sample), x.Sample) != nil || tick.Unmarshal([]byte(advice), &policyCgroups) != nil || x.Sample == nil {
			return
		}
		if tick.Unmarshal([]byte(state), &st) != nil {
			st = nil
		}
		s := Settings{Mode: On, MarginPermille: 20}
		if target > 0 {
			s.TargetPermille = target
		}
		for i := range 12 {
			x.Time = begin.Add(time.Duration(i) * 7 * time.Second)
			a := policyCgroups
			if s.Mode = On; i == 10 {
				s.Mode = Off
			}
			st = st.Advise(x, &a, s, class.Machine{MilliCPU: 8000, FloorMilliCPU: 800, CgroupVersion: x.Sample.CgroupVersion})
			checkTighter(t, policyCgroups.Cgroups, a.Cgroups)
			checkTighter(t, policyCgroups.Fallback, a.Fallback)
			if st != nil && (len(st.Services) > maxServices || len(st.Steps) > 11) {
				t.Fatalf("%d services, %d steps are remembered", len(st.Services), len(st.Steps))
			}
			if _, err := tick.Marshal(st); err != nil {
				t.Fatalf("what is remembered cannot be written: %v", err)
			}
		}
	})
}

// checkTighter compares the guard's entries with the policy's, one by one: the guard's own come after them.
func checkTighter(t *testing.T, before, after []tick.Cgroup) {
	t.Helper()
	for i := range after {
		previous, current := tick.Cgroup{}, after[i]
		if i < len(before) {
			previous = before[i]
		}
		if previous.CPUSetCPUs != current.CPUSetCPUs {
			wide, err := cpus.Parse(previous.CPUSetCPUs)
			narrow, bad := cpus.Parse(current.CPUSetCPUs)
			if err != nil || bad != nil || narrow.IsEmpty() || !narrow.IsSubsetOf(wide) {
				t.Fatalf("cgroup %q: list %q became %q", current.Cgroup, previous.CPUSetCPUs, current.CPUSetCPUs)
			}
		}
		for _, limit := range []struct {
			name              string
			previous, current *int64
			minimum           int64
		}{
			{"quota", previous.CPUMaxMilliCPU, current.CPUMaxMilliCPU, policy.MinQuotaMilliCPU},
			{"memory.high", previous.MemoryHighBytes, current.MemoryHighBytes, minMemory},
		} {
			switch {
			case limit.previous == limit.current:
			case limit.current == nil:
				t.Fatalf("cgroup %q: %s %d was removed", current.Cgroup, limit.name, *limit.previous)
			case limit.previous != nil && *limit.previous >= 0 && (*limit.current < 0 || *limit.current > *limit.previous):
				t.Fatalf("cgroup %q: %s %d became %d", current.Cgroup, limit.name, *limit.previous, *limit.current)
			case *limit.current != tick.Unlimited && *limit.current < limit.minimum && (limit.previous == nil || *limit.current != *limit.previous):
				t.Fatalf("cgroup %q: %s %d", current.Cgroup, limit.name, *limit.current)
			}
		}
	}
}
