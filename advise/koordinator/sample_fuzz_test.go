package koordinator

import (
	"testing"
	"time"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// FuzzSample decides from arbitrary samples with arbitrary strategies: the offer is never negative, each cgroup is listed once with lists
// of online CPUs, and a state that was written and read can be used.
func FuzzSample(f *testing.F) {
	plain := encoded(f, nodeTick(0).Sample)
	for _, seed := range []string{
		plain,
		`{"intervalSeconds":1,"topology":{"cpus":"0-3","numaNodes":[{"id":0,"cpus":"0-1","memoryBytes":1e300},{"id":1,"cpus":"2-3","memoryBytes":0}]},"capacity":{"milliCPU":1e308,"memoryBytes":-1},"allocatable":{"milliCPU":-1e308,"memoryBytes":1e18},"cpu":{"usageMilliCPU":1e308},"memory":{"totalBytes":1e308,"availableBytes":-1},"annotations":{"node.koordinator.sh/reservation":"{\"reservedCPUs\":\"0-3\"}","node.koordinator.sh/cpu-normalization-ratio":"5","node.koordinator.sh/thirdPartyAllocations":"{\"allocations\":[{\"priority\":\"koord-batch\",\"resources\":{\"kubernetes.io/batch-cpu\":\"9E\"}}]}"},"pods":[{"uid":"u","name":"p","qos":"dedicated","labels":{"koordinator.sh/qosClass":"LSE"},"requests":{"milliCPU":1e308},"usageMilliCPU":-1,"cgroup":"/a"},{"uid":"u","name":"p","qos":"reclaimed","qosSource":"rule","cgroup":"/a","limits":{"reclaimedMilliCPU":1e308,"reclaimedMemoryBytes":-7}}],"config":{"koordinator":{"colocation":{"enable":true,"cpuReclaimThresholdPercent":9223372036854775807,"batchCPUThresholdPercent":0,"metricAggregateDurationSeconds":9223372036854775807,"degradeTimeMinutes":9223372036854775807},"resourceThreshold":{"enable":true,"cpuSuppressPolicy":"cfsQuota"},"cpuBurst":{"policy":"auto"},"resourceQOS":{"lsClass":{"memoryQOS":{"enable":true,"minLimitPercent":100}}}}}}`,
		`{"errors":[{"source":"config","error":"x"},{"source":"node","error":"x"}],"topology":{"cpus":"0"}}`, `{}`,
		`{"intervalSeconds":1e-300,"topology":{"cpus":"5,900-901"},"capacity":{},"cpu":{},"memory":{},"tiers":[{"name":"besteffort","cgroup":"relative"}],"pods":[{"phase":"Failed"},{"missing":"cluster","kubernetesQOS":"x"}]}`,
	} {
		f.Add(seed, plain)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		settings := Defaults()
		settings.ReservedCPUs = "0"
		d := New(settings)
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
			for _, offer := range []*tick.Reclaimed{a.Reclaimed, a.Mid} {
				if offer == nil {
					continue
				}
				if a.Withdrawn != "" {
					t.Errorf("withdrawn and offered: %s", text)
				}
				notLess(t, text, offer.MilliCPU, offer.MemoryBytes)
				for _, n := range offer.NUMANodes {
					notLess(t, text, n.MilliCPU, n.MemoryBytes)
				}
			}
			online := cpus.Set{}
			if s.Topology != nil {
				online, _ = cpus.Parse(s.Topology.CPUs)
			}
			for _, list := range [][]tick.Cgroup{a.Cgroups, a.Fallback} {
				for j, c := range list {
					if j > 0 && list[j-1].Cgroup >= c.Cgroup {
						t.Errorf("%q stands behind %q: %s", c.Cgroup, list[j-1].Cgroup, text)
					}
					set, err := cpus.Parse(c.CPUSetCPUs)
					if err != nil || len(a.Cgroups) > 0 && !set.IsSubsetOf(online) && sameTopology(first, second) {
						t.Errorf("cgroup %+v of %s: %v", c, text, err)
					}
					if c.CPUMaxMilliCPU != nil && *c.CPUMaxMilliCPU < tick.Unlimited || c.MemoryMaxBytes != nil && *c.MemoryMaxBytes < tick.Unlimited {
						t.Errorf("cgroup %+v of %s", c, text)
					}
				}
			}
			if _, err := tick.Marshal(a); err != nil {
				t.Errorf("advice of %s: %v", text, err)
			}
		}
	})
}

func notLess(t *testing.T, text string, amounts ...*int64) {
	t.Helper()
	for _, amount := range amounts {
		if amount != nil && *amount < 0 {
			t.Errorf("offer of %d: %s", *amount, text)
		}
	}
}

// sameTopology reports whether both samples have the same CPUs: the fallback may name those of the last tick.
func sameTopology(first, second string) bool { return first == second }
