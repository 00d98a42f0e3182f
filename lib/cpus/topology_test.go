package cpus

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// guide is the 48-CPU node of Katalyst's guide: two NUMA nodes, siblings i and i+24.
func guide(t testing.TB) *Topology {
	t.Helper()
	s := Shape{Online: "0-47", L3: []string{"0-11,24-35", "12-23,36-47"}, NUMA: map[int]string{0: "0-11,24-35", 1: "12-23,36-47"}}
	for i := range 24 {
		s.Cores = append(s.Cores, fmt.Sprintf("%d,%d", i, i+24))
	}
	return mustTopology(t, s)
}

func mustTopology(t testing.TB, s Shape) *Topology {
	t.Helper()
	topology, err := NewTopology(s)
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func mustParse(t testing.TB, list string) Set {
	t.Helper()
	s, err := Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestResizeAsTheGuideShows(t *testing.T) {
	topology := guide(t)
	for _, c := range []struct {
		n              int
		share, reclaim string
	}{
		{4, "11,23,35,47", "0-10,12-22,24-34,36-46"},
		{5, "11,22-23,35,46-47", "0-10,12-21,24-34,36-45"},
		{6, "11,22-23,35,46-47", "0-10,12-21,24-34,36-45"},
		{8, "10-11,22-23,34-35,46-47", "0-9,12-21,24-33,36-45"},
		{44, "1-11,13-23,25-35,37-47", "0,12,24,36"},
	} {
		share := topology.Resize(topology.Online, Set{}, c.n, 44)
		reclaim := topology.Online.Difference(share)
		if share.String() != c.share || reclaim.String() != c.reclaim {
			t.Errorf("Resize to %d = %s | %s; want %s | %s", c.n, share, reclaim, c.share, c.reclaim)
		}
	}
}

func TestResizeOnOddMachines(t *testing.T) {
	hybrid := Shape{Online: "0-15", Cores: []string{"0-1", "2-3", "4-5", "6-7", "8", "9", "10", "11", "12", "13", "14", "15"}}
	for _, c := range []struct {
		name           string
		shape          Shape
		avail, present string
		n, limit       int
		want           string
	}{
		{"services keep the cores with hyperthreads", hybrid, "0-15", "", 4, 12, "4-7"},
		{"the slow cores of a hybrid machine come after", hybrid, "0-15", "", 9, 12, "0-7,15"},
		{"SMT4 grows by whole cores", Shape{Online: "0-15", Cores: []string{"0-3", "4-7", "8-11", "12-15"}}, "0-15", "", 5, 12, "8-15"},
		{"a core over the limit is not taken", Shape{Online: "0-15", Cores: []string{"0-3", "4-7", "8-11", "12-15"}}, "0-15", "", 11, 11, "8-15"},
		{"but the first core is, whatever the limit", Shape{Online: "0-15", Cores: []string{"0-3", "4-7", "8-11", "12-15"}}, "0-15", "", 1, 1, "12-15"},
		{"no cores known", Shape{Online: "0-7"}, "0-7", "", 3, 4, "5-7"},
		{"an offline sibling's core counts as one CPU, and goes to the reclaimed side first", Shape{Online: "1-7", Cores: []string{"0,4", "1,5", "2,6", "3,7"}}, "1-7", "", 4, 5, "2-3,6-7"},
		{"what is present stays", Shape{Online: "0-7"}, "0-7", "0-1", 4, 6, "0-1,6-7"},
		{"shrinks by the reclaimed side's first", Shape{Online: "0-7"}, "0-7", "2-7", 3, 6, "5-7"},
		{"present CPUs that are gone are not missed", Shape{Online: "0-7"}, "0-5", "4-7", 2, 6, "4-5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := mustTopology(t, c.shape).Resize(mustParse(t, c.avail), mustParse(t, c.present), c.n, c.limit)
			if got.String() != c.want {
				t.Errorf("Resize(%s, %s, %d, %d) = %s; want %s", c.avail, c.present, c.n, c.limit, got, c.want)
			}
		})
	}
}

func TestTakeNear(t *testing.T) {
	epyc := Shape{Online: "0-15", L3: []string{"0-3", "4-7", "8-11", "12-15"}, NUMA: map[int]string{0: "0-7", 1: "8-15"}}
	for _, c := range []struct {
		name         string
		avail, avoid string
		n            int
		want         string
	}{
		{"one L3 where it fits", "0-15", "", 4, "0-3"},
		{"the tightest NUMA node", "0-7,8-12", "", 4, "8-11"},
		{"the tightest L3", "0-2,4-7", "", 3, "0-2"},
		{"not of the avoided CPUs", "0-15", "0-3", 3, "4-6"},
		{"two NUMA nodes where one has too few", "0-15", "", 10, "0-9"},
		{"too few", "0-3", "", 5, ""},
		{"nothing asked", "0-3", "", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := mustTopology(t, epyc).TakeNear(mustParse(t, c.avail), mustParse(t, c.avoid), c.n)
			if got.String() != c.want || ok != (c.want != "") {
				t.Errorf("TakeNear(%s, %s, %d) = %s, %t; want %q", c.avail, c.avoid, c.n, got, ok, c.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, list := range []string{"x", "0-", "-1", "1-0x", "8192", "0-99999999999", "1,,2", "3-1", " 1", "+1", "0-+3", "1-2-3", "١"} {
		if s, err := Parse(list); err == nil {
			t.Errorf("Parse(%q) = %s; want an error", list, s)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "0", "0-10,12-21", "0-8191", "4294967295", "1-", "0-0,0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		s, err := Parse(list)
		if err != nil {
			return
		}
		again, err := Parse(s.String())
		if err != nil || !again.Equals(s) {
			t.Errorf("Parse(Parse(%q).String()) = %s, %v; want %s", list, again, err, s)
		}
	})
}

func TestNewTopologyRefuses(t *testing.T) {
	for _, s := range []Shape{
		{},
		{Online: "0-3", Cores: []string{"0-1", "1-2"}},
		{Online: "0-3", NUMA: map[int]string{0: "0-2", 1: "2-3"}},
		{Online: "0-3", Cores: []string{"a"}},
		{Online: "0-3", L3: []string{"0-1", "0"}},
	} {
		if _, err := NewTopology(s); err == nil {
			t.Errorf("NewTopology(%+v): want an error", s)
		}
	}
}

// TestErrorsOfTopologiesAreTheSame: a decision again, of the same recording, has the same reasons.
func TestErrorsOfTopologiesAreTheSame(t *testing.T) {
	for range 50 {
		_, err := NewTopology(Shape{Online: "0-3", NUMA: map[int]string{0: "0-3", 1: "2-3", 2: "1"}})
		if want := "NUMA node: CPU 2 is named twice"; err == nil || err.Error() != want {
			t.Fatalf("%v, want %q", err, want)
		}
	}
}

// machine draws a machine: cores of 1 to 4 threads over 1 to 4 NUMA nodes, with any numbering.
func machine(t *rapid.T) *Topology {
	threads := rapid.IntRange(1, 4).Draw(t, "threads")
	cores := rapid.IntRange(1, 24).Draw(t, "cores")
	nodes := rapid.IntRange(1, 4).Draw(t, "nodes")
	ids := rapid.Permutation(ids(cores*threads)).Draw(t, "ids")
	s := Shape{Online: New(ids...).String(), NUMA: map[int]string{}}
	byNode := map[int][]int{}
	for c := range cores {
		core := ids[c*threads : (c+1)*threads]
		s.Cores = append(s.Cores, New(core...).String())
		byNode[c%nodes] = append(byNode[c%nodes], core...)
	}
	for node, list := range byNode {
		s.NUMA[node] = New(list...).String()
	}
	topology, err := NewTopology(s)
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func ids(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func TestResizeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topology := machine(t)
		all := topology.Online.Size()
		present := Set{}
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			n := rapid.IntRange(0, all+3).Draw(t, "n")
			limit := rapid.IntRange(1, all).Draw(t, "limit")
			next := topology.Resize(topology.Online, present, n, limit)
			largest := topology.LargestCore()
			switch {
			case next.IsEmpty():
				t.Fatalf("empty")
			case !next.IsSubsetOf(topology.Online):
				t.Fatalf("%s is not within %s", next, topology.Online)
			case next.Size() > max(limit, largest):
				t.Fatalf("%d CPUs, the limit is %d", next.Size(), limit)
			case n <= limit-largest && next.Size() < n:
				t.Fatalf("%d CPUs, want at least %d", next.Size(), n)
			}
			for _, c := range topology.Cores {
				if both := c.CPUs.Intersection(next); !both.IsEmpty() && !both.Equals(c.CPUs) {
					t.Fatalf("core %s is split: %s", c.CPUs, next)
				}
			}
			if !present.IsSubsetOf(next) && !next.IsSubsetOf(present) {
				t.Fatalf("%s to %s moves more CPUs than it must", present, next)
			}
			present = next
		}
	})
}

// First takes no unnecessary core, in the order of Balanced.
func TestFirstCoresTakesFewest(t *testing.T) {
	topology, err := NewTopology(Shape{Online: "0-7", Cores: []string{"0-1", "2-3", "4-5", "6-7"}, NUMA: map[int]string{0: "0-3", 1: "4-7"}})
	if err != nil {
		t.Fatal(err)
	}
	avail := New(2, 3, 4, 5, 6, 7)
	order := topology.Balanced(avail)
	for n, cores := range []int{0, 1, 1, 2, 2, 3, 3, 3} {
		want := New()
		for _, c := range order[:cores] {
			want = want.Union(c.CPUs)
		}
		if got := topology.FirstCores(avail, n); !got.Equals(want) {
			t.Errorf("First(%d) = %s; want %s", n, got, want)
		}
	}
}

// TakeNear takes the smallest NUMA node that fits, and if none does the largest first; within it the smallest L3 that fits outside
// avoid.
func TestTakeNearTakesWhatFitsTightest(t *testing.T) {
	nodes, err := NewTopology(Shape{
		Online: "0-15", Cores: []string{"0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"},
		NUMA: map[int]string{0: "0-7", 1: "8-11", 2: "12-15"},
	})
	if err != nil {
		t.Fatal(err)
	}
	caches, err := NewTopology(Shape{
		Online: "0-9", Cores: []string{"0-1", "2-3", "4-5", "6-7", "8-9"}, L3: []string{"0-3", "4-9"}, NUMA: map[int]string{0: "0-9"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of     *Topology
		avoid  Set
		n      int
		want   string
		denied bool
	}{
		{of: nodes, n: 4, want: "8-11"}, // of two equally large ones the first
		{of: nodes, n: 6, want: "0-5"},
		{of: nodes, n: 8, want: "0-7"},
		{of: nodes, n: 9, want: "0-9"},
		{of: nodes, n: 16, want: "0-15"},
		{of: nodes, n: 17, denied: true},
		{of: nodes, n: 0, denied: true},
		{of: caches, n: 4, want: "0-3"},
		{of: caches, n: 5, want: "4-9"},
		{of: caches, n: 2, avoid: New(4, 5, 6, 7), want: "8-9"},
		{of: caches, n: 4, avoid: New(4, 5, 6, 7), want: "0-3"},
		{of: caches, n: 2, avoid: New(0, 1), want: "2-3"},
	} {
		got, ok := c.of.TakeNear(c.of.Online, c.avoid, c.n)
		if ok == c.denied || got.String() != c.want {
			t.Errorf("%d of %s without %s: %s, %v; want %q", c.n, c.of.Online, c.avoid, got, ok, c.want)
		}
	}
}
