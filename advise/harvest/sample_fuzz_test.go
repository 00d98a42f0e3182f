package harvest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// FuzzSample decides from arbitrary samples and states: the offer is never negative nor more than the machine, each cgroup is listed once
// and has online CPUs, and a state that was written and read can be used.
func FuzzSample(f *testing.F) {
	plain := encoded(f, machine(4000))
	state := `{"n":{"cpu":{"seen":"2026-01-01T00:00:00Z","use":-9,"hour":[{"at":"2027-01-01T00:00:00Z","use":1e300}],"spans":[{"class":-1},{"class":99}],"growths":[[-1,1e300],[],[5]]},"offered":{"part":-1e300,"known":true},"pods":{"of":{"x":null}},"place":{"bursts":[-1],"uses":[{"use":1e300}],"kept":"a-b"},"given":"?","known":"2026-01-01T00:00:00Z","seen":"2026-01-01T00:00:00Z","reclaimed":{"milliCPU":-5},"reservation":{"milliCPU":1e300,"memoryBytes":-1}},"m":null}`
	for _, seed := range []string{
		plain,
		`{"topology":{"cpus":"0-15","numaNodes":[{"id":3,"cpus":"0-7"}]},"cpu":{"usageMilliCPU":1e308},"memory":{"totalBytes":1e308,"availableBytes":-1},"allocatable":{"milliCPU":-1,"memoryBytes":1e308},"pods":[{"qos":"shared","usageMilliCPU":-5,"requests":{"milliCPU":1e308,"memoryBytes":1e308}},{"qos":"reclaimed","cgroup":"/a","usageMilliCPU":1e308},{"qos":"reclaimed","cgroup":"/a"},{"qos":"reclaimed","cgroup":"/"},{"qos":"reclaimed","containers":[{"cgroup":"/b"},{"cgroup":"c"}]}]}`,
		`{"topology":{"cpus":"0-900"},"kubelet":{"exclusiveCPUs":"0-900"},"cpu":{"usageMilliCPU":0}}`, `{}`,
		`{"topology":{"cpus":"5,900-901"},"cpu":{"usageMilliCPU":1},"capacity":{},"memory":{},"tiers":[{"name":"besteffort","cgroup":"relative"}]}`,
	} {
		f.Add(seed, plain, state)
	}
	f.Fuzz(func(t *testing.T, first, second, state string) {
		d := New(Defaults())
		if tick.Unmarshal([]byte(state), d.State()) != nil {
			d = New(Defaults())
		}
		for i, text := range []string{first, second, first, first} {
			var s tick.Sample
			if err := tick.Unmarshal([]byte(text), &s); err != nil {
				return
			}
			if i == 2 {
				next := New(Defaults())
				if err := tick.Unmarshal([]byte(encoded(t, d.State())), next.State()); err != nil {
					t.Fatalf("the state cannot be read: %v", err)
				}
				d = next
			}
			a := d.Decide(&tick.Tick{V: 1, Node: "n", Time: start.Add(time.Duration(i) * 90 * time.Second), Sample: &s})
			if len(a.Reasons) == 0 {
				t.Errorf("no reason for %s", text)
			}
			online := cpus.Set{}
			if s.Topology != nil {
				online, _ = cpus.Parse(s.Topology.CPUs)
			}
			isRepeated := slices.ContainsFunc(a.Reasons, func(reason string) bool {
				return strings.Contains(reason, "the last offer stays until")
			})
			if r := a.Reclaimed; r != nil && !isRepeated { // that one is of an earlier sample, or of any state file
				sum := int64(0)
				for _, numa := range r.NUMANodes {
					sum += *numa.MilliCPU
				}
				if *r.MilliCPU < 0 || *r.MilliCPU > int64(online.Size())*1000 || len(r.NUMANodes) > 0 && sum != *r.MilliCPU || r.MemoryBytes != nil && *r.MemoryBytes < 0 {
					t.Errorf("offer of %d, %v by NUMA nodes, of %s", *r.MilliCPU, sum, text)
				}
				for _, list := range [][]tick.Cgroup{a.Cgroups, a.Fallback} {
					for j, c := range list {
						if j > 0 && list[j-1].Cgroup >= c.Cgroup {
							t.Errorf("%q stands behind %q: %s", c.Cgroup, list[j-1].Cgroup, text)
						}
						if set, err := cpus.Parse(c.CPUSetCPUs); err != nil || !set.IsSubsetOf(online) {
							t.Errorf("cgroup %+v of %s: %v", c, text, err)
						}
					}
				}
			}
			encoded(t, a)
		}
	})
}

func encoded(t testing.TB, v any) string {
	t.Helper()
	text, err := tick.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
