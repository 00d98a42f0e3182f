package cpus

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"polder/lib/hosttest"
)

func TestTakePairs(t *testing.T) {
	twoSockets := Shape{Online: "0-15", NUMA: map[int]string{0: "0-3,8-11", 1: "4-7,12-15"}, Sockets: []string{"0-3,8-11", "4-7,12-15"}}
	for i := range 8 {
		twoSockets.Cores = append(twoSockets.Cores, fmt.Sprintf("%d,%d", i, i+8))
	}
	single := Shape{Online: "0-7", NUMA: map[int]string{0: "0-3", 1: "4-7"}}
	for _, c := range []struct {
		name  string
		shape Shape
		avail string
		n     int
		want  []int
	}{
		{"nothing asked", twoSockets, "0-15", 0, nil},
		{"less than nothing asked", twoSockets, "0-15", -3, nil},
		{"nothing there", twoSockets, "", 4, nil},
		{"one CPU is the first of the first bucket", twoSockets, "0-15", 1, []int{0}},
		{"two CPUs are one core", twoSockets, "0-15", 2, []int{0, 8}},
		{"three are a core, and one of the next bucket", twoSockets, "0-15", 3, []int{0, 8, 4}},
		{"four are a core of each node", twoSockets, "0-15", 4, []int{0, 8, 4, 12}},
		{"six go round again", twoSockets, "0-15", 6, []int{0, 8, 4, 12, 1, 9}},
		{"all", twoSockets, "0-15", 16, []int{0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15}},
		{"more than all are all", twoSockets, "0-3", 99, []int{0, 1, 2, 3}},
		{"CPUs that are not online are not there", twoSockets, "14-40", 3, []int{14, 15}},
		{"the larger bucket first", twoSockets, "1,9,4-7,12-15", 4, []int{4, 12, 1, 9}},
		{"of buckets of one size the one with the lowest CPU", twoSockets, "1,9,4,12", 2, []int{1, 9}},
		{"split cores give no pair", twoSockets, "0-7", 4, []int{0, 4, 1, 5}},
		{"pairs before what is split, wherever they are", twoSockets, "0-3,5,13", 3, []int{5, 13, 0}},
		{"an odd one comes from the bucket whose turn it is", twoSockets, "0-15", 5, []int{0, 8, 4, 12, 1}},
		{"no hyperthreads", single, "0-7", 3, []int{0, 4, 1}},
		{"SMT4: a core has two pairs", Shape{Online: "0-7", Cores: []string{"0-3", "4-7"}}, "0-7", 4, []int{0, 1, 2, 3}},
		{"SMT4 with a hole: the next two that are free", Shape{Online: "0-7", Cores: []string{"0-3", "4-7"}}, "0,2-3,5", 3, []int{0, 2, 3}},
		{"two sockets in one NUMA node are two buckets", Shape{Online: "0-3", NUMA: map[int]string{0: "0-3"}, Sockets: []string{"0-1", "2-3"}}, "0-3", 2, []int{0, 2}},
		{"no sockets known", Shape{Online: "0-3", Cores: []string{"0,2", "1,3"}}, "0-3", 3, []int{0, 2, 1}},
		{"a machine of one CPU", Shape{Online: "5"}, "5", 2, []int{5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := mustTopology(t, c.shape).TakePairs(mustParse(t, c.avail), c.n); !slices.Equal(got, c.want) {
				t.Errorf("TakePairs(%s, %d) = %v; want %v", c.avail, c.n, got, c.want)
			}
		})
	}
}

func TestSocketsAreChecked(t *testing.T) {
	topology := mustTopology(t, Shape{Online: "0-3", Sockets: []string{"0-1", "2"}})
	for i, want := range []int{0, 0, 1, -1} {
		if got := topology.Cores[i].Socket; got != want {
			t.Errorf("socket of CPU %d = %d, want %d", i, got, want)
		}
	}
	if _, err := NewTopology(Shape{Online: "0-3", Sockets: []string{"0-1", "1-2"}}); err == nil || !strings.Contains(err.Error(), "socket") {
		t.Errorf("a CPU in two sockets: %v", err)
	}
}

