package harvest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// numaHalfLife is the time in which a reading's weight halves.
const numaHalfLife = 30 * time.Second

// numaUse is the services' CPU use on each NUMA node, in milli-CPU, averaged over about the last minute.
type numaUse struct {
	Use []float64 `json:"use"`
	At  time.Time `json:"at"`
}

// observe adds a sample's use of each NUMA node, without batch's use: batch is assumed to use its CPUs evenly; batchCPUs has their number
// on each NUMA node. It returns the new state, nil if the use of a node has been unknown for a minute.
func (b *numaUse) observe(now time.Time, s *tick.Sample, sh *shape, batchCPUs []uint64) *numaUse {
	use := servicesByNUMA(s, sh, batchCPUs)
	if use == nil {
		if b != nil && len(b.Use) == len(sh.NUMA) && !now.Before(b.At) && now.Sub(b.At) <= policy.MaxUnknown {
			return b
		}
		return nil
	}
	if b != nil && len(b.Use) == len(use) && !now.Before(b.At) {
		oldWeight := math.Exp2(-now.Sub(b.At).Seconds() / numaHalfLife.Seconds())
		for i := range use {
			use[i] += oldWeight * (min(max(b.Use[i], 0), maxNUMAMilliCPU) - use[i]) // a state file may contain any value
		}
	}
	return &numaUse{Use: use, At: now}
}

// maxNUMAMilliCPU is more than any NUMA node has.
const maxNUMAMilliCPU = 1e9

// servicesByNUMA returns nil if there is a single node, or the use of a node is unknown. Like [demand.inUse] it excludes the use of pods
// with exclusive CPUs: the CPUs without batch are other ones.
func servicesByNUMA(s *tick.Sample, sh *shape, batchCPUs []uint64) []float64 {
	if len(sh.NUMA) < 2 {
		return nil
	}
	others := make([]float64, len(sh.NUMA)) // the use that is not the services'
	batch := 0.0
	for i := range s.Pods {
		p := &s.Pods[i]
		own := exclusive{}
		if p.QoS != tick.QoSReclaimed {
			own = sh.exclusiveOf(p)
		}
		if p.Ended() || p.QoS != tick.QoSReclaimed && own.cpus.IsEmpty() {
			continue
		}
		use := useOf(p)
		switch {
		case use == nil && !p.IsIdle():
			return nil
		case p.QoS == tick.QoSReclaimed:
			batch = policy.Bounded(batch + policy.Amount(use))
		default:
			addSpread(others, own.use, sh.perNUMA(own.cpus))
		}
	}
	addSpread(others, batch, batchCPUs)
	uses := make([]float64, len(sh.NUMA))
	for i, id := range sh.NUMA {
		index := slices.IndexFunc(s.NUMANodes, func(n tick.NUMASample) bool { return n.ID == id })
		if index < 0 || s.NUMANodes[index].UsageMilliCPU == nil || *s.NUMANodes[index].UsageMilliCPU < 0 {
			return nil
		}
		uses[i] = max(min(*s.NUMANodes[index].UsageMilliCPU, maxNUMAMilliCPU)-others[i], 0)
	}
	return uses
}

// addSpread adds a use to those of the NUMA nodes, in proportion to its number of CPUs on each.
func addSpread(uses []float64, use float64, numbers []uint64) {
	total := uint64(0)
	for _, n := range numbers {
		total += n
	}
	for i, n := range numbers {
		if n > 0 {
			uses[i] = policy.Bounded(uses[i] + use*float64(n)/float64(total))
		}
	}
}

// split divides count CPUs over the NUMA nodes in proportion to the services' use; nil if that is unknown, or almost zero.
func (b *numaUse) split(count int) []float64 {
	if b == nil {
		return nil
	}
	sum := 0.0
	for _, u := range b.Use {
		sum += u
	}
	if sum < 1 {
		return nil
	}
	list := make([]float64, len(b.Use))
	for i, u := range b.Use {
		list[i] = math.Round(2*float64(count)*u/sum) / 2 // half CPUs, so that small changes of the use have no effect
	}
	return list
}

// text returns where the services run, and on which NUMA nodes CPUs are kept for them.
func (b *numaUse) text(sh *shape, d *division) string {
	if b == nil || len(d.withoutBatchNUMA) != len(b.Use) {
		return ""
	}
	nodes := make([]string, len(b.Use))
	for i, use := range b.Use {
		nodes[i] = fmt.Sprintf("%d of %d for %.0fm", d.withoutBatchNUMA[i], sh.allNUMA[i], use)
	}
	return "; CPUs without batch by NUMA node: " + strings.Join(nodes, ", ")
}

