package katalyst

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// Which pools get CPUs of their own, and how many units they want: a need of a core justifies a pool, pools that fit are not merged, and if
// they do not all fit the pool with the smallest proportion is merged first, if that is less than a unit.
func TestDemandsOfPools(t *testing.T) {
	for _, c := range []struct {
		name    string
		groups  []group
		reserve int64
		units   int // of two CPUs
		wants   []int
		needs   []float64
		share   string // what the first one counts with
	}{
		{
			"a need of just a core has a pool, and less has none",
			[]group{{milliCPU: 2000, containers: 3}, {milliCPU: 1000, containers: 1}, {milliCPU: 999, containers: 2}},
			0, 20,
			[]int{2, 1, 0},
			[]float64{2.999, 1, 0},
			"2999m of 5",
		},
		{
			"the first has a unit whatever it needs, and is not merged",
			[]group{{}, {milliCPU: 5000, containers: 1}},
			0, 20,
			[]int{1, 3},
			[]float64{0.001, 5},
			"0m of 0",
		},
		{
			"the system counts in the first, and no pool needs more than there is",
			[]group{{milliCPU: 1000, system: 5000, containers: 1}, {milliCPU: 90_000, containers: 1}},
			0, 10,
			[]int{3, 10},
			[]float64{6, 20},
			"1000m of 1",
		},
		{
			"what just fits is not merged",
			[]group{{milliCPU: 17_000, containers: 1}, {milliCPU: 1000, containers: 1}},
			0, 10,
			[]int{9, 1},
			[]float64{17, 1},
			"17000m of 1",
		},
		{
			"a proportion of just a unit is kept",
			[]group{{milliCPU: 18_000, containers: 1}, {milliCPU: 2000, containers: 1}},
			4000, 10,
			[]int{10, 2},
			[]float64{18, 2},
			"18000m of 1",
		},
		{
			"a proportion of less is merged",
			[]group{{milliCPU: 18_010, containers: 1}, {milliCPU: 1990, containers: 1}},
			4000, 10,
			[]int{10, 0},
			[]float64{20, 0},
			"20000m of 2",
		},
		{
			"the least alone is merged, where the others fit then",
			[]group{{milliCPU: 17_000, containers: 1}, {milliCPU: 2000, containers: 1}, {milliCPU: 1000, containers: 1}},
			0, 10,
			[]int{9, 1, 0},
			[]float64{18, 2, 0},
			"18000m of 2",
		},
		{
			"the least is one that has units",
			[]group{{milliCPU: 30_000, containers: 1}, {isVacant: true}, {milliCPU: 100, containers: 1}, {milliCPU: 10_000, containers: 1}},
			0, 18,
			[]int{16, 0, 0, 5},
			[]float64{30.1, 0, 0, 10},
			"30100m of 2",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			wants, needs, sum := desiredUnits(c.groups, c.reserve, c.units, 2)
			all := 0
			for _, w := range c.wants {
				all += w
			}
			if diff := cmp.Diff(c.wants, wants); diff != "" || sum != all {
				t.Errorf("a sum of %d units, wants (-want +got):\n%s", sum, diff)
			}
			if diff := cmp.Diff(c.needs, needs); diff != "" {
				t.Errorf("needs (-want +got):\n%s", diff)
			}
			if got := fmt.Sprintf("%.0fm of %d", c.groups[0].milliCPU, c.groups[0].containers); got != c.share {
				t.Errorf("the first counts with %s; want %s", got, c.share)
			}
			for i, g := range c.groups {
				if want := i > 0 && !g.isVacant && c.wants[i] == 0; g.isSmall != want {
					t.Errorf("pool %d is merged: %t; want %t", i, g.isSmall, want)
				}
			}
		})
	}
}

