package rule

import (
	"fmt"

	"polder/lib/phrase"
	"polder/lib/reason"
	"polder/lib/tick"
)

// numaMemory is the state of one NUMA node's free memory.
type numaMemory struct {
	condition
	streak
}

func (w *memoryWindow) measureNUMA(x *memoryCheck, due, continued bool) {
	previous := w.NUMA
	w.NUMA = nil
	nodes := x.t.Sample.NUMANodes
	fraction, ok := watermark(x.t)
	if !ok && len(nodes) > 0 {
		x.addError("numa", "the sample has no watermark scale factor of 1 to 9999")
		return
	}
	if len(nodes) == 0 {
		x.addError("numa", "the sample has no NUMA nodes")
		return
	}
	w.NUMA = make(map[int]*numaMemory, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		if w.NUMA[n.ID] != nil {
			continue // named twice
		}
		memory := n.Memory
		if memory == nil {
			memory = &tick.NUMAMemory{}
		}
		name := fmt.Sprintf("numa%d", n.ID)
		free, okFree := amount(memory.FreeBytes)
		total, okTotal := amount(memory.TotalBytes)
		if !okFree || !okTotal {
			x.addError(name, fmt.Sprintf("the sample lacks the free or total memory of NUMA node %d", n.ID))
			continue // the counted times are no longer consecutive
		}
		if total == 0 {
			continue // a node with only CPUs
		}
		l := previous[n.ID]
		if l == nil {
			l = &numaMemory{}
		}
		w.NUMA[n.ID] = l
		node := n.ID
		if len(nodes) == 1 {
			node = -1
		}
		x.m.Findings = append(x.m.Findings, l.finding(x, name, node, free, total, fraction, due, continued))
	}
}

// finding is met if the node is below the watermark now and was so at enough consecutive times.
func (l *numaMemory) finding(x *memoryCheck, name string, node int, free, total, fraction float64, due, continued bool) Finding {
	threshold, isBelow := l.isUnder(x.t, free, total*fraction, x.s.MemoryHysteresis)
	if due {
		l.count(continued, isBelow)
	}
	mayEvictAny := l.Times >= x.s.MemoryNUMABelowTimes
	f := x.newFinding(name, free, threshold, isBelow && (mayEvictAny || l.Times >= x.s.MemoryNUMABelowTimesReclaimed), &l.condition)
	f.Below = true
	if !f.Met {
		f.Since = ""
		return f
	}
	accept, allowed := ofClasses(tick.QoSReclaimed), "reclaimed pods may be evicted"
	if mayEvictAny {
		accept, allowed = anyPod, "any pod may be evicted"
	}
	minBytes := total * x.s.MemoryNUMAVictimMinimum
	accepted, others := x.candidates(x.s.MemoryNUMARanking, 0, node, accept)
	f.Others = others
	for _, c := range accepted {
		if c.Releases > 0 && c.Releases >= minBytes {
			f.Candidates = append(f.Candidates, c)
		} else {
			f.Others = append(f.Others, Candidate{Pod: c.Pod, Releases: c.Releases})
		}
	}
	if len(x.unknownPods) > 0 {
		x.m.Errors = append(x.m.Errors, fmt.Sprintf("%s (%s): the memory of %d pods there is unknown, they are not evicted: %s", ScopeMemory,
			name, len(x.unknownPods), phrase.First(x.unknownPods, shownNames)))
	}
	f.Message = fmt.Sprintf("%s of %s's memory are free, under the "+reason.Threshold+"%s, %s: %s",
		mebibytes(free), name, mebibytes(threshold), l.streak, allowed)
	return f
}
