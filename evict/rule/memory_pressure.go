package rule

import (
	"fmt"
	"math"
	"slices"

	"polder/lib/evictconfig"
	"polder/lib/reason"
	"polder/lib/tick"
)

// memoryPressure is "Memory" of Katalyst's guide.
var memoryPressure = &Rule{
	Name: "memory-pressure-eviction-plugin",
	Doc: `memory is short: on the node, on a NUMA node, by kswapd's reclaim, or by pods' stalls
All findings are hard and evict one pod at a time. All except NUMA's set the taint MemoryPressure:NoSchedule. The part names the finding.

free: the node's free memory (bytes) is below the larger of memory-free-minimum and the kernel's watermark, which is
total x vm.watermark_scale_factor / 10000. Only reclaimed pods are evicted.

numa<id>: a NUMA node's free memory (bytes) is below its total x vm.watermark_scale_factor / 10000. It is measured every
memory-sync-period. After memory-numa-below-times-reclaimed consecutive times a reclaimed pod is evicted, after
memory-numa-below-times consecutive times any pod. Only pods that use at least the fraction memory-numa-victim-minimum of that node's
memory are evicted. On a machine with one NUMA node a pod's whole memory counts as used there.

kswapd: the kernel reclaims more than memory-kswapd-rate pages a second, in memory-kswapd-times consecutive periods of
memory-sync-period, or for memory-kswapd-duration if that is set. A reclaimed or shared pod is evicted, even if memory is free,
and the next one when the rate of another period is known.

psi (if the kernel has pressure stall information, on cgroup v2): the node's "some avg10" (percent of time) is over
memory-psi-threshold, and at least memory-psi-pods shared and dedicated pods are over memory-psi-pod-threshold, with a mean of at
least memory-psi-pods-mean. After memory-psi-duration-reclaimed a reclaimed pod is evicted, after memory-psi-duration any pod. The
cooldown is memory-psi-cooldown.

The order is memory-system-ranking, for NUMA nodes memory-numa-ranking, compared from left to right. A pod with an unknown
measure comes before pods with a known one, and counts as releasing what is missing. A pod without a
running container releases nothing and is not evicted.`,
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
	Free   condition           `json:"free"`
	NUMA   map[int]*numaMemory `json:"numa,omitempty"` // by id
	Kswapd kswapd              `json:"kswapd"`
	PSI    condition           `json:"psi"`
	Period countPeriod         `json:"pace"`
}

// memoryCheck is the measurement of one tick: its inputs and its result.
type memoryCheck struct {
	s           *Settings
	t           *tick.Tick
	m           *Measure
	pods        []memoryUser
	unknownPods []string // pods with unknown use
}

func (w *memoryWindow) Measure(s *Settings, t *tick.Tick) Measure {
	var m Measure
	due, continued := w.Period.due(t, s.MemorySyncPeriod)
	if t.Sample.Memory == nil {
		*w = memoryWindow{Period: w.Period}
		if s.MemorySystemEnabled || s.MemoryNUMAEnabled || s.MemoryKswapdRate > 0 {
			m.Errors = []string{reason.NotMeasured(ScopeMemory, "the sample lacks the node's memory")}
		}
		return m
	}
	x := &memoryCheck{s: s, t: t, m: &m, pods: memoryUsers(t)}
	if s.MemorySystemEnabled {
		w.free(x)
	} else {
		w.Free = condition{}
	}
	if s.MemoryNUMAEnabled {
		w.measureNUMA(x, due, continued)
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
		w.PSI = condition{}
	}
	return m
}

// watermark returns the share of memory below which the kernel reclaims more, as in Katalyst.
func watermark(t *tick.Tick) (fraction float64, ok bool) {
	scale, ok := amount(t.Sample.Memory.WatermarkScaleFactor)
	if !ok || scale == 0 || scale >= 10_000 {
		return 0, false // the kernel accepts 1 to 3000
	}
	return scale / 10_000, true
}

