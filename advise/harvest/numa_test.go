package harvest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// onNodes returns [machine] with the services' use by NUMA node, and batch's on its CPUs.
func onNodes(batch cpus.Set, services ...float64) *tick.Sample {
	sum := 0.0
	for _, use := range services {
		sum += use
	}
	s := machine(sum)
	s.CPU = nil // what is idle is unknown: batch leaves as many CPUs as services use, and a core
	for i, use := range services {
		node, _ := cpus.Parse(s.Topology.NUMANodes[i].CPUs)
		part := 3000 * float64(node.Intersection(batch).Size()) / float64(batch.Size())
		s.NUMANodes = append(s.NUMANodes, tick.NUMASample{ID: i, UsageMilliCPU: new(use + part)})
	}
	return s
}

// nodesOfBatch decides once per second and returns the number of batch's CPUs on each node at the end, and how often they changed.
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

// Batch leaves the node on which the services run, and follows them when they move: core by core, without oscillation.
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
	if changes > 6 { // three cores move, and estimates converge
		t.Errorf("%d changes", changes)
	}
}

// If the services are spread, small changes move nothing.
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

// If the use of one node, or of a batch pod, is unknown, cores are kept on all nodes in turn.
func TestUnknownUseOfANodeIsNotZero(t *testing.T) {
	all, _ := cpus.Parse("0-15")
	for name, change := range map[string]func(*tick.Sample){
		"a node is missing":        func(s *tick.Sample) { s.NUMANodes = s.NUMANodes[:1] },
		"a node's use is unknown":  func(s *tick.Sample) { s.NUMANodes[1].UsageMilliCPU = nil },
		"a node's use is nonsense": func(s *tick.Sample) { s.NUMANodes[1].UsageMilliCPU = new(-1.0) },
		"batch's use is unknown":   func(s *tick.Sample) { forget(&s.Pods[1]) },
	} {
		s := onNodes(all, 4000, 0)
		change(s)
		a := New(withoutLimits()).Decide(at(0, s))
		got := cpusOf(t, a.Cgroups)
		s.NUMANodes = nil
		if want := cpusOf(t, New(withoutLimits()).Decide(at(0, s)).Cgroups); !got.Equals(want) {
			t.Errorf("%s: batch has %s; want %s", name, got, want)
		}
		if strings.Contains(placeReason(t, a), "NUMA") {
			t.Errorf("%s: %s", name, placeReason(t, a))
		}
	}
}

// Any split of the CPUs over the nodes keeps as many whole cores as no split does, within the same limit.
func TestSplitKeepsAsMany(t *testing.T) {
	n := &node{}
	if err := n.updateShape(machine(0).Topology, "3", "12"); err != nil { // two cores have a single CPU that batch may use
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
		got := sh.resizeBySplit(before, want, limit, split)
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
		if minimum := min(max(want, 1), limit-sh.LargestCore()); got.Size() < minimum {
			t.Fatalf("%s, want %d, limit %d, split %v: %s has fewer than %d", before, want, limit, split, got, minimum)
		}
		again := got
		for range 8 { // until it converges
			again = sh.resizeBySplit(again, want, limit, split)
		}
		if next := sh.resizeBySplit(again, want, limit, split); !next.Equals(again) {
			t.Fatalf("want %d, limit %d, split %v: %s becomes %s", want, limit, split, again, next)
		}
	}
}

// A state file's uses of nodes are bounded, and those of another machine are discarded.
func TestUsesOfNodesInAStateFile(t *testing.T) {
	all, _ := cpus.Parse("0-15")
	for _, use := range [][]float64{{1e308, -1e308}, {1}, {1, 2, 3}} {
		d := New(withoutLimits())
		n := &node{Placement: placement{NUMA: &numaUse{Use: use, At: start.Add(-time.Second)}}}
		d.Nodes["n"] = n
		d.Decide(at(0, onNodes(all, 4000, 0)))
		if got := n.Placement.NUMA.Use; len(got) != 2 || slices.Max(got) > maxNUMAMilliCPU || slices.Min(got) < 0 {
			t.Errorf("%v becomes %v", use, got)
		}
	}
}

