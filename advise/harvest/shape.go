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

// updateShape builds the shape, unless there is one for the same topology.
func (n *node) updateShape(t *tick.Topology, reserved, exclusive string) error {
	if n.shape != nil && n.shape.IsOf(t, reserved, exclusive) {
		return nil
	}
	machine, err := policy.NewShape(t, reserved, exclusive)
	if err != nil {
		return err
	}
	n.shape = &shape{Shape: machine, availList: machine.Avail.String()}
	n.shape.allNUMA = n.shape.perNUMA(machine.Avail)
	return nil
}

// division is how the CPUs that batch may use are divided: those without batch, batch's, and batch's floor.
type division struct {
	withoutBatch, batch, floor string
	size                       int      // of batch's CPUs
	perNUMA, withoutBatchNUMA  []uint64 // CPUs by NUMA node
	previousSize               int      // how many of the CPUs that were without batch still exist
	shrinks                    bool     // fewer CPUs are without batch than before
}

type divisionKey struct {
	current        string
	desired, limit int
	split          string // [splitKey] of the CPUs that should be without batch on each NUMA node
}

// maxDivisions bounds the cached divisions.
const maxDivisions = 256

// divide leaves the desired number of CPUs without batch, in whole cores, and moves as few as possible; by NUMA node according to the
// split, if there is one. current is our own list or a state file's: an invalid list counts as empty.
func (sh *shape) divide(current string, desired, limit int, split []float64) *division {
	key := divisionKey{current, desired, limit, splitKey(split)}
	if d := sh.divisions[key]; d != nil {
		return d
	}
	if sh.divisions == nil || len(sh.divisions) >= maxDivisions {
		sh.divisions = map[divisionKey]*division{}
	}
	previous, _ := cpus.Parse(current)
	previous = previous.Intersection(sh.Avail)
	var withoutBatch cpus.Set
	if len(split) == len(sh.NUMA) {
		withoutBatch = sh.resizeBySplit(previous, desired, limit, split)
	} else {
		withoutBatch = sh.Resize(sh.Avail, previous, desired, limit)
	}
	batch := sh.Avail.Difference(withoutBatch)
	d := &division{
		withoutBatch: withoutBatch.String(), batch: batch.String(), floor: sh.FirstCores(batch, sh.floorCPUs()).String(),
		size: batch.Size(), perNUMA: sh.perNUMA(batch), withoutBatchNUMA: sh.perNUMA(withoutBatch),
		previousSize: previous.Size(), shrinks: withoutBatch.Size() < previous.Size() && previous.Size() <= limit,
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