// observeNUMA adds a sample's use of each NUMA node. In the first tick it assumes that batch runs on all CPUs.
func (p *placement) observeNUMA(t *tick.Tick, sh *shape) {
	batchCPUs := sh.allNUMA
	if p.last != nil && len(p.last.perNUMA) == len(sh.NUMA) {
		batchCPUs = p.last.perNUMA
	}
	p.NUMA = p.NUMA.observe(t.Time, t.Sample, sh, batchCPUs)
}

// splitKey returns a split as a map key.
func splitKey(split []float64) string {
	var b []byte
	for _, n := range split {
		b = append(strconv.AppendFloat(b, n, 'f', 1, 64), ' ')
	}
	return string(b)
}

// resizeBySplit returns whole cores of avail with at least n CPUs and at most limit, unless a single core has more, on the NUMA nodes
// according to the split: it adds cores on the node that lacks most of its part, and removes them on the node that exceeds its part most.
// If one node lacks a core and another has one too many, one core moves per call.
func (sh *shape) resizeBySplit(current cpus.Set, n, limit int, split []float64) cpus.Set {
	r := resizing{shape: sh, split: split, order: sh.Balanced(sh.Avail)}
	r.isIn, r.nodeCPUs = make([]bool, len(r.order)), make([]int, len(sh.NUMA))
	for i, c := range r.order {
		if !c.CPUs.Intersection(current).IsEmpty() {
			r.setCore(i, true)
		}
	}
	for { // shrink
		i := r.coreToRemove()
		if i < 0 {
			break
		}
		remaining := r.size - r.order[i].CPUs.Size()
		if remaining < max(n, 1) && (r.size <= limit || remaining <= 0) {
			break
		}
		r.setCore(i, false)
	}
	for r.size < max(n, 1) { // grow
		i := r.coreToAdd(limit)
		if i < 0 {
			break
		}
		r.setCore(i, true)
	}
	r.moveCore(limit)
	var ids []int
	for i, c := range r.order {
		if r.isIn[i] {
			ids = append(ids, c.CPUs.UnsortedList()...)
		}
	}
	return cpus.New(ids...)
}

// resizing is a set of cores while it changes.
type resizing struct {
	*shape
	split    []float64 // CPUs that each NUMA node should have
	order    []cpus.Core
	isIn     []bool
	nodeCPUs []int // CPUs of each NUMA node that are in the set
	size     int
}

func (r *resizing) setCore(i int, isIn bool) {
	c := &r.order[i]
	change := c.CPUs.Size()
	if !isIn {
		change = -change
	}
	r.isIn[i] = isIn
	r.size += change
	if index := slices.Index(r.NUMA, c.NUMA); index >= 0 {
		r.nodeCPUs[index] += change
	}
}

// shortfall returns how many CPUs a core's NUMA node lacks of its part.
func (r *resizing) shortfall(i int) float64 {
	index := slices.Index(r.NUMA, r.order[i].NUMA)
	if index < 0 {
		return 0
	}
	return r.split[index] - float64(r.nodeCPUs[index])
}

// coreToRemove returns the core to remove next: the first of those whose node exceeds its part most; negative if the set is empty.
func (r *resizing) coreToRemove() int {
	best := -1
	for i := range r.order {
		if r.isIn[i] && (best < 0 || r.shortfall(i) < r.shortfall(best)) {
			best = i
		}
	}
	return best
}

// coreToAdd returns the core to add next: the last of those whose node has the largest shortfall, within the limit; negative if there is
// none.
func (r *resizing) coreToAdd(limit int) int {
	best := -1
	for i := range slices.Backward(r.order) {
		if fits := r.size+r.order[i].CPUs.Size() <= limit || r.size == 0; !r.isIn[i] && fits && (best < 0 || r.shortfall(i) > r.shortfall(best)) {
			best = i
		}
	}
	return best
}

func (r *resizing) moveCore(limit int) {
	from := r.coreToRemove()
	if from < 0 || r.shortfall(from) > -float64(r.order[from].CPUs.Size()) {
		return
	}
	r.setCore(from, false)
	to := r.coreToAdd(limit)
	if to < 0 || r.shortfall(to) < float64(r.order[to].CPUs.Size()) || r.order[to].CPUs.Size() != r.order[from].CPUs.Size() {
		to = from
	}
	r.setCore(to, true)
}
