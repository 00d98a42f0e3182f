package katalyst

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// realMachines are the shapes of the machines in $POLDER_TOPOLOGIES.
func realMachines(t *testing.T) map[string]*tick.Topology {
	t.Helper()
	dir := os.Getenv("POLDER_TOPOLOGIES")
	if dir == "" || dir == "none" {
		if dir == "" && os.Getenv("CI") == "true" {
			t.Fatal("POLDER_TOPOLOGIES names no directory of real machines (none: do without)")
		}
		t.Skip("POLDER_TOPOLOGIES names no directory of real machines")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no machines in %s: %v", dir, err)
	}
	machines := map[string]*tick.Topology{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			Online string
			Core   []string
			L3     []struct{ CPUs string }
			Node   []struct {
				ID   int
				CPUs string
			}
		}
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		topology := &tick.Topology{CPUs: m.Online, Cores: m.Core}
		for _, l := range m.L3 {
			topology.L3 = append(topology.L3, l.CPUs)
		}
		for _, n := range m.Node {
			topology.NUMANodes = append(topology.NUMANodes, tick.TopologyNUMA{ID: n.ID, CPUs: n.CPUs})
		}
		machines[strings.TrimSuffix(filepath.Base(path), ".json")] = topology
	}
	return machines
}

// On real machines, whatever their numbering: pools of whole cores that divide the machine, a shared pool of what is
// needed, spread over the NUMA nodes to within a core, and moved by no more CPUs than its size changes.
func TestRealMachines(t *testing.T) {
	for name, topology := range realMachines(t) {
		t.Run(name, func(t *testing.T) {
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
	for _, list := range topology.Cores {
		core, err := cpus.Parse(list)
		if err != nil {
			t.Fatal(err)
		}
		if both := core.Intersection(share); !both.IsEmpty() && !both.Equals(core) {
			t.Errorf("core %s is split by share %s", list, share)
		}
	}
	least, most := 1<<30, 0
	for _, n := range topology.NUMANodes {
		node, err := cpus.Parse(n.CPUs)
		if err != nil {
			t.Fatal(err)
		}
		if !node.IsEmpty() {
			has := share.Intersection(node).Size()
			least, most = min(least, has), max(most, has)
		}
	}
	if most-least > 2 { // a core of two threads
		t.Errorf("share %s has %d to %d CPUs of a NUMA node; want them spread", share, least, most)
	}
}
