package rule

import (
	"fmt"

	"polder/lib/tick"
)

// numaMemory is the state of one NUMA node's free memory.
type numaMemory struct {
	level
	streak
}

func (w *memoryWindow) numa(x *shortage, due, continued bool) {
	before := w.NUMA
	w.NUMA = nil
	nodes := x.t.Sample.NUMANodes
	part, ok := watermark(x.t)
	if !ok && len(nodes) > 0 {
		x.missing("numa", "the sample has no watermark scale factor of 1 to 9999")
		return
	}
	if len(nodes) == 0 {
		x.missing("numa", "the sample has no NUMA nodes")
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
			x.missing(name, fmt.Sprintf("the sample has not the free and total memory of NUMA node %d", n.ID))
			continue // the counted times are no longer consecutive
		}
		if total == 0 {
			continue // a node with only CPUs
		}
		l := before[n.ID]
		if l == nil {
			l = &numaMemory{}
		}
		w.NUMA[n.ID] = l
		node := n.ID
		if len(nodes) == 1 {
			node = -1
		}
		x.m.Findings = append(x.m.Findings, l.finding(x, name, node, free, total, part, due, continued))
	}
}

// finding is met if the node is below the watermark now and was so at enough consecutive times.
func (l *numaMemory) finding(x *shortage, name string, node int, free, total, part float64, due, continued bool) Finding {
	threshold, below := l.under(x.t, free, total*part, x.s.MemoryHysteresis)
	if due {
		l.count(continued, below)
	}
	everyone := l.Times >= x.s.MemoryNUMABelowTimes
	f := x.finding(name, free, threshold, below && (everyone || l.Times >= x.s.MemoryNUMABelowTimesReclaimed), &l.level)
	f.Below = true
	if !f.Met {
		f.Since = ""
		return f
	}
	accept, who := only(tick.QoSReclaimed), "reclaimed pods may be evicted"
	if everyone {
		accept, who = anyone, "any pod may be evicted"
	}
	least := total * x.s.MemoryNUMAVictimMinimum
	accepted, others := x.candidates(x.s.MemoryNUMARanking, 0, node, accept)
	f.Others = others
	for _, c := range accepted {
		if c.Releases > 0 && c.Releases >= least {
			f.Candidates = append(f.Candidates, c)
		} else {
			f.Others = append(f.Others, Candidate{Pod: c.Pod, Releases: c.Releases})
		}
	}
	if len(x.unknown) > 0 {
		x.m.Errors = append(x.m.Errors, fmt.Sprintf("%s (%s): it is not known what %d of the pods use there, they stay: %s", ScopeMemory, name, len(x.unknown), some(x.unknown)))
	}
	f.Message = fmt.Sprintf("%s of %s's memory are free, under the threshold of %s, %s: %s", mebibytes(free), name, mebibytes(threshold), l.streak, who)
	return f
}
