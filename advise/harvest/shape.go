package harvest

import (
	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// shape is a node's topology in the form that the policy needs.
type shape struct {
	*policy.Shape
	availList string

	// A steady node uses the same divisions every second: each is computed once.
	divisions map[divisionKey]*division
	allNUMA   []uint64 // [shape.perNUMA] of avail
}

// see builds the shape, unless there is one for the same topology.
func (n *node) see(t *tick.Topology, reserved, given string) error {
	if n.shape != nil && n.shape.IsOf(t, reserved, given) {
		return nil
	}
	machine, err := policy.NewShape(t, reserved, given)
	if err != nil {
		return err
	}
	n.shape = &shape{Shape: machine, availList: machine.Avail.String()}
	n.shape.allNUMA = n.shape.perNUMA(machine.Avail)
	return nil
}

// division is how the CPUs that batch may use are divided: kept without batch, batch's, and batch's floor.
type division struct {
	kept, batch, floor string
	size               int      // of batch's CPUs
	perNUMA, keptNUMA  []uint64 // batch's and the kept CPUs, by NUMA node
	present            int      // the number of previously kept CPUs that still exist
	shrinks            bool     // fewer CPUs are kept than before
}

type divisionKey struct {
	present     string
	want, limit int
	split       string // [splitKey] of the CPUs that should be kept on each NUMA node
}

// maxDivisions bounds the cached divisions.
const maxDivisions = 256

// divide keeps want CPUs without batch, in whole cores, and moves as few as possible; by NUMA node according to the split, if there is one.
// present is our own list or a state file's: an invalid list counts as empty.
func (sh *shape) divide(present string, want, limit int, split []float64) *division {
	key := divisionKey{present, want, limit, splitKey(split)}
	if d := sh.divisions[key]; d != nil {
		return d
	}
	if sh.divisions == nil || len(sh.divisions) >= maxDivisions {
		sh.divisions = map[divisionKey]*division{}
	}
	before, _ := cpus.Parse(present)
	before = before.Intersection(sh.Avail)
	var kept cpus.Set
	if len(split) == len(sh.NUMA) {
		kept = sh.resizeBy(before, want, limit, split)
	} else {
		kept = sh.Resize(sh.Avail, before, want, limit)
	}
	batch := sh.Avail.Difference(kept)
	d := &division{
		kept: kept.String(), batch: batch.String(), floor: sh.First(batch, sh.floorCPUs()).String(),
		size: batch.Size(), perNUMA: sh.perNUMA(batch), keptNUMA: sh.perNUMA(kept),
		present: before.Size(), shrinks: kept.Size() < before.Size() && before.Size() <= limit,
	}
	sh.divisions[key] = d
	return d
}

// floorCPUs returns the CPUs that batch keeps at any load: a tenth, at least a core. Batch is in the idle class there.
func (sh *shape) floorCPUs() int { return max(sh.Avail.Size()/10, sh.LargestCore(), 1) }

// perNUMA returns the number of a set's CPUs by NUMA node.
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
