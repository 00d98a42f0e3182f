package rule

import (
	"fmt"
	"math"

	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/qos"
	"polder/lib/reason"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// beCPUEvict is Koordinator's eviction of batch pods by CPU satisfaction.
var beCPUEvict = &Rule{
	Name: "BECPUEvict",
	Doc: `BE pods get far less CPU than they request: some are evicted so that others get enough
The satisfaction is the CPU that BE pods may use, in percent of their requests. What they may use is the smallest CPU set among kubelet's
tier besteffort and the BE containers below it, or the tier's quota if that is less; with cpuEvictPolicy evictByAllocatable it is the node's
allocatable batch-cpu. The requests are the batch-cpu requests of the BE pods that have not ended and are not terminating. On a machine
without that tier, the BE containers' CPU sets and the BE pods' use apply.

The condition is met if two things are true both on average over cpuEvictTimeWindowSeconds and at the last tick: the satisfaction is at or
below cpuEvictBESatisfactionLowerPercent; and BE pods use cpuEvictBEUsageThresholdPercent of what they may use, or may use less than one
core. The samples must cover at least a third of the window. BE pods are evicted, all at one tick, until their requests have decreased by
the request times (cpuEvictBESatisfactionUpperPercent - satisfaction): the smaller value of the average and the last tick. The lowest
spec.priority is first, then the largest use divided by request. If one of the pods has no priority, priorities are ignored. A pod that
requests no batch-cpu is not evicted: its eviction would release nothing. The cooldown is 20 seconds, also after the node's first tick. An
allocatable batch-cpu that is missing or 0 counts as withdrawn: no pod is evicted because of it.`,
	Scopes: []string{ScopeBESatisfaction},
	Thresholds: []string{
		"enable", "cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent", "cpuEvictBEUsageThresholdPercent", "cpuEvictTimeWindowSeconds", "cpuEvictPolicy",
	},
	Strategy: func(th *sloconfig.Threshold) error {
		_, err := readSatisfaction(th)
		return err
	},
	New: func() Window { return &beCPUWindow{} },
}

// ScopeBESatisfaction is the CPU that BE pods may use divided by their requests, in percent.
const ScopeBESatisfaction = "be.cpu.satisfaction.percent"

// satisfactionSettings are the rule's settings, as percentages.
type satisfactionSettings struct {
	lower, upper, usage float64
	policy              string
}

func readSatisfaction(th *sloconfig.Threshold) (x satisfactionSettings, err error) {
	const lowerKey, upperKey, usageKey = "cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent", "cpuEvictBEUsageThresholdPercent"
	if err := checkEnabled(th); err != nil {
		return x, err
	}
	lower, upper := th.CPUEvictBESatisfactionLowerPercent, th.CPUEvictBESatisfactionUpperPercent
	x = satisfactionSettings{usage: 90, policy: sloconfig.EvictByRealLimit}
	if u := th.CPUEvictBEUsageThresholdPercent; u != nil {
		x.usage = float64(*u)
	}
	if p := th.CPUEvictPolicy; p != nil && *p != "" {
		x.policy = *p
	}
	switch {
	case lower == nil && upper == nil:
		return x, disabledError(lowerKey + " is not set")
	case lower == nil:
		return x, fmt.Errorf("%s is set, and %s is not", upperKey, lowerKey)
	case upper == nil:
		return x, fmt.Errorf("%s is set, and %s is not", lowerKey, upperKey)
	case *lower < 1 || *lower > 60:
		return x, fmt.Errorf("%s: %d: want 1 to 60", lowerKey, *lower)
	case *upper < 1 || *upper > 99:
		return x, fmt.Errorf("%s: %d: want 1 to 99", upperKey, *upper)
	case *upper < *lower:
		return x, fmt.Errorf("%s: %d: want %s, which is %d, or more", upperKey, *upper, lowerKey, *lower)
	case !(x.usage >= 0 && x.usage <= 100):
		return x, fmt.Errorf("%s: %v: want 0 to 100", usageKey, x.usage)
	case x.policy != sloconfig.EvictByRealLimit && x.policy != sloconfig.EvictByAllocatable:
		return x, fmt.Errorf("cpuEvictPolicy: %q: want %s or %s", clip.Text(x.policy, shownBytes), sloconfig.EvictByRealLimit, sloconfig.EvictByAllocatable)
	}
	x.lower, x.upper = float64(*lower), float64(*upper)
	return x, nil
}

// usesLimit reports whether the use of the limit is so high that pods would use more if they could.
func (x satisfactionSettings) usesLimit(used, limit float64) bool {
	return limit > 0 && (limit < 1000 || used*100 >= x.usage*limit)
}

// requestReduction returns by how much requests must fall, in whole milli-CPU: the request times (upper - satisfaction).
func (x satisfactionSettings) requestReduction(request, limit float64) float64 {
	if request <= 0 || limit*100 > x.lower*request {
		return 0
	}
	return max(0, math.Floor(request*x.upper/100-limit))
}

// beCPUSample is one sample, in milli-CPU.
type beCPUSample struct{ usage, request, limit float64 }

type beCPUWindow struct {
	Observed observation `json:"watched"`
	Pressure condition   `json:"over"`
	// Policy is the one that sets the limit.
	Policy  string        `json:"policy,omitempty"`
	Usage   movingAverage `json:"usage"`
	Request movingAverage `json:"request"`
	Limit   movingAverage `json:"limit"`
}

func (w *beCPUWindow) Measure(s *Settings, t *tick.Tick) Measure {
	m, off := beCPUEvict.measureIfOff(s.Strategies)
	if off {
		*w = beCPUWindow{}
		return m
	}
	x, _ := readSatisfaction(&s.Strategies.Threshold)
	if w.Policy != x.policy {
		*w = beCPUWindow{Policy: x.policy, Observed: w.Observed}
	}
	isRepeated := w.Observed.Last.Equal(t.Time)
	whyWait := w.Observed.observeNode(t)
	current, why := readBESample(t, x.policy)
	if why != "" {
		w.Pressure.observe(t, false)
		m.Errors = append(m.Errors, reason.NotMeasured(beCPUEvict.Name, why))
		return m
	}
	span := averagingTime(s.Strategies.Threshold.CPUEvictTimeWindowSeconds, t)
	if !isRepeated {
		w.Usage.add(t, current.usage, span)
		w.Request.add(t, current.request, span)
		w.Limit.add(t, current.limit, span)
	}
	usage, okUsage := w.Usage.mean(t, span)
	request, okRequest := w.Request.mean(t, span)
	limit, okLimit := w.Limit.mean(t, span)
	need := 0.0
	if okUsage && okRequest && okLimit && x.usesLimit(usage, limit) && x.usesLimit(current.usage, current.limit) {
		need = min(x.requestReduction(request, limit), x.requestReduction(current.request, current.limit))
	}
	percent := 100.0
	if current.request > 0 {
		percent = min(current.limit/current.request*100, maxAmount)
	}
	f := beCPUEvict.newFinding(ScopeBESatisfaction, percent, x.lower)
	f.Below = true
	f.Met = w.Pressure.observe(t, need > 0)
	f.Since = formatTime(w.Pressure.Start)
	if f.Met {
		f.Need, f.WhyWait, f.Reason = need, whyWait, reasonSatisfaction
		f.Message = fmt.Sprintf("BE pods may use %s of the %s of CPU that they request (%.0f%%, at or below the "+
			reason.Threshold+"%.0f%%), and use %s: %s must be released to approach %.0f%%",
			milliCPU(current.limit), milliCPU(current.request), percent, x.lower, milliCPU(current.usage), milliCPU(need), x.upper)
		f.addBEPods(t)
	}
	m.Findings = append(m.Findings, f)
	return m
}

// addBEPods adds the BE pods: as candidates, or as others if they do not permit eviction by the rule.
func (f *Finding) addBEPods(t *tick.Tick) {
	message := fmt.Sprintf("killAndEvictBEPodsRelease for node(%s), need realase CPU : %.0f", t.Node, f.Need)
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if !isActive(p) || mayHaveEnded(t, p) || qos.Koordinator(p) != qos.BE {
			continue
		}
		request, _ := podRequest(p, reclaimedMilliCPU)
		c := Candidate{Pod: p, Releases: request, Message: message}
		if qos.MayEvict(p, f.Rule) {
			f.Candidates = append(f.Candidates, c)
		} else {
			f.Others = append(f.Others, c)
		}
	}
	rankBEPods(f.Candidates, func(p *tick.Pod) (float64, bool) {
		request, _ := podRequest(p, reclaimedMilliCPU)
		used, ok := amount(p.UsageMilliCPU)
		return min(used/max(request, 1), maxAmount), ok
	})
}