// naivePairs implements the rule literally, without cursors.
func naivePairs(t *Topology, avail Set, n int) []int {
	type bucket struct{ cpus, core []int }
	at := map[[2]int]*bucket{}
	var buckets []*bucket
	for core, c := range t.Cores {
		for _, id := range c.CPUs.Intersection(avail).List() {
			key := [2]int{c.NUMA, c.Socket}
			if at[key] == nil {
				at[key] = &bucket{}
				buckets = append(buckets, at[key])
			}
			at[key].cpus, at[key].core = append(at[key].cpus, id), append(at[key].core, core)
		}
	}
	slices.SortFunc(buckets, func(a, b *bucket) int {
		if len(a.cpus) != len(b.cpus) {
			return len(b.cpus) - len(a.cpus)
		}
		return slices.Min(a.cpus) - slices.Min(b.cpus)
	})
	var taken []int
	used := map[int]bool{}
	if len(buckets) == 0 {
		return nil
	}
	i := 0
	for before := -1; n-len(taken) > 1; i = (i + 1) % len(buckets) {
		if i == 0 {
			if before == len(taken) {
				break
			}
			before = len(taken)
		}
		b := buckets[i]
		for j := 0; j+1 < len(b.cpus); j++ {
			if b.core[j] == b.core[j+1] && !used[b.cpus[j]] && !used[b.cpus[j+1]] {
				taken = append(taken, b.cpus[j], b.cpus[j+1])
				used[b.cpus[j]], used[b.cpus[j+1]] = true, true
				break
			}
		}
	}
	for idle := 0; len(taken) < n && idle <= 2*len(buckets); i = (i + 1) % len(buckets) {
		idle++
		for _, id := range buckets[i].cpus {
			if !used[id] {
				taken, used[id], idle = append(taken, id), true, 0
				break
			}
		}
	}
	return taken
}

func TestTakePairsProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topology := machine(t)
		avail := New(rapid.SliceOfN(rapid.IntRange(0, 100), 0, 60).Draw(t, "avail")...)
		if rapid.Bool().Draw(t, "all") {
			avail = topology.Online
		}
		n := rapid.IntRange(-1, 110).Draw(t, "n")
		got := topology.TakePairs(avail, n)
		set := New(got...)
		if want := max(0, min(n, avail.Intersection(topology.Online).Size())); len(got) != want || set.Size() != want || !set.IsSubsetOf(avail) {
			t.Fatalf("took %v of %s, want %d different ones", got, avail, want)
		}
		if want := naivePairs(topology, avail, n); !slices.Equal(got, want) {
			t.Fatalf("took %v of %s, the rule gives %v", got, avail, want)
		}
		if again := topology.TakePairs(avail, n); !slices.Equal(again, got) {
			t.Fatalf("took %v and then %v", got, again)
		}
	})
}

// On real machines, with any numbering: every number of CPUs is possible, at most one core is split if cores have two threads, and
// one CPU more moves at most one.
func TestTakePairsOnRealMachines(t *testing.T) {
	for _, m := range hosttest.Machines() {
		t.Run(m.Name, func(t *testing.T) {
			topology := realMachine(t, m)
			before := Set{}
			for n := 1; n <= topology.Online.Size(); n++ {
				set := New(topology.TakePairs(topology.Online, n)...)
				if set.Size() != n || !set.IsSubsetOf(topology.Online) {
					t.Fatalf("%d CPUs: %s", n, set)
				}
				split, whole := 0, 0
				for _, c := range topology.Cores {
					switch has := c.CPUs.Intersection(set).Size(); {
					case c.CPUs.Size() != 2:
					case has == 1:
						split++
					case has == 0:
						whole++
					}
				}
				if split > 1 {
					t.Errorf("%d CPUs: %s splits %d cores", n, set, split)
				}
				if left := before.Difference(set).Size(); left > 1 {
					t.Errorf("from %d to %d CPUs %d move: %s, %s", n-1, n, left, before, set)
				}
				before = set
			}
		})
	}
}

func realMachine(t *testing.T, m hosttest.Machine) *Topology {
	t.Helper()
	a := m.Answer()
	s := Shape{Online: a.CPUs, Cores: a.Cores, L3: a.L3, Sockets: a.Packages, NUMA: map[int]string{}}
	for _, n := range a.Nodes {
		s.NUMA[n.ID] = n.CPUs
	}
	return mustTopology(t, s)
}
