package rule

import (
	"fmt"

	"polder/lib/reason"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// cpuEvict is Koordinator's eviction, by the node's CPU use, of any pods that permit it.
var cpuEvict = &Rule{
	Name: "CPUEvict",
	Doc: `the node's CPU use is over Koordinator's threshold: pods that permit it are evicted
The node's CPU use is in whole percent of its capacity (70.9 counts as 70). The condition is met if it is at or over
cpuEvictThresholdPercent both on average over cpuEvictTimeWindowSeconds and at the last tick. The samples must cover at least a third of
the window. The rule is on if cpuEvictThresholdPercent and evictEnabledPriorityThreshold are set. The candidates and their order are those
of MemoryEvict, with CPU instead of memory. They are evicted, all at one tick, until their use adds up to the capacity's percentage above
cpuEvictLowerPercent (default: the threshold less 2): the smaller value of the average and the last tick. The cooldown is 20 seconds, also
after the node's first tick.`,
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
	if err := checkEnabled(th); err != nil {
		return bounds{}, err
	}
	b, err := usageBounds(key, th.CPUEvictThresholdPercent, "cpuEvictLowerPercent", th.CPUEvictLowerPercent)
	switch {
	case err != nil:
		return b, err
	case th.EvictEnabledPriorityThreshold == nil:
		return b, fmt.Errorf("%s is set, and %s is not", key, priorityKey)
	}
	return b, checkPriority(priorityKey, th.EvictEnabledPriorityThreshold)
}

type cpuEvictWindow struct {
	Observed observation   `json:"watched"`
	Pressure condition     `json:"over"`
	Usage    movingAverage `json:"usage"`
}

func (w *cpuEvictWindow) Measure(s *Settings, t *tick.Tick) Measure {
	m, off := cpuEvict.measureIfOff(s.Strategies)
	if off {
		*w = cpuEvictWindow{}
		return m
	}
	th := &s.Strategies.Threshold
	b, _ := cpuEvictBounds(th)
	isRepeated := w.Observed.Last.Equal(t.Time)
	whyWait := w.Observed.observeNode(t)
	used, capacity, why := nodeCPU(t.Sample)
	if why != "" {
		w.Pressure.observe(t, false)
		m.Errors = append(m.Errors, reason.NotMeasured(cpuEvict.Name, why))
		return m
	}
	span := averagingTime(th.CPUEvictTimeWindowSeconds, t)
	if !isRepeated {
		w.Usage.add(t, used, span)
	}
	mean, covered := w.Usage.mean(t, span)
	percent, currentPercent := wholePercent(mean, capacity), wholePercent(used, capacity)
	f := cpuEvict.newFinding(ScopeCPUUsed, percent, b.upper)
	need := min(b.need(percent, capacity), b.need(currentPercent, capacity))
	f.Met = w.Pressure.observe(t, covered && percent >= b.upper && currentPercent >= b.upper && need > 0)
	f.Since = formatTime(w.Pressure.Start)
	if f.Met {
		f.Need, f.WhyWait = need, whyWait
		f.Message = fmt.Sprintf("%.0f%% of the node's CPU is used, at or over the "+reason.Threshold+
			"%.0f%%: %s must be released to reach %.0f%%",
			percent, b.upper, milliCPU(need), b.lower)
		f.addPermitted(t, *th.EvictEnabledPriorityThreshold, func(p *tick.Pod) (float64, bool) { return amount(p.UsageMilliCPU) })
	}
	m.Findings = append(m.Findings, f)
	return m
}

// nodeCPU returns the node's CPU use, and its capacity, in milli-CPU.
func nodeCPU(s *tick.Sample) (used, capacity float64, why string) {
	if s.CPU == nil || s.Capacity == nil || Interval(s) == 0 {
		return 0, 0, "the sample lacks the node's CPU use or capacity"
	}
	used, okUsed := amount(s.CPU.UsageMilliCPU)
	capacity, okCapacity := amount(s.Capacity.MilliCPU)
	if !okUsed || !okCapacity || capacity < 1 {
		return 0, 0, "the sample lacks the node's CPU use or capacity"
	}
	return used, capacity, ""
}
