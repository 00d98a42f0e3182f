package rule

import (
	"fmt"
	"math"
	"slices"

	"polder/lib/evictconfig"
	"polder/lib/tick"
)

// memoryPressure is "Memory" of Katalyst's guide.
var memoryPressure = &Rule{
	Name: "memory-pressure-eviction-plugin",
	Doc: `memory is short: on the node, on a NUMA node, by kswapd's work, or by the pods' stalls
All are hard, name one pod at a time, and but for NUMA taint the node MemoryPressure:NoSchedule. The part names the sign.

free: the node's free memory (bytes) is under the larger of memory-free-minimum and the kernel's watermark, which is
total x vm.watermark_scale_factor / 10000. Only reclaimed pods are evicted.

numa<id>: a NUMA node's free memory (bytes) is under its total x vm.watermark_scale_factor / 10000. It is looked at every
memory-sync-period. Found so memory-numa-below-times-reclaimed times in a row, a reclaimed pod is evicted; found so
memory-numa-below-times times, any. Only pods that use at least the part memory-numa-victim-minimum of that node's memory
are evicted. On a machine of one NUMA node a pod's whole memory is what it uses there.

kswapd: the kernel reclaims more than memory-kswapd-rate pages a second, over memory-kswapd-times periods of
memory-sync-period in a row, or for memory-kswapd-duration where that is set. A reclaimed or shared pod is evicted, also while there is free
memory, and the next one when the rate of another period is known.

psi, where the kernel has pressure stall information, on cgroup v2: the node's "some avg10" (percent of time) is over
memory-psi-threshold, and so many shared and dedicated pods as memory-psi-pods are over memory-psi-pod-threshold, with a mean of at
least memory-psi-pods-mean. After memory-psi-duration-reclaimed a reclaimed pod is evicted, after memory-psi-duration any. Then none
for memory-psi-cooldown.

The order is by memory-system-ranking, for NUMA nodes memory-numa-ranking, compared from left to right. A pod whose
measure is unknown comes before those whose measure is known, and is taken to release what is missing. A pod without a
running container releases nothing and stays.`,
	Scopes: []string{ScopeMemory},
	Rows:   (*evictconfig.Settings).MemoryRows,
	New:    func() Window { return &memoryWindow{} },
}

// ScopeMemory is the node's memory, whichever sign shows the shortage.
const ScopeMemory = "memory"

// These are the parts of memory pressure; that of a NUMA node is numa<id>.
const (
	partFree   = "free"
	partKswapd = "kswapd"
	partPSI    = "psi"
)

// taintMemoryPressure keeps new pods off the node.
var taintMemoryPressure = tick.Taint{Key: "node.katalyst.kubewharf.io/MemoryPressure", Effect: "NoSchedule"}

type memoryWindow struct {
	Free   level               `json:"free"`
	NUMA   map[int]*numaMemory `json:"numa,omitempty"` // by id
	Kswapd kswapd              `json:"kswapd"`
	PSI    level               `json:"psi"`
	Pace   pace                `json:"pace"`
}

// shortage is the amount of memory that is missing, as its finding needs it.
type shortage struct {
	s       *Settings
	t       *tick.Tick
	m       *Measure
	pods    []victim
	unknown []string // pods with unknown use
}

func (w *memoryWindow) Measure(s *Settings, t *tick.Tick) Measure {
	var m Measure
	due, continued := w.Pace.due(t, s.MemorySyncPeriod)
	if t.Sample.Memory == nil {
		*w = memoryWindow{Pace: w.Pace}
		if s.MemorySystemEnabled || s.MemoryNUMAEnabled || s.MemoryKswapdRate > 0 {
			m.Errors = []string{ScopeMemory + ": the sample has not the node's memory: not measured"}
		}
		return m
	}
	x := &shortage{s: s, t: t, m: &m, pods: victims(t)}
	if s.MemorySystemEnabled {
		w.free(x)
	} else {
		w.Free = level{}
	}
	if s.MemoryNUMAEnabled {
		w.numa(x, due, continued)
	} else {
		w.NUMA = nil
	}
	if s.MemoryKswapdRate > 0 {
		w.Kswapd.measure(x, due, continued)
	} else {
		w.Kswapd = kswapd{}
	}
	if s.MemoryPSIEnabled {
		measurePSI(x, &w.PSI)
	} else {
		w.PSI = level{}
	}
	return m
}

// watermark returns the share of memory below which the kernel reclaims more, as in Katalyst.
func watermark(t *tick.Tick) (part float64, ok bool) {
	scale, ok := amount(t.Sample.Memory.WatermarkScaleFactor)
	if !ok || scale == 0 || scale >= 10_000 {
		return 0, false // the kernel accepts 1 to 3000
	}
	return scale / 10_000, true
}

