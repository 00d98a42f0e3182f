package cpus

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
)

// Core is a physical core, with the hyperthreads that share it.
type Core struct {
	CPUs   Set
	NUMA   int // the NUMA node's ID
	L3     int // an index that cores with the same L3 share; -1 if there is no L3
	Socket int // an index that cores of the same socket share; -1 if the socket is unknown

	lowest int
}

// Topology is the topology of a machine's online CPUs.
type Topology struct {
	Online Set
	Cores  []Core // in the order of their lowest CPU
	NUMA   []int  // IDs of the nodes that have CPUs, ascending
}

// Shape is the input of NewTopology: lists in the kernel's format, as in a tick's topology.
type Shape struct {
	Online  string
	Cores   []string
	L3      []string
	Sockets []string
	NUMA    map[int]string
}

// NewTopology checks the lists against each other. A CPU that is in no core becomes a core of its own, and a CPU
// that is in no NUMA node belongs to node 0.
func NewTopology(s Shape) (*Topology, error) {
	online, err := Parse(s.Online)
	if err != nil {
		return nil, fmt.Errorf("online CPUs: %w", err)
	}
	if online.IsEmpty() {
		return nil, errors.New("online CPUs: none")
	}
	numaOf, err := index(s.NUMA)
	if err != nil {
		return nil, fmt.Errorf("NUMA node: %w", err)
	}
	l3Of, err := indexes(s.L3)
	if err != nil {
		return nil, fmt.Errorf("L3: %w", err)
	}
	socketOf, err := indexes(s.Sockets)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}

	t := &Topology{Online: online}
	add := func(cpus Set) {
		c := Core{CPUs: cpus, L3: -1, Socket: -1, lowest: cpus.UnsortedList()[0]}
		for _, cpu := range cpus.UnsortedList() {
			c.lowest = min(c.lowest, cpu)
		}
		c.NUMA = numaOf[c.lowest]
		if l3, ok := l3Of[c.lowest]; ok {
			c.L3 = l3
		}
		if socket, ok := socketOf[c.lowest]; ok {
			c.Socket = socket
		}
		t.Cores = append(t.Cores, c)
	}
	rest := online
	for _, list := range s.Cores {
		cpus, err := Parse(list)
		if err != nil {
			return nil, fmt.Errorf("core: %w", err)
		}
		if cpus = cpus.Intersection(online); cpus.IsEmpty() {
			continue
		}
		if !cpus.IsSubsetOf(rest) {
			return nil, fmt.Errorf("core %s: shares CPUs with another core", list)
		}
		rest = rest.Difference(cpus)
		add(cpus)
	}
	for _, cpu := range rest.List() {
		add(New(cpu))
	}
	sort.Slice(t.Cores, func(i, j int) bool { return t.Cores[i].lowest < t.Cores[j].lowest })
	t.NUMA = numaIDs(t.Cores)
	return t, nil
}

// indexes returns the index of the list that contains each CPU.
func indexes(lists []string) (map[int]int, error) {
	m := make(map[int]string, len(lists))
	for i, list := range lists {
		m[i] = list
	}
	return index(m)
}

// index goes in the order of the IDs, so that the same lists always have the same error.
func index(lists map[int]string) (map[int]int, error) {
	of := map[int]int{}
	for _, id := range slices.Sorted(maps.Keys(lists)) {
		cpus, err := Parse(lists[id])
		if err != nil {
			return nil, err
		}
		for _, cpu := range cpus.List() {
			if _, isDuplicate := of[cpu]; isDuplicate {
				return nil, fmt.Errorf("CPU %d is named twice", cpu)
			}
			of[cpu] = id
		}
	}
	return of, nil
}

func numaIDs(cores []Core) []int {
	seen := map[int]bool{}
	var ids []int
	for _, c := range cores {
		if !seen[c.NUMA] {
			seen[c.NUMA] = true
			ids = append(ids, c.NUMA)
		}
	}
	sort.Ints(ids)
	return ids
}

// LargestCore returns the largest number of hyperthreads of a core.
func (t *Topology) LargestCore() int {
	n := 0
	for _, c := range t.Cores {
		n = max(n, c.CPUs.Size())
	}
	return n
}

// within returns the cores of avail, each reduced to its CPUs there, in the topology's order.
func (t *Topology) within(avail Set) []Core {
	cores := make([]Core, 0, len(t.Cores))
	for _, c := range t.Cores {
		if c.CPUs = c.CPUs.Intersection(avail); !c.CPUs.IsEmpty() {
			cores = append(cores, c)
		}
	}
	return cores
}