// Each need is met in whole units if there are exactly enough, and the excess is divided by weight; if there are fewer, each gets its
// proportion.
func TestUnitsAreDividedByNeed(t *testing.T) {
	for _, c := range []struct {
		name  string
		needs []float64 // of CPUs
		units int       // of two
		want  []int
	}{
		{"as many as are needed, in whole units", []float64{2.2, 2.2, 2.2, 13.4}, 13, []int{2, 2, 2, 7}},
		{"one fewer", []float64{2.2, 2.2, 2.2, 13.4}, 12, []int{1, 1, 1, 9}},
		{"rounding noise is no need", []float64{2.0000001, 4.0000001}, 3, []int{1, 2}},
		{"no need, no unit", []float64{0.001, 0, 6}, 5, []int{1, 0, 4}},
		{"what is over goes to the pool with the least for its need", []float64{2, 10}, 8, []int{1, 7}},
	} {
		if got := divideUnits(c.needs, c.units, 2); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v; want %v", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		weights []float64
		total   int
		want    []int
	}{
		{[]float64{0, 0}, 3, []int{3, 0}},               // no weight at all: the first gets all
		{[]float64{1, 0}, 5, []int{5, 0}},               // a weight of 0 gets nothing
		{[]float64{100, 1, 1, 1}, 4, []int{1, 1, 1, 1}}, // the largest gives, down to one
	} {
		if got := apportion(c.weights, c.total); !slices.Equal(got, c.want) {
			t.Errorf("apportion(%v, %d) = %v; want %v", c.weights, c.total, got, c.want)
		}
	}
}

// sizesOf returns the pools' sizes.
func sizesOf(t *testing.T, a *tick.Advice) map[string]int {
	t.Helper()
	sizes := map[string]int{}
	for name, list := range poolsOf(a) {
		set := mustParse(t, list)
		sizes[name] = set.Size()
	}
	return sizes
}

// Pools that together want exactly the available CPUs get them: the reserve of each is not divided again.
func TestPoolsThatJustFit(t *testing.T) {
	a := New(Defaults()).Decide(at(0, shared("a", 38), pooled("b", "batch", 2)))
	if diff := cmp.Diff(map[string]int{"share": 40, "batch": 4, "reclaim": 4}, sizesOf(t, a)); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
	for _, text := range []string{"are needed", "are merged with share", "hold-down:", "it is merged with share"} {
		wantNoReason(t, a, text)
	}
}

// The reasons report the pools' state: which containers count, and which pools have a hold-down, shrink, or have no pods.
func TestReasonsOfPools(t *testing.T) {
	d := New(Defaults())
	a := d.Decide(at(0, shared("a", 1), pooled("b", "batch", 3), pooled("c", "tiny", 0.1)))
	wantReason(t, a, "share: reserve 2000m of 4000m (default) + need 1100m of 2 containers = 3100m -> 4 CPUs")
	wantReason(t, a, "pools tiny are merged with share")

	a = d.Decide(at(1, shared("a", 1), pooled("b", "batch", 3)))
	wantNoReason(t, a, "hold-down:")
	wantNoReason(t, a, "are merged with share")

	d.Decide(at(2, shared("a", 1), pooled("b", "batch", 1)))
	a = d.Decide(at(32, shared("a", 1), pooled("b", "batch", 1))) // its last step: from 6 to the 4 that it wants
	if diff := cmp.Diff(map[string]int{"share": 4, "batch": 4, "reclaim": 40}, sizesOf(t, a)); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
	wantNoReason(t, a, "shrinks by")

	a = d.Decide(at(33, shared("a", 60))) // which leaves nothing for a hold-down
	if diff := cmp.Diff(map[string]int{"share": 44, "reclaim": 4}, sizesOf(t, a)); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
	wantNoReason(t, a, "batch")
}

// A pool without pods keeps its CPUs for the hold-down, and is removed when that is over.
func TestPoolWithoutPodsIsRemovedAfterTheHoldDown(t *testing.T) {
	d := New(Defaults())
	d.Decide(at(0, shared("a", 1), pooled("b", "batch", 9)))
	if got := sizesOf(t, d.Decide(at(29.9, shared("a", 1))))["batch"]; got != 12 {
		t.Errorf("0.1 s before the end of its hold it has %d CPUs; want 12", got)
	}
	if got, found := poolsOf(d.Decide(at(30, shared("a", 1))))["batch"]; found {
		t.Errorf("at the end of its hold it has %s", got)
	}
}

