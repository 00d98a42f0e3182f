package katalyst

import (
	"strings"
	"testing"

	"polder/lib/cpus"
	"polder/lib/tick"
)

func shapeOf(t *testing.T, topology *tick.Topology, reserved, exclusive string) *shape {
	t.Helper()
	var none *shape
	s, err := none.refreshed(topology, reserved, exclusive)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Each cached value is computed once, and their number is bounded.
func TestCacheIsBounded(t *testing.T) {
	var m map[int]int
	made := 0
	of := func(k int) int { return cached(&m, k, func() int { made++; return -k }) }
	for k := range 1000 {
		for range 2 {
			if got := of(k); got != -k {
				t.Fatalf("the value of %d is %d", k, got)
			}
		}
		if len(m) > 256 {
			t.Fatalf("%d values are remembered", len(m))
		}
	}
	if made != 1000 {
		t.Errorf("%d values were made for 1000 keys", made)
	}
	of(1001)
	if of(1002); of(1001) != -1001 || made != 1002 {
		t.Errorf("a value was made again after another one: %d in all; want 1002", made)
	}
}

// An invalid list, such as a damaged state file's, counts as empty.
func TestInvalidListIsEmpty(t *testing.T) {
	s := &shape{}
	for _, list := range []string{"", "x", "0-", "3-1", "0-99999"} {
		if got := s.parse(list); !got.IsEmpty() || got.list != "" {
			t.Errorf("%q: %s (%q)", list, got, got.list)
		}
	}
	if got := s.parse("2,0-1"); !got.Equals(cpus.New(0, 1, 2)) || got.list != "0-2" {
		t.Errorf("%s (%q)", got, got.list)
	}
}

// The memory of NUMA nodes is the sum of the known values; a node without memory cannot be bound to, one with unknown memory can.
func TestMemoryOfNUMANodes(t *testing.T) {
	topology := nodesOf(4, 4, 4, 4)
	for i, bytes := range []*float64{new(10e9), new(20e9), nil, new(0.0)} {
		topology.NUMANodes[i].MemoryBytes = bytes
	}
	s := shapeOf(t, topology, "", "")
	if got := s.mems.String(); got != "0-2" {
		t.Errorf("memory nodes %s; want 0-2", got)
	}
	for list, want := range map[string]float64{"0": 10e9, "0-1": 30e9, "0-3": 30e9, "2-3": 0, "": 0} {
		if got := s.bytesOf(mustParse(t, list)); got != want {
			t.Errorf("nodes %q have %g bytes; want %g", list, got, want)
		}
	}
	if got := s.nodesOf(newCPUSet(cpus.New(3, 4, 12))).String(); got != "0-1,3" {
		t.Errorf("CPUs 3, 4 and 12 are of the nodes %s", got)
	}
}

// A shape is rebuilt when any of its inputs changes, and only then.
func TestTheShapeFollowsTheMachine(t *testing.T) {
	last := shapeOf(t, guideTopology(), "", "")
	if again, err := last.refreshed(guideTopology(), "", ""); err != nil || again != last {
		t.Errorf("the same machine is made again")
	}
	fewer := guideTopology()
	fewer.CPUs = "0-46"
	for _, c := range []struct {
		name                string
		topology            *tick.Topology
		reserved, exclusive string
		avail               string
	}{
		{"reserved CPUs", guideTopology(), "0,24", "", "1-23,25-47"},
		{"other ones", guideTopology(), "1,25", "", "0,2-24,26-47"},
		{"exclusive CPUs", guideTopology(), "1,25", "3,27", "0,2,4-24,26,28-47"},
		{"exclusive CPUs are not reserved", guideTopology(), "1,25", "1,25", "0,2-24,26-47"},
		{"fewer CPUs", fewer, "1,25", "1,25", "0,2-24,26-46"},
	} {
		s, err := last.refreshed(c.topology, c.reserved, c.exclusive)
		if err != nil {
			t.Fatal(err)
		}
		if s == last || s.avail.list != c.avail {
			t.Errorf("%s: %s are available; want %s", c.name, s.avail.list, c.avail)
		}
		if !s.Reserved.Intersection(s.Exclusive).IsEmpty() {
			t.Errorf("%s: %s are both reserved and exclusive", c.name, s.Reserved.Intersection(s.Exclusive))
		}
		last = s
	}
}

// All CPUs may be exclusive, but not all reserved.
func TestAllCPUsReservedIsAFault(t *testing.T) {
	var none *shape
	if _, err := none.refreshed(guideTopology(), "0-47", ""); err == nil || !strings.Contains(err.Error(), "all online CPUs (0-47) are reserved") {
		t.Errorf("all reserved: %v", err)
	}
	if s := shapeOf(t, guideTopology(), "", "0-47"); !s.avail.IsEmpty() {
		t.Errorf("all exclusive: %s are available", s.avail.list)
	}
	if s := shapeOf(t, guideTopology(), "0-46", "47"); !s.avail.IsEmpty() {
		t.Errorf("all reserved but one, which is exclusive: %s are available", s.avail.list)
	}
}

// The CPUs that dedicated pods leave: with two pods, and after one has ended.
func TestWithoutDedicated(t *testing.T) {
	s := shapeOf(t, guideTopology(), "", "")
	a, b := newCPUSet(mustParse(t, "0-3,24-27")), newCPUSet(mustParse(t, "4,28"))
	for _, c := range []struct {
		dedicated map[string]cpuSet
		want      string
	}{
		{nil, "0-47"},
		{map[string]cpuSet{"a": a, "b": b}, "5-23,29-47"},
		{map[string]cpuSet{"b": b}, "0-3,5-27,29-47"},
		{map[string]cpuSet{"a": b, "b": a}, "5-23,29-47"},
	} {
		if got := s.withoutDedicated(c.dedicated).list; got != c.want {
			t.Errorf("beside %v there is %s; want %s", c.dedicated, got, c.want)
		}
	}
}
