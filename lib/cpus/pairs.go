package cpus

import (
	"cmp"
	"slices"
)

// TakePairs takes n CPUs of avail, or all if it has fewer, in the order in which Koordinator's suppression selects them
// (pkg/koordlet/qosmanager/plugins/cpusuppress of its repository): the CPUs of each NUMA node and socket form a bucket, the larger buckets
// come first, and each in turn provides the next two free hyperthreads of one core. If at most one more CPU is needed, or a round over all
// buckets finds no pair, the buckets provide single CPUs in turn, starting where the pairs ended.
func (t *Topology) TakePairs(avail Set, n int) []int {
	n = min(n, avail.Intersection(t.Online).Size())
	if n <= 0 {
		return nil
	}
	buckets := t.buckets(avail)
	taken := make([]int, 0, n)
	take := func(b *bucket, at int) {
		b.cpus[at].isTaken = true
		taken = append(taken, b.cpus[at].id)
	}
	i := takeInTurn(buckets, 0, func() bool { return n-len(taken) <= 1 }, func(b *bucket) bool {
		for ; b.pair+1 < len(b.cpus); b.pair++ {
			first, second := b.cpus[b.pair], b.cpus[b.pair+1]
			if first.core == second.core && !first.isTaken && !second.isTaken {
				take(b, b.pair)
				take(b, b.pair+1)
				return true
			}
		}
		return false
	})
	takeInTurn(buckets, i, func() bool { return len(taken) == n }, func(b *bucket) bool {
		for ; b.single < len(b.cpus); b.single++ {
			if !b.cpus[b.single].isTaken {
				take(b, b.single)
				return true
			}
		}
		return false
	})
	return taken
}

// bucket contains the CPUs of one NUMA node and socket, by core and ID.
type bucket struct {
	cpus         []thread
	lowest       int
	pair, single int // the next index: earlier ones are taken, or are no pair
}

type thread struct {
	id, core int
	isTaken  bool
}

func (t *Topology) buckets(avail Set) []*bucket {
	at := map[[2]int]*bucket{}
	var all []*bucket
	for core, c := range t.within(avail) {
		key := [2]int{c.NUMA, c.Socket}
		b := at[key]
		if b == nil {
			b = &bucket{}
			at[key] = b
			all = append(all, b)
		}
		for _, id := range c.CPUs.List() {
			b.cpus = append(b.cpus, thread{id: id, core: core})
		}
	}
	for _, b := range all {
		b.lowest = slices.MinFunc(b.cpus, func(x, y thread) int { return cmp.Compare(x.id, y.id) }).id
	}
	slices.SortFunc(all, func(x, y *bucket) int {
		return cmp.Or(cmp.Compare(len(y.cpus), len(x.cpus)), cmp.Compare(x.lowest, y.lowest))
	})
	return all
}

// takeInTurn takes CPUs from the buckets in turn, starting with the i-th, until there are enough or until a whole round, which
// begins at the first, yields none. It returns the index of the next bucket.
func takeInTurn(buckets []*bucket, i int, isDone func() bool, takeOne func(*bucket) bool) int {
	isTaken := true
	for ; !isDone(); i = (i + 1) % len(buckets) {
		if i == 0 {
			if !isTaken {
				break
			}
			isTaken = false
		}
		if takeOne(buckets[i]) {
			isTaken = true
		}
	}
	return i
}