func (w *memoryWindow) free(x *memoryCheck) {
	memory := x.t.Sample.Memory
	free, okFree := amount(memory.FreeBytes)
	total, okTotal := amount(memory.TotalBytes)
	fraction, okFraction := watermark(x.t)
	minBytes := float64(x.s.MemoryFreeMinimum)
	why := ""
	switch {
	case !okFree || !okTotal || total == 0:
		why = "the sample lacks the node's free or total memory"
	case !okFraction:
		why = "the sample has no watermark scale factor of 1 to 9999"
	case minBytes >= total:
		why = fmt.Sprintf("memory-free-minimum %s is all of the node's memory, or more", x.s.MemoryFreeMinimum)
	}
	if why != "" {
		w.Free.observe(x.t, false)
		x.addError(partFree, why)
		return
	}
	threshold, met := w.Free.isUnder(x.t, free, max(minBytes, total*fraction), x.s.MemoryHysteresis)
	f := x.newFinding(partFree, free, threshold, met, &w.Free)
	f.Below = true
	if met {
		taint := taintMemoryPressure
		f.Taint = &taint
		f.Candidates, f.Others = x.candidates(x.s.MemorySystemRanking, threshold-free, -1, ofClasses(tick.QoSReclaimed))
		f.Message = fmt.Sprintf("%s of the node's memory are free, under the "+reason.Threshold+"%s", mebibytes(free), mebibytes(threshold))
	}
	x.m.Findings = append(x.m.Findings, f)
}

func (x *memoryCheck) addError(part, why string) {
	x.m.Errors = append(x.m.Errors, reason.NotMeasured(fmt.Sprintf("%s (%s)", ScopeMemory, part), why))
}

func (x *memoryCheck) newFinding(part string, value, threshold float64, met bool, l *condition) Finding {
	f := Finding{PressureFinding: tick.PressureFinding{
		Rule: memoryPressure.Name, Scope: ScopeMemory, Part: part, Value: value, Threshold: threshold, Met: met, Hard: true,
		Since: formatTime(l.Start),
	}}
	f.Tolerance, f.Cooldown = x.s.MemoryTolerance, x.s.MemoryCooldown
	f.GracePeriodSeconds = graceSeconds(x.s.MemoryGracePeriod)
	return f
}

// memoryUser is a pod that uses memory.
type memoryUser struct {
	pod   *tick.Pod
	bytes float64
	known bool
}

// memoryUsers returns the active pods of the classes that may be evicted, except those without a container: they use nothing, have not
// started, or wait to be started again after a crash, and their end would release nothing.
func memoryUsers(t *tick.Tick) []memoryUser {
	var list []memoryUser
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if p.Ended() || p.Missing == tick.MissingCgroup || hasNoContainer(p) {
			continue
		}
		switch p.QoS {
		case tick.QoSReclaimed, tick.QoSShared, tick.QoSDedicated:
			bytes, ok := podMemory(p, usageBytes)
			list = append(list, memoryUser{p, bytes, ok})
		}
	}
	return list
}

// hasNoContainer reports whether a pod's cgroup is known, but no container in it.
func hasNoContainer(p *tick.Pod) bool {
	return p.Cgroup != "" && len(p.Containers) == 0 && p.Memory == nil
}

// ofClasses accepts pods of these classes.
func ofClasses(classes ...string) func(*tick.Pod) bool {
	return func(p *tick.Pod) bool {
		return slices.Contains(classes, p.QoS)
	}
}

func anyPod(*tick.Pod) bool { return true }

// candidates ranks the accepted pods, and returns the others separately. Their use is that on a NUMA node, or the total if
// node is negative; need replaces the use of a pod if it is unknown.
func (x *memoryCheck) candidates(ranking []string, need float64, node int, accept func(*tick.Pod) bool) (out, others []Candidate) {
	x.unknownPods = nil
	for _, v := range x.pods {
		bytes, ok := v.bytes, v.known
		if node >= 0 {
			bytes, ok = memoryOnNode(v.pod, node)
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
			x.unknownPods = append(x.unknownPods, v.pod.Name)
		}
		for i, name := range ranking {
			c.Rank[i] = rank(name, v, bytes, ok)
		}
		if v.pod.QoS == tick.QoSReclaimed {
			c.GracePeriodSeconds = graceSeconds(x.s.MemoryReclaimedGracePeriod)
		}
		out = append(out, c)
	}
	return out, others
}

// rankUnknown exceeds every measure.
const rankUnknown = 10 * maxAmount

// rank returns one measure of a pod: the greater comes first.
func rank(name string, v memoryUser, onNode float64, known bool) float64 {
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

// memoryOnNode returns a pod's memory on one NUMA node; unknown if a container does not report it.
func memoryOnNode(p *tick.Pod, id int) (float64, bool) {
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
