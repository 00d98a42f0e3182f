package harvest

import (
	"fmt"

	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// shape is a node's topology in the form that the policy needs.
type shape struct {
	*cpus.Topology
	from            tick.Topology // what it was made from, with reserved and given
	reserved, given string
	reservedOnline  cpus.Set
	exclusive       cpus.Set // given away by kubelet
	avail           cpus.Set // online without these two: batch may have them
	availList       string

	// A steady node asks for the same divisions every second: each is worked out once.
	divisions map[divisionKey]*division
	allNUMA   []uint64 // [shape.perNUMA] of avail
}

// see makes the shape, unless it is known already.
func (n *node) see(t *tick.Topology, reserved, given string) error {
	if n.shape != nil && n.shape.reserved == reserved && n.shape.given == given && policy.SameTopology(&n.shape.from, t) {
		return nil
	}
	sh := &shape{from: *t, reserved: reserved, given: given}
	numa := make(map[int]string, len(t.NUMANodes))
	for _, node := range t.NUMANodes {
		numa[node.ID] = node.CPUs
	}
	var err error
	if sh.Topology, err = cpus.NewTopology(cpus.Shape{Online: t.CPUs, Cores: t.Cores, L3: t.L3, NUMA: numa}); err != nil {
		return fmt.Errorf("topology: %w", err)
	}
	if sh.reservedOnline, err = cpus.Parse(reserved); err != nil {
		return fmt.Errorf("reserved CPUs: %w", err)
	}
	if sh.exclusive, err = cpus.Parse(given); err != nil {
		return fmt.Errorf("kubelet's exclusive CPUs: %w", err)
	}
	sh.exclusive = sh.exclusive.Intersection(sh.Online)
	sh.reservedOnline = sh.reservedOnline.Intersection(sh.Online).Difference(sh.exclusive)
	sh.avail = sh.Online.Difference(sh.exclusive).Difference(sh.reservedOnline)
	sh.availList = sh.avail.String()
	sh.allNUMA = sh.perNUMA(sh.avail)
	n.shape = sh
	return nil
}

// division is how the CPUs that batch may have are divided: kept without batch, its own, and the floor of these.
type division struct {
	kept, batch, floor string
	size               int      // of batch's
	perNUMA, keptNUMA  []uint64 // batch's and those without it, by NUMA node
	present            int      // the size of what was kept before, as far as it is there
	shrinks            bool     // fewer CPUs are kept than before
}

type divisionKey struct {
	present     string
	want, limit int
	split       string // [splitKey] of the CPUs that each NUMA node should keep
}

// maxDivisions bounds those that are remembered.
const maxDivisions = 256

// divide keeps so many CPUs without batch, in whole cores, and moves as few as it can; by NUMA node as the split says, where there is one.
// What was kept before is a list of our own, or a state file's: what is no list is none.
func (sh *shape) divide(present string, want, limit int, split []float64) *division {
	key := divisionKey{present, want, limit, splitKey(split)}
	if d := sh.divisions[key]; d != nil {
		return d
	}
	if sh.divisions == nil || len(sh.divisions) >= maxDivisions {
		sh.divisions = map[divisionKey]*division{}
	}
	before, _ := cpus.Parse(present)
	before = before.Intersection(sh.avail)
	var kept cpus.Set
	if len(split) == len(sh.NUMA) {
		kept = sh.resizeBy(before, want, limit, split)
	} else {
		kept = sh.Resize(sh.avail, before, want, limit)
	}
	batch := sh.avail.Difference(kept)
	d := &division{
		kept: kept.String(), batch: batch.String(), floor: sh.First(batch, sh.floorCPUs()).String(),
		size: batch.Size(), perNUMA: sh.perNUMA(batch), keptNUMA: sh.perNUMA(kept),
		present: before.Size(), shrinks: kept.Size() < before.Size() && before.Size() <= limit,
	}
	sh.divisions[key] = d
	return d
}

// floorCPUs are what batch keeps however busy the services are: a tenth, at least a core. It is in the idle class there.
func (sh *shape) floorCPUs() int { return max(sh.avail.Size()/10, sh.LargestCore(), 1) }

// perNUMA is the number of a set's CPUs by NUMA node.
func (sh *shape) perNUMA(set cpus.Set) []uint64 {
	list := make([]uint64, len(sh.NUMA))
	for _, c := range sh.Cores {
		for i, id := range sh.NUMA {
			if id == c.NUMA {
				list[i] += uint64(c.CPUs.Intersection(set).Size())
			}
		}
	}
	return list
}
