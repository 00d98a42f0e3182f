package katalyst

import (
	"math/rand/v2"
	"testing"

	"polder/lib/cpus"
	"polder/lib/hosttest"
	"polder/lib/tick"
)

// realMachine returns a machine's topology as collect writes it.
func realMachine(m hosttest.Machine) *tick.Topology {
	a := m.Answer()
	topology := &tick.Topology{CPUs: a.CPUs, Cores: a.Cores, Sockets: a.Packages, L3: a.L3}
	for _, n := range a.Nodes {
		topology.NUMANodes = append(topology.NUMANodes, tick.TopologyNUMA{ID: n.ID, CPUs: n.CPUs})
	}
	return topology
}

// On real machines, with any numbering: pools of whole cores that divide the machine, a shared pool of the needed size, spread over the
// NUMA nodes to within a core, and moved by no more CPUs than its size changes.
func TestRealMachines(t *testing.T) {
	for _, m := range hosttest.Machines() {
		t.Run(m.Name, func(t *testing.T) {
			topology := realMachine(m)
			online, err := cpus.Parse(topology.CPUs)
			if err != nil {
				t.Fatal(err)
			}
			load := rand.New(rand.NewPCG(1, 2))
			d, before := New(Defaults()), cpus.Set{}
			for second := range 200 {
				need := load.Float64() * float64(online.Size()) * 1.2
				tk := at(float64(second*7), shared("a", need))
				tk.Sample.Topology = topology
				a := d.Decide(tk)
				share, err := cpus.Parse(poolsOf(a)["share"])
				if err != nil {
					t.Fatal(err)
				}
				reclaim, err := cpus.Parse(poolsOf(a)["reclaim"])
				if err != nil {
					t.Fatal(err)
				}
				if online.Size() < 8 { // divided by quota
					if !share.Union(reclaim).IsEmpty() {
						t.Fatalf("share %s, reclaim %s; want no pools of %s", share, reclaim, online)
					}
					continue
				}
				if !share.Union(reclaim).Equals(online) || !share.Intersection(reclaim).IsEmpty() || reclaim.Size() < 4 {
					t.Fatalf("share %s, reclaim %s; want them to divide %s, and 4 CPUs for the reclaimed side", share, reclaim, online)
				}
				if want := min(int(need+4), online.Size()-4); share.Size() < want {
					t.Errorf("share has %d CPUs with a need of %.2f; want at least %d", share.Size(), need, want)
				}
				checkCores(t, topology, share)
				if !before.IsEmpty() && !before.IsSubsetOf(share) && !share.IsSubsetOf(before) {
					t.Errorf("share went from %s to %s; want the fewest CPUs moved", before, share)
				}
				before = share
			}
		})
	}
}

func checkCores(t *testing.T, topology *tick.Topology, share cpus.Set) {
	t.Helper()
	largest := 0
	for _, list := range topology.Cores {
		core, err := cpus.Parse(list)
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, core.Size())
		if both := core.Intersection(share); !both.IsEmpty() && !both.Equals(core) {
			t.Errorf("core %s is split by share %s", list, share)
		}
	}
	minimum, maximum := 1<<30, 0
	for _, n := range topology.NUMANodes {
		node, err := cpus.Parse(n.CPUs)
		if err != nil {
			t.Fatal(err)
		}
		if !node.IsEmpty() {
			has := share.Intersection(node).Size()
			minimum, maximum = min(minimum, has), max(maximum, has)
		}
	}
	if maximum-minimum > largest {
		t.Errorf("share %s has %d to %d CPUs of a NUMA node; want them spread", share, minimum, maximum)
	}
}