// readBESample returns what BE pods use, request and may use, or why that is unknown.
func readBESample(t *tick.Tick, policy string) (x beCPUSample, why string) {
	if Interval(t.Sample) == 0 {
		return x, "the sample is the first one of this run of collect, without rates"
	}
	tier := t.Sample.Tier(tick.TierBestEffort)
	usedByPods, known := 0.0, true
	limit := math.Inf(1)
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if mayHaveEnded(t, p) || qos.Koordinator(p) != qos.BE {
			continue
		}
		if p.Missing != tick.MissingCgroup {
			used, ok := amount(p.UsageMilliCPU)
			usedByPods += used
			known = known && ok
			for j := range p.Containers {
				// A BE pod of another tier, with a limit of its own, says nothing of the others.
				if c := &p.Containers[j]; tier == nil || tick.IsBelow(c.Cgroup, tier.Cgroup) {
					limit = min(limit, cpuSetMilliCPU(c.CPUSetCPUs))
				}
			}
		}
		if !IsTerminating(p) {
			request, _ := podRequest(p, reclaimedMilliCPU)
			x.request += request
		}
	}
	x.usage = usedByPods
	if tier != nil {
		x.usage, known = amount(tier.UsageMilliCPU)
		limit = min(limit, cpuSetMilliCPU(tier.CPUSetCPUs))
		if q, ok := intAmount(tier.CPUMaxMilliCPU); ok {
			limit = min(limit, q)
		}
	}
	if !known {
		return x, "the CPU use of the BE pods is unknown"
	}
	if policy == sloconfig.EvictByAllocatable {
		limit, why = allocatable(t, resourceBatchCPU)
		x.limit = limit
		return x, why
	}
	x.limit = limit
	switch {
	case math.IsInf(limit, 1) && x.request == 0: // no BE pod requests anything
		x.limit = 0
	case math.IsInf(limit, 1):
		return x, "the CPUs of the BE pods are unknown"
	}
	return x, ""
}

// cpuSetMilliCPU returns a CPU list's size in milli-CPU, or infinity if it limits nothing.
func cpuSetMilliCPU(list string) float64 {
	if set, err := cpus.Parse(list); err == nil && !set.IsEmpty() {
		return 1000 * float64(set.Size())
	}
	return math.Inf(1)
}