// The services' use on a node is its mean over about the last minute; after the clock was set back it is the current use.
func TestUseOfANodeIsAMean(t *testing.T) {
	s := &tick.Sample{NUMANodes: []tick.NUMASample{{ID: 0, UsageMilliCPU: new(0.0)}, {ID: 1, UsageMilliCPU: new(4000.0)}}}
	for after, want := range map[time.Duration][]float64{
		0: {4000, 0}, numaHalfLife: {2000, 2000}, 2 * numaHalfLife: {1000, 3000}, -time.Second: {0, 4000},
	} {
		before := &numaUse{Use: []float64{4000, 0}, At: start}
		got := before.observe(start.Add(after), s, shapeOf(t, ""), []uint64{8, 8})
		if diff := cmp.Diff(want, got.Use, near); diff != "" || !got.At.Equal(start.Add(after)) {
			t.Errorf("after %s (-want +got):\n%s", after, diff)
		}
	}
}

// shapeOf returns the shape of [machine] with kubelet's exclusive CPUs.
func shapeOf(t *testing.T, exclusive string) *shape {
	t.Helper()
	n := &node{}
	if err := n.updateShape(machine(0).Topology, "", exclusive); err != nil {
		t.Fatal(err)
	}
	return n.shape
}

// Batch's use is subtracted from the nodes in proportion to its CPUs there, and that of pods with exclusive CPUs likewise; that of the other
// services is not. An idle node is known.
func TestServicesUseOfANode(t *testing.T) {
	ended := podOf("old", tick.QoSReclaimed, 5000)
	ended.Phase = "Succeeded"
	web, spark := podOf("web", tick.QoSShared, 4000), podOf("spark", tick.QoSReclaimed, 4000)
	exclusive := func(list string) tick.Pod {
		p := podOf("own", tick.QoSDedicated, 3000)
		p.Containers = []tick.Container{{Cgroup: "/own/main", CPUSetCPUs: list}}
		return p
	}
	unknown, starting := exclusive("0-1,4"), exclusive("0-1,4")
	unknown.UsageMilliCPU, starting.UsageMilliCPU, starting.Missing = nil, nil, tick.MissingCgroup
	half := exclusive("0-1,4")
	half.Containers[0].UsageMilliCPU = new(1500.0)
	half.Containers = append(half.Containers, tick.Container{Cgroup: "/own/sidecar", CPUSetCPUs: "2-3,5-15"})
	for _, tt := range []struct {
		name  string
		uses  [2]float64
		pods  []tick.Pod
		batch []uint64
		want  []float64
	}{
		{"batch is spread", [2]float64{6000, 2000}, []tick.Pod{web, spark}, []uint64{4, 4}, []float64{4000, 0}},
		{"batch has more of a node", [2]float64{3000, 5000}, []tick.Pod{web, spark}, []uint64{2, 6}, []float64{2000, 2000}},
		{"batch that has ended uses nothing", [2]float64{3000, 1000}, []tick.Pod{web, ended}, []uint64{4, 4}, []float64{3000, 1000}},
		{"batch has no CPUs", [2]float64{3000, 1000}, []tick.Pod{web, spark}, []uint64{0, 0}, []float64{3000, 1000}},
		{"a node is idle", [2]float64{4000, 0}, []tick.Pod{web}, []uint64{4, 4}, []float64{4000, 0}},
		{"a pod has exclusive CPUs", [2]float64{6000, 1000}, []tick.Pod{web, exclusive("0-1,4")}, []uint64{4, 4}, []float64{4000, 0}},
		{"a part of a pod has them", [2]float64{6000, 1000}, []tick.Pod{web, half}, []uint64{4, 4}, []float64{5000, 500}},
		{"it also uses other CPUs", [2]float64{2500, 1000}, []tick.Pod{web, exclusive("0-1")}, []uint64{4, 4}, []float64{0, 1000}},
		{"kubelet did not give it these CPUs", [2]float64{6000, 1000}, []tick.Pod{web, exclusive("2")}, []uint64{4, 4}, []float64{6000, 1000}},
		{"its use is unknown", [2]float64{6000, 1000}, []tick.Pod{web, unknown}, []uint64{4, 4}, nil},
		{"it has not started", [2]float64{6000, 1000}, []tick.Pod{web, starting}, []uint64{4, 4}, []float64{6000, 1000}},
	} {
		s := &tick.Sample{Pods: tt.pods}
		for i := range tt.uses {
			s.NUMANodes = append(s.NUMANodes, tick.NUMASample{ID: i, UsageMilliCPU: &tt.uses[i]})
		}
		if diff := cmp.Diff(tt.want, servicesByNUMA(s, shapeOf(t, "0-1,4"), tt.batch), near); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// The kept CPUs are split in proportion to the services' use, in halves; the reason states how many each node has and why.
func TestSplitIsAsTheServicesUse(t *testing.T) {
	for _, tt := range []struct {
		use  []float64
		want int
		list []float64
	}{
		{[]float64{3000, 1000}, 8, []float64{6, 2}},
		{[]float64{1000, 1000}, 5, []float64{2.5, 2.5}},
		{[]float64{0, 700}, 6, []float64{0, 6}},
		{[]float64{0.4, 0.4}, 6, nil},
	} {
		if diff := cmp.Diff(tt.list, (&numaUse{Use: tt.use}).split(tt.want)); diff != "" {
			t.Errorf("%d CPUs by %v (-want +got):\n%s", tt.want, tt.use, diff)
		}
	}
	sh, d := &shape{allNUMA: []uint64{8, 8}}, &division{withoutBatchNUMA: []uint64{6, 2}}
	if got, want := (&numaUse{Use: []float64{4000, 500}}).text(sh, d), "; CPUs without batch by NUMA node: 6 of 8 for 4000m, 2 of 8 for 500m"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
	if got := (&numaUse{Use: []float64{4000}}).text(sh, d); got != "" {
		t.Errorf("of another machine: %q", got)
	}
}

// As few cores move as possible: the first core of the node that exceeds its part most is removed, the last of the one that lacks most is
// added, and one core moves if a node lacks a whole one and another has one too many. Node 0 has the cores 0 to 3, node 1 the others.
func TestWhichCoresMove(t *testing.T) {
	n := &node{}
	if err := n.updateShape(machine(0).Topology, "", ""); err != nil {
		t.Fatal(err)
	}
	set := func(cores []int) (s cpus.Set) {
		for _, c := range cores {
			s = s.Union(cpus.New(c, c+8))
		}
		return s
	}
	for _, tt := range []struct {
		name     string
		has      []int
		n, limit int
		split    []float64
		want     []int
	}{
		{"the node with more than its part loses one", []int{0, 1, 4}, 4, 14, []float64{4, 0}, []int{0, 1}},
		{"its first one", []int{0, 1, 2}, 4, 14, []float64{4, 0}, []int{1, 2}},
		{"the last ones of the node that lacks some come", nil, 4, 14, []float64{4, 0}, []int{2, 3}},
		{"up to the limit", []int{0}, 6, 6, []float64{6, 0}, []int{0, 2, 3}},
		{"what is at its limit stays", []int{0, 1, 2}, 6, 6, []float64{6, 0}, []int{0, 1, 2}},
		{"a single core stays, though it has more than the limit", []int{0}, 1, 1, []float64{1, 0}, []int{0}},
		{"one moves", []int{0, 1, 2, 5}, 8, 14, []float64{4, 4}, []int{1, 2, 5, 7}},
		{"one moves to a node's first", []int{1, 2, 3, 4, 5}, 10, 14, []float64{8, 2}, []int{0, 1, 2, 3, 5}},
		{"none moves if less than a core is missing", []int{0, 1, 2, 5}, 7, 14, []float64{4, 3}, []int{0, 1, 2, 5}},
		{"nor where less than a core is too many", []int{0, 1, 5}, 6, 6, []float64{3, 5}, []int{0, 1, 5}},
	} {
		if got := n.shape.resizeBySplit(set(tt.has), tt.n, tt.limit, tt.split); !got.Equals(set(tt.want)) {
			t.Errorf("%s: cores %v become CPUs %s; want %s", tt.name, tt.has, got, set(tt.want))
		}
	}
}

// While the use of a node is unknown the last one stays for a minute, unless it is of another time or machine.
func TestUnknownUseOfANodeStaysForAMinute(t *testing.T) {
	sh, s := shapeOf(t, ""), onNodes(cpus.New(), 1000, 2000)
	s.NUMANodes = nil
	for name, tt := range map[string]struct {
		last  *numaUse
		after time.Duration
		stays bool
	}{
		"at once":             {&numaUse{Use: []float64{1, 2}, At: start}, 0, true},
		"a minute":            {&numaUse{Use: []float64{1, 2}, At: start}, time.Minute, true},
		"longer":              {&numaUse{Use: []float64{1, 2}, At: start}, time.Minute + 1, false},
		"the clock, set back": {&numaUse{Use: []float64{1, 2}, At: start}, -1, false},
		"another machine":     {&numaUse{Use: []float64{1, 2, 3}, At: start}, 0, false},
		"none":                {nil, 0, false},
	} {
		if got := tt.last.observe(start.Add(tt.after), s, sh, []uint64{0, 0}); (got != nil) != tt.stays || got != nil && got != tt.last {
			t.Errorf("%s: %+v; want the last one: %t", name, got, tt.stays)
		}
	}
}