// A pool shrinks by the configured number of CPUs at once, in whole cores.
func TestPoolsShrinkByTheStep(t *testing.T) {
	s := Defaults()
	s.ShrinkStepMilliCPU = 4000
	d := New(s)
	d.Decide(at(0, shared("a", 1), pooled("b", "batch", 9)))
	a := d.Decide(at(31, shared("a", 1), pooled("b", "batch", 1)))
	if got := sizesOf(t, a)["batch"]; got != 8 {
		t.Errorf("batch has %d CPUs; want 8 of 12: %q", got, a.Reasons)
	}
	wantReason(t, a, "4 CPUs are needed: it shrinks by 4 per step")
}

// A pool keeps whole units, also if a CPU of one was removed.
func TestHoldDownRoundsUpToCores(t *testing.T) {
	groups := []group{{hold: holdDown{LastNeed: start}, current: newCPUSet(cpus.New(0, 1, 2))}}
	if got := applyHoldDown(inputs{now: start, settings: Defaults()}, groups, []int{1}, 5, 2); !slices.Equal(got, []int{2}) {
		t.Errorf("%v units are kept; want 2", got)
	}
}

// A pool of a state file that has the name of one of Polder's own pools is ignored: their CPUs stay theirs.
func TestAStateFileNamesNoPoolOfOurs(t *testing.T) {
	d := New(Defaults())
	d.Decide(at(0, shared("a", 1)))
	for _, name := range []string{tick.PoolReclaim, tick.PoolReserve, "dedicated/default/db", "a b"} {
		d.Nodes["n"].Named = map[string]*poolState{name: {CPUs: "0-3", holdDown: holdDown{LastNeed: start}}}
		a := d.Decide(at(1, shared("a", 1)))
		if names := slices.Sorted(maps.Keys(poolsOf(a))); len(a.Pools) != 2 || !slices.Equal(names, []string{tick.PoolReclaim, tick.PoolShare}) {
			t.Errorf("%s: pools %+v", name, a.Pools)
		}
	}
}

// Groups keep as many of their CPUs as possible, whatever the others do, and no CPU is given twice: neither one that two groups had, nor
// one that no longer exists.
func TestPlaceMovesAsFewCPUsAsItCan(t *testing.T) {
	d := New(Defaults())
	d.Decide(at(0))
	s := d.Nodes["n"].shape
	for _, c := range []struct {
		name     string
		avail    string
		presents []string
		sizes    []int
		keeps    []int // CPUs of its current ones
	}{
		{"one gives, one takes", "0-47", []string{"11,22-23,35,46-47", "10,34"}, []int{4, 4}, []int{4, 2}},
		{"what one gives is free for the next", "0-3,24-27", []string{"0-3,24-27", ""}, []int{6, 2}, []int{6, 0}},
		{"and for the one before", "0-3,24-27", []string{"", "0-3,24-27"}, []int{2, 6}, []int{0, 6}},
		{"one without a size has none", "0-47", []string{"11,35", "10,34"}, []int{2, 0}, []int{2, 0}},
		{"both had the same", "0-47", []string{"10-11,34-35", "10-11,34-35"}, []int{2, 4}, []int{2, 2}},
		{"as they were", "0-47", []string{"11,35", "10,34", "23,47"}, []int{2, 2, 2}, []int{2, 2, 2}},
		{"a core has gone", "0-10,12-34,36-47", []string{"11,23,35,47", "10,34"}, []int{4, 2}, []int{2, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			avail := mustParse(t, c.avail)
			var groups []group
			for i, list := range c.presents {
				groups = append(groups, group{current: s.parse(list), size: c.sizes[i]})
			}
			placed := s.placeGroups(avail, groups)
			taken := cpus.Set{}
			for i, p := range placed[:len(groups)] {
				if p.Size() != c.sizes[i] || !p.IsSubsetOf(avail) || !p.Intersection(taken).IsEmpty() {
					t.Errorf("group %d has %s beside %s of %s; want %d CPUs", i, p.list, taken, c.avail, c.sizes[i])
				}
				if kept := p.Intersection(groups[i].current.Set).Size(); kept != c.keeps[i] {
					t.Errorf("group %d had %s and has %s: it keeps %d; want %d", i, c.presents[i], p.list, kept, c.keeps[i])
				}
				taken = taken.Union(p.Set)
			}
			if all := placed[len(groups)]; !all.Equals(taken) {
				t.Errorf("the union is %s; want %s", all.list, taken)
			}
		})
	}
}