func (w *memoryWindow) free(x *shortage) {
	memory := x.t.Sample.Memory
	free, okFree := amount(memory.FreeBytes)
	total, okTotal := amount(memory.TotalBytes)
	part, okPart := watermark(x.t)
	least := float64(x.s.MemoryFreeMinimum)
	why := ""
	switch {
	case !okFree || !okTotal || total == 0:
		why = "the sample has not the node's free and total memory"
	case !okPart:
		why = "the sample has no watermark scale factor of 1 to 9999"
	case least >= total:
		why = fmt.Sprintf("memory-free-minimum %s is all of the node's memory, or more", x.s.MemoryFreeMinimum)
	}
	if why != "" {
		w.Free.observe(x.t, false)
		x.missing(partFree, why)
		return
	}
	threshold, met := w.Free.under(x.t, free, max(least, total*part), x.s.MemoryHysteresis)
	f := x.finding(partFree, free, threshold, met, &w.Free)
	f.Below = true
	if met {
		taint := taintMemoryPressure
		f.Taint = &taint
		f.Candidates, f.Others = x.candidates(x.s.MemorySystemRanking, threshold-free, -1, only(tick.QoSReclaimed))
		f.Message = fmt.Sprintf("%s of the node's memory are free, under the threshold of %s", mebibytes(free), mebibytes(threshold))
	}
	x.m.Findings = append(x.m.Findings, f)
}

func (x *shortage) missing(part, why string) {
	x.m.Errors = append(x.m.Errors, fmt.Sprintf("%s (%s): %s: not measured", ScopeMemory, part, why))
}

func (x *shortage) finding(part string, value, threshold float64, met bool, l *level) Finding {
	f := Finding{PressureFinding: tick.PressureFinding{
		Rule: memoryPressure.Name, Scope: ScopeMemory, Part: part, Value: value, Threshold: threshold, Met: met, Hard: true,
		Since: since(l.Start),
	}}
	f.Tolerance, f.Cooldown = x.s.MemoryTolerance, x.s.MemoryCooldown
	f.GracePeriodSeconds = grace(x.s.MemoryGracePeriod)
	return f
}

// victim is a pod that uses memory.
type victim struct {
	pod   *tick.Pod
	bytes float64
	known bool
}

// victims returns the active pods of the classes that may be evicted, except those that have not started: they use nothing.
func victims(t *tick.Tick) []victim {
	var list []victim
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if p.Ended() || p.Missing == tick.MissingCgroup {
			continue
		}
		switch p.QoS {
		case tick.QoSReclaimed, tick.QoSShared, tick.QoSDedicated:
			bytes, ok := podMemory(p, usageBytes)
			list = append(list, victim{p, bytes, ok})
		}
	}
	return list
}

// only accepts pods of these classes.
func only(classes ...string) func(*tick.Pod) bool {
	return func(p *tick.Pod) bool {
		return slices.Contains(classes, p.QoS)
	}
}

func anyone(*tick.Pod) bool { return true }

// candidates ranks the accepted pods, and returns the others separately. Their use is that on a NUMA node, or the total if
// node is negative; need replaces the use of a pod if it is unknown.
func (x *shortage) candidates(ranking []string, need float64, node int, accept func(*tick.Pod) bool) (out, others []Candidate) {
	x.unknown = nil
	for _, v := range x.pods {
		bytes, ok := v.bytes, v.known
		if node >= 0 {
			bytes, ok = memoryOn(v.pod, node)
		}
		c := Candidate{Pod: v.pod, Releases: bytes, Rank: make([]float64, len(ranking))}
		if !ok {
			c.Releases = need
		}
		if !accept(v.pod) {
			others = append(others, Candidate{Pod: v.pod, Releases: c.Releases})
			continue
		}
		if !ok {
			x.unknown = append(x.unknown, v.pod.Name)
		}
		for i, name := range ranking {
			c.Rank[i] = rank(name, v, bytes, ok)
		}
		if v.pod.QoS == tick.QoSReclaimed {
			c.GracePeriodSeconds = grace(x.s.MemoryReclaimedGracePeriod)
		}
		out = append(out, c)
	}
	return out, others
}

// rankUnknown exceeds every measure.
const rankUnknown = 10 * maxAmount

// rank returns one measure of a pod: the greater comes first.
func rank(name string, v victim, onNode float64, known bool) float64 {
	measure, ok := 0.0, true
	switch name {
	case evictconfig.RankQoS:
		if v.pod.QoS == tick.QoSReclaimed {
			measure = 1
		}
	case evictconfig.RankPriority:
		measure = -priority(v.pod)
	case evictconfig.RankMemoryUsage:
		measure, ok = v.bytes, v.known
	case evictconfig.RankRSS:
		measure, ok = podMemory(v.pod, rssBytes)
	case evictconfig.RankNUMAMemory:
		measure, ok = onNode, known
	}
	if !ok {
		return rankUnknown
	}
	return measure
}

// memoryOn returns a pod's memory on one NUMA node; unknown if a container does not report it.
func memoryOn(p *tick.Pod, id int) (float64, bool) {
	sum := 0.0
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.NUMAMemory == nil {
			return 0, false
		}
		for _, n := range c.NUMAMemory {
			if n.ID != id {
				continue
			}
			if !(n.Bytes >= 0 && n.Bytes <= maxAmount) || math.IsNaN(n.Bytes) {
				return 0, false
			}
			sum += n.Bytes
		}
	}
	return sum, len(p.Containers) > 0
}