// Balanced returns the cores of avail in the order in which the reclaimed side takes them, so that both sides are spread over the NUMA
// nodes: the first core of each node, then the second of each, and so on (Katalyst's TakeByNUMABalance). The remaining cores at the end are
// the share pool: on the 48-CPU node of Katalyst's guide its last three cores are 11,22-23,35,46-47. If nodes have different numbers of
// cores the turns are counted from the end, so that the share pool is balanced. Cores with fewer hyperthreads come first: on hybrid
// machines those are the slow ones, and services keep the others.
func (t *Topology) Balanced(avail Set) []Core {
	cores := t.within(avail)
	round := make([]int, len(cores)) // a core's position in its NUMA node, from the end
	seen := map[[2]int]int{}
	for i, c := range slices.Backward(cores) {
		key := [2]int{c.CPUs.Size(), c.NUMA}
		round[i] = seen[key]
		seen[key]++
	}
	order := make([]int, len(cores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := cores[i], cores[j]
		return cmp.Or(cmp.Compare(a.CPUs.Size(), b.CPUs.Size()), cmp.Compare(round[j], round[i]), cmp.Compare(a.NUMA, b.NUMA))
	})
	sorted := make([]Core, len(cores))
	for position, i := range order {
		sorted[position] = cores[i]
	}
	return sorted
}

// Resize returns a set of whole cores of avail with at least n CPUs, and at most limit unless a single core has more.
// It moves as few CPUs as possible from the present set: it grows by the last cores of the [Topology.Balanced] order
// that are not in it, and shrinks by the first that are. The result is empty only if avail is.
func (t *Topology) Resize(avail, current Set, n, limit int) Set {
	order := t.Balanced(avail)
	isSelected := make([]bool, len(order))
	size := 0
	for i, c := range order {
		if !c.CPUs.Intersection(current).IsEmpty() {
			isSelected[i] = true
			size += c.CPUs.Size()
		}
	}
	for i, c := range order { // shrink
		over := size > limit && size > c.CPUs.Size()
		if isSelected[i] && (size-c.CPUs.Size() >= max(n, 1) || over) {
			isSelected[i] = false
			size -= c.CPUs.Size()
		}
	}
	for i := len(order) - 1; i >= 0; i-- { // grow
		fits := size+order[i].CPUs.Size() <= limit || size == 0
		if !isSelected[i] && size < max(n, 1) && fits {
			isSelected[i] = true
			size += order[i].CPUs.Size()
		}
	}
	var ids []int
	for i, c := range order {
		if isSelected[i] {
			ids = append(ids, c.CPUs.UnsortedList()...)
		}
	}
	return New(ids...)
}

// FirstCores returns the first whole cores of the [Topology.Balanced] order with at least n CPUs together, or all of avail.
func (t *Topology) FirstCores(avail Set, n int) Set {
	var ids []int
	for _, c := range t.Balanced(avail) {
		if len(ids) >= n {
			break
		}
		ids = append(ids, c.CPUs.UnsortedList()...)
	}
	return New(ids...)
}

// TakeNear takes whole cores of avail with at least n CPUs, close to each other: from the one NUMA node whose free
// CPUs fit best, with as few L3s as possible, and outside avoid if possible. If no single node has enough, it takes
// the nodes with the most free CPUs first. If avail has too few, it returns false and takes nothing.
func (t *Topology) TakeNear(avail, avoid Set, n int) (Set, bool) {
	if n <= 0 || avail.Size() < n {
		return Set{}, false
	}
	byNUMA := map[int][]Core{}
	free := map[int]int{}
	for _, c := range t.within(avail) {
		byNUMA[c.NUMA] = append(byNUMA[c.NUMA], c)
		free[c.NUMA] += c.CPUs.Size()
	}
	nodes := make([]int, 0, len(byNUMA))
	for id := range byNUMA {
		nodes = append(nodes, id)
	}
	sort.Slice(nodes, func(i, j int) bool {
		a, b := free[nodes[i]], free[nodes[j]]
		switch fitsA, fitsB := a >= n, b >= n; {
		case fitsA != fitsB:
			return fitsA
		case a != b:
			return (a < b) == fitsA // the tightest that fits, else the largest
		}
		return nodes[i] < nodes[j]
	})
	var ids []int
	for _, id := range nodes {
		for _, c := range nearFirst(byNUMA[id], avoid, n-len(ids)) {
			if len(ids) >= n {
				break
			}
			ids = append(ids, c.CPUs.UnsortedList()...)
		}
	}
	return New(ids...), true
}

// nearFirst orders one NUMA node's cores for taking n CPUs: whole L3s together, the smallest that fits n first.
func nearFirst(cores []Core, avoid Set, n int) []Core {
	size, avoided := map[int]int{}, map[int]int{}
	for _, c := range cores {
		size[c.L3] += c.CPUs.Size()
		avoided[c.L3] += c.CPUs.Intersection(avoid).Size()
	}
	sorted := append([]Core(nil), cores...)
	sort.SliceStable(sorted, func(i, j int) bool {
		a, b := sorted[i], sorted[j]
		if a.L3 != b.L3 {
			freeA, freeB := size[a.L3]-avoided[a.L3], size[b.L3]-avoided[b.L3]
			switch fitsA, fitsB := freeA >= n, freeB >= n; {
			case fitsA != fitsB:
				return fitsA
			case freeA != freeB:
				return (freeA < freeB) == fitsA
			}
			return a.L3 < b.L3
		}
		if x, y := a.CPUs.Intersection(avoid).IsEmpty(), b.CPUs.Intersection(avoid).IsEmpty(); x != y {
			return x
		}
		return a.lowest < b.lowest
	})
	return sorted
}
