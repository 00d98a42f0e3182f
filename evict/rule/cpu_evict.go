package rule

import (
	"fmt"

	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// cpuEvict is Koordinator's eviction, by the node's CPU use, of any pods that permit it.
var cpuEvict = &Rule{
	Name: "CPUEvict",
	Doc: `the node's CPU is used beyond Koordinator's threshold: pods that allow it are evicted
The node's CPU use, on average of cpuEvictTimeWindowSeconds and at the last tick, in whole percent of its capacity (70.9 counts as 70), is
at cpuEvictThresholdPercent or over it. It is on where that and evictEnabledPriorityThreshold are set. Pods are evicted, as for MemoryEvict
and in that order with CPU in the place of memory, at one tick, until what they use adds up to the capacity's share down to
cpuEvictLowerPercent (threshold less 2 where that is not set), the smaller one of the average's and the last tick's. At least a
third of the window must have been seen. Then none for 20 seconds, nor in the first 20 seconds of watching.`,
	Scopes: []string{ScopeCPUUsed},
	Thresholds: []string{
		"enable", "cpuEvictThresholdPercent", "cpuEvictLowerPercent", "evictEnabledPriorityThreshold",
		"cpuEvictTimeWindowSeconds",
	},
	Strategy: func(th *sloconfig.Threshold) error {
		_, err := cpuEvictBounds(th)
		return err
	},
	New: func() Window { return &cpuEvictWindow{} },
}

// ScopeCPUUsed is the node's CPU use in percent of its capacity.
const ScopeCPUUsed = "cpu.used.percent"

func cpuEvictBounds(th *sloconfig.Threshold) (bounds, error) {
	const key, priorityKey = "cpuEvictThresholdPercent", "evictEnabledPriorityThreshold"
	if err := enabled(th); err != nil {
		return bounds{}, err
	}
	b, err := usageBounds(key, th.CPUEvictThresholdPercent, "cpuEvictLowerPercent", th.CPUEvictLowerPercent)
	switch {
	case err != nil:
		return b, err
	case th.EvictEnabledPriorityThreshold == nil:
		return b, fmt.Errorf("%s is set, and %s is not", key, priorityKey)
	}
	return b, priorityAtMost(priorityKey, th.EvictEnabledPriorityThreshold)
}

type cpuEvictWindow struct {
	Watched watched  `json:"watched"`
	Over    level    `json:"over"`
	Usage   averaged `json:"usage"`
}

func (w *cpuEvictWindow) Measure(s *Settings, t *tick.Tick) Measure {
	m, off := cpuEvict.off(s.Strategies)
	if off {
		*w = cpuEvictWindow{}
		return m
	}
	th := &s.Strategies.Threshold
	b, _ := cpuEvictBounds(th)
	again := w.Watched.Last.Equal(t.Time)
	waits := w.Watched.look(t)
	used, capacity, why := nodeCPU(t.Sample)
	if why != "" {
		w.Over.observe(t, false)
		m.Errors = append(m.Errors, missingInput(cpuEvict.Name, why))
		return m
	}
	over := span(th.CPUEvictTimeWindowSeconds, t)
	if !again {
		w.Usage.add(t, used, over)
	}
	mean, seen := w.Usage.mean(t, over)
	percent, last := wholePercent(mean, capacity), wholePercent(used, capacity)
	f := cpuEvict.finding(ScopeCPUUsed, percent, b.upper)
	need := min(b.need(percent, capacity), b.need(last, capacity))
	f.Met = w.Over.observe(t, seen && percent >= b.upper && last >= b.upper && need > 0)
	f.Since = since(w.Over.Start)
	if f.Met {
		f.Need, f.Waits = need, waits
		f.Message = fmt.Sprintf("%.0f%% of the node's CPU are used, at the threshold of %.0f%% or over it: %s have to be released to come to %.0f%%",
			percent, b.upper, milliCPU(need), b.lower)
		f.allowed(t, *th.EvictEnabledPriorityThreshold, func(p *tick.Pod) (float64, bool) { return amount(p.UsageMilliCPU) })
	}
	m.Findings = append(m.Findings, f)
	return m
}

// nodeCPU returns the node's CPU use, and its capacity, in milli-CPU.
func nodeCPU(s *tick.Sample) (used, capacity float64, why string) {
	if s.CPU == nil || s.Capacity == nil || Interval(s) == 0 {
		return 0, 0, "the sample has not the node's CPU use and capacity"
	}
	used, okUsed := amount(s.CPU.UsageMilliCPU)
	capacity, okCapacity := amount(s.Capacity.MilliCPU)
	if !okUsed || !okCapacity || capacity < 1 {
		return 0, 0, "the sample has not the node's CPU use and capacity"
	}
	return used, capacity, ""
}
