package harvest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// onNodes is [machine] with the services' use by NUMA node, and batch's on the CPUs that it has.
func onNodes(batch cpus.Set, services ...float64) *tick.Sample {
	sum := 0.0
	for _, use := range services {
		sum += use
	}
	s := machine(sum)
	for i, use := range services {
		node, _ := cpus.Parse(s.Topology.NUMANodes[i].CPUs)
		part := 3000 * float64(node.Intersection(batch).Size()) / float64(batch.Size())
		s.NUMANodes = append(s.NUMANodes, tick.NUMASample{ID: i, UsageMilliCPU: new(use + part)})
	}
	return s
}

// nodesOfBatch decides once a second and returns how many CPUs batch has on each node at the end, and how often they changed.
func nodesOfBatch(t *testing.T, d *Decider, from, seconds int, services func(second int) []float64) (perNode [2]int, changes int) {
	t.Helper()
	batch, _ := cpus.Parse("0-15")
	for i := range seconds {
		a := d.Decide(at(time.Duration(from+i)*time.Second, onNodes(batch, services(from+i)...)))
		next := cpusOf(t, a.Cgroups)
		if i > 0 && !next.Equals(batch) {
			changes++
		}
		batch = next
	}
	for i, list := range []string{"0-3,8-11", "4-7,12-15"} {
		node, _ := cpus.Parse(list)
		perNode[i] = batch.Intersection(node).Size()
	}
	return perNode, changes
}

// Batch leaves the node on which the services run, and follows them when they move: core by core, and not to and fro.
func TestBatchLeavesWhereServicesRun(t *testing.T) {
	d := New(withoutLimits())
	first := func(int) []float64 { return []float64{4000, 0} }
	if got, _ := nodesOfBatch(t, d, 0, 60, first); got != [2]int{2, 8} {
		t.Errorf("services use 4 CPUs of node 0: batch has %v", got)
	}
	second := func(int) []float64 { return []float64{0, 4000} }
	got, changes := nodesOfBatch(t, d, 60, 300, second)
	if got != [2]int{8, 2} {
		t.Errorf("services moved to node 1: batch has %v", got)
	}
	if changes > 6 { // three cores move, and estimates settle
		t.Errorf("%d changes", changes)
	}
}

// Where the services are spread, a little more here or there moves nothing.
func TestSpreadServicesMoveNothing(t *testing.T) {
	d := New(withoutLimits())
	r := rand.New(rand.NewPCG(1, 2))
	uneven := func(int) []float64 {
		more := r.Float64() * 300
		return []float64{2150 - more, 1850 + more}
	}
	if _, changes := nodesOfBatch(t, d, 0, 60, uneven); changes > 2 {
		t.Errorf("%d changes while the first cores are chosen", changes)
	}
	if got, changes := nodesOfBatch(t, d, 60, 600, uneven); changes > 0 {
		t.Errorf("%d changes in ten minutes; batch has %v", changes, got)
	}
}

// Where the use of one node, or of a batch pod, is not known, cores are kept on all nodes in turn, as before.
func TestUnknownUseOfANodeIsNotZero(t *testing.T) {
	all, _ := cpus.Parse("0-15")
	for name, change := range map[string]func(*tick.Sample){
		"a node is missing":        func(s *tick.Sample) { s.NUMANodes = s.NUMANodes[:1] },
		"a node's use is unknown":  func(s *tick.Sample) { s.NUMANodes[1].UsageMilliCPU = nil },
		"a node's use is nonsense": func(s *tick.Sample) { s.NUMANodes[1].UsageMilliCPU = new(-1.0) },
		"batch's use is unknown":   func(s *tick.Sample) { s.Pods[1].UsageMilliCPU = nil },
	} {
		s := onNodes(all, 4000, 0)
		change(s)
		a := New(withoutLimits()).Decide(at(0, s))
		got := cpusOf(t, a.Cgroups)
		s.NUMANodes = nil
		if want := cpusOf(t, New(withoutLimits()).Decide(at(0, s)).Cgroups); !got.Equals(want) {
			t.Errorf("%s: batch has %s; want %s", name, got, want)
		}
		if strings.Contains(said(t, a), "NUMA") {
			t.Errorf("%s: %s", name, said(t, a))
		}
	}
}

// However the CPUs are split over the nodes, as many whole cores are kept as without a split, within the same limit.
func TestSplitKeepsAsMany(t *testing.T) {
	n := &node{}
	if err := n.see(machine(0).Topology, "3", "12"); err != nil { // two cores have a single CPU that batch may have
		t.Fatal(err)
	}
	sh := n.shape
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		before := cpus.Set{}
		for _, c := range sh.Cores {
			if r.IntN(2) == 0 {
				before = before.Union(c.CPUs.Intersection(sh.Avail))
			}
		}
		want, limit := r.IntN(18), r.IntN(15)
		split := []float64{r.Float64() * 16, r.Float64() * 16}
		got := sh.resizeBy(before, want, limit, split)
		if got.IsEmpty() || !got.IsSubsetOf(sh.Avail) {
			t.Fatalf("%s, want %d, limit %d, split %v: %s", before, want, limit, split, got)
		}
		for _, c := range sh.Cores {
			if own := c.CPUs.Intersection(sh.Avail); !own.IsSubsetOf(got) && !own.Intersection(got).IsEmpty() {
				t.Fatalf("core %s is divided by %s", c.CPUs, got)
			}
		}
		if got.Size() > max(limit, sh.LargestCore()) {
			t.Fatalf("%s, want %d, limit %d, split %v: %s", before, want, limit, split, got)
		}
		if least := min(max(want, 1), limit-sh.LargestCore()); got.Size() < least {
			t.Fatalf("%s, want %d, limit %d, split %v: %s has fewer than %d", before, want, limit, split, got, least)
		}
		again := got
		for range 8 { // it settles
			again = sh.resizeBy(again, want, limit, split)
		}
		if next := sh.resizeBy(again, want, limit, split); !next.Equals(again) {
			t.Fatalf("want %d, limit %d, split %v: %s becomes %s", want, limit, split, again, next)
		}
	}
}

// A state file's uses of nodes are bounded, and those of another machine forgotten.
func TestUsesOfNodesInAStateFile(t *testing.T) {
	all, _ := cpus.Parse("0-15")
	for _, use := range [][]float64{{1e308, -1e308}, {1}, {1, 2, 3}} {
		d := New(withoutLimits())
		n := &node{Place: place{NUMA: &byNUMA{Use: use, At: start.Add(-time.Second)}}}
		d.Nodes["n"] = n
		d.Decide(at(0, onNodes(all, 4000, 0)))
		if got := n.Place.NUMA.Use; len(got) != 2 || slices.Max(got) > maxNUMAMilliCPU || slices.Min(got) < 0 {
			t.Errorf("%v becomes %v", use, got)
		}
	}
}
