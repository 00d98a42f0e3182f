package rule

import (
	"fmt"
	"math"

	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// beCPUEvict is Koordinator's eviction of batch pods by CPU satisfaction.
var beCPUEvict = &Rule{
	Name: "BECPUEvict",
	Doc: `BE pods get far less CPU than they request: some are evicted, for the rest to have enough
The satisfaction is the CPU that BE pods may use over what they request, in percent: the smallest CPU set among kubelet's tier
besteffort and the BE containers, or the tier's quota where that is less (with cpuEvictPolicy evictByAllocatable the node's
allocatable batch-cpu), over the sum of the batch-cpu requests of the BE pods that have neither ended nor begun to end. Without that tier,
on a plain machine, it is the BE containers' CPU sets and the BE pods' use.

It is met where, on average of cpuEvictTimeWindowSeconds and at the last tick, the satisfaction is at
cpuEvictBESatisfactionLowerPercent or under it, and cpuEvictBEUsageThresholdPercent of what BE pods may use are used, or that is less than a
core. At least a third of the window must have been seen. BE pods are evicted, at one tick, until their requests add up to the request times
(cpuEvictBESatisfactionUpperPercent - satisfaction), the smaller one of the average's and the last tick's: the lowest spec.priority first,
then the largest use over request. Where one of the pods has no priority, none counts. One that requests no batch-cpu stays: its
end would release nothing. Then none for 20 seconds, nor in the first 20 seconds of watching. An allocatable batch-cpu that is missing or 0
is taken for withdrawn: no pod is evicted for it.`,
	Scopes: []string{ScopeBESatisfaction},
	Thresholds: []string{
		"enable", "cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent", "cpuEvictBEUsageThresholdPercent", "cpuEvictTimeWindowSeconds", "cpuEvictPolicy",
	},
	Strategy: func(th *sloconfig.Threshold) error {
		_, err := satisfactionOf(th)
		return err
	},
	New: func() Window { return &beCPUWindow{} },
}

// ScopeBESatisfaction is the CPU that BE pods may use divided by their requests, in percent.
const ScopeBESatisfaction = "be.cpu.satisfaction.percent"

// satisfaction are the rule's settings, as percentages.
type satisfaction struct {
	lower, upper, usage float64
	policy              string
}

func satisfactionOf(th *sloconfig.Threshold) (x satisfaction, err error) {
	const lowerKey, upperKey, usageKey = "cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent", "cpuEvictBEUsageThresholdPercent"
	if err := enabled(th); err != nil {
		return x, err
	}
	lower, upper := th.CPUEvictBESatisfactionLowerPercent, th.CPUEvictBESatisfactionUpperPercent
	x = satisfaction{usage: 90, policy: sloconfig.EvictByRealLimit}
	if u := th.CPUEvictBEUsageThresholdPercent; u != nil {
		x.usage = float64(*u)
	}
	if p := th.CPUEvictPolicy; p != nil && *p != "" {
		x.policy = *p
	}
	switch {
	case lower == nil && upper == nil:
		return x, offError(lowerKey + " is not set")
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

// enough reports whether the use of the limit is so high that pods would use more if they could.
func (x satisfaction) enough(used, limit float64) bool {
	return limit > 0 && (limit < 1000 || used*100 >= x.usage*limit)
}

// release returns by how much requests must fall, in whole milli-CPU: the request times (upper - satisfaction).
func (x satisfaction) release(request, limit float64) float64 {
	if request <= 0 || limit*100 > x.lower*request {
		return 0
	}
	return max(0, math.Floor(request*x.upper/100-limit))
}

// beCPU is one sample, in milli-CPU.
type beCPU struct{ usage, request, limit float64 }

type beCPUWindow struct {
	Watched watched `json:"watched"`
	Over    level   `json:"over"`
	// Policy is the one that sets the limit.
	Policy  string   `json:"policy,omitempty"`
	Usage   averaged `json:"usage"`
	Request averaged `json:"request"`
	Limit   averaged `json:"limit"`
}

func (w *beCPUWindow) Measure(s *Settings, t *tick.Tick) Measure {
	m, off := beCPUEvict.off(s.Strategies)
	if off {
		*w = beCPUWindow{}
		return m
	}
	x, _ := satisfactionOf(&s.Strategies.Threshold)
	if w.Policy != x.policy {
		*w = beCPUWindow{Policy: x.policy, Watched: w.Watched}
	}
	again := w.Watched.Last.Equal(t.Time)
	waits := w.Watched.look(t)
	last, why := beSample(t, x.policy)
	if why != "" {
		w.Over.observe(t, false)
		m.Errors = append(m.Errors, missingInput(beCPUEvict.Name, why))
		return m
	}
	over := span(s.Strategies.Threshold.CPUEvictTimeWindowSeconds, t)
	if !again {
		w.Usage.add(t, last.usage, over)
		w.Request.add(t, last.request, over)
		w.Limit.add(t, last.limit, over)
	}
	usage, okUsage := w.Usage.mean(t, over)
	request, okRequest := w.Request.mean(t, over)
	limit, okLimit := w.Limit.mean(t, over)
	need := 0.0
	if okUsage && okRequest && okLimit && x.enough(usage, limit) && x.enough(last.usage, last.limit) {
		need = min(x.release(request, limit), x.release(last.request, last.limit))
	}
	satisfied := 100.0
	if last.request > 0 {
		satisfied = min(last.limit/last.request*100, maxAmount)
	}
	f := beCPUEvict.finding(ScopeBESatisfaction, satisfied, x.lower)
	f.Below = true
	f.Met = w.Over.observe(t, need > 0)
	f.Since = since(w.Over.Start)
	if f.Met {
		f.Need, f.Waits, f.Reason = need, waits, reasonSatisfaction
		f.Message = fmt.Sprintf("BE pods may use %s of the %s of CPU that they request, %.0f%%, at the threshold of %.0f%% or under it, and use %s: %s have to be released to come near %.0f%%",
			milliCPU(last.limit), milliCPU(last.request), satisfied, x.lower, milliCPU(last.usage), milliCPU(need), x.upper)
		f.batch(t)
	}
	m.Findings = append(m.Findings, f)
	return m
}

// batch adds the BE pods: as candidates, or as others if they do not permit eviction by the rule.
func (f *Finding) batch(t *tick.Tick) {
	message := fmt.Sprintf("killAndEvictBEPodsRelease for node(%s), need realase CPU : %.0f", t.Node, f.Need)
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if !activePod(p) || qos.Koordinator(p) != qos.BE {
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
	batchRanks(f.Candidates, func(p *tick.Pod) (float64, bool) {
		request, _ := podRequest(p, reclaimedMilliCPU)
		used, ok := amount(p.UsageMilliCPU)
		return min(used/max(request, 1), maxAmount), ok
	})
}

// beSample returns what BE pods use, request and may use, or why that is unknown.
func beSample(t *tick.Tick, policy string) (x beCPU, why string) {
	if Interval(t.Sample) == 0 {
		return x, "the sample is the first of its collect, without rates"
	}
	tier := besteffort(t.Sample)
	usedByPods, known := 0.0, true
	limit := math.Inf(1)
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if p.Ended() || qos.Koordinator(p) != qos.BE {
			continue
		}
		if p.Missing != tick.MissingCgroup {
			used, ok := amount(p.UsageMilliCPU)
			usedByPods += used
			known = known && ok
			for j := range p.Containers {
				limit = min(limit, coresOf(p.Containers[j].CPUSetCPUs))
			}
		}
		if !p.Terminating {
			request, _ := podRequest(p, reclaimedMilliCPU)
			x.request += request
		}
	}
	x.usage = usedByPods
	if tier != nil {
		x.usage, known = amount(tier.UsageMilliCPU)
		limit = min(limit, coresOf(tier.CPUSetCPUs))
		if q, ok := whole(tier.CPUMaxMilliCPU); ok {
			limit = min(limit, q)
		}
	}
	if !known {
		return x, "the CPU that BE pods use is not known"
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
		return x, "the CPUs that BE pods may use are not known"
	}
	return x, ""
}

func besteffort(s *tick.Sample) *tick.Tier {
	for i := range s.Tiers {
		if s.Tiers[i].Name == tick.TierBestEffort {
			return &s.Tiers[i]
		}
	}
	return nil
}

// coresOf returns a CPU list's size in milli-CPU, or infinity if it limits nothing.
func coresOf(list string) float64 {
	if set, err := cpus.Parse(list); err == nil && !set.IsEmpty() {
		return 1000 * float64(set.Size())
	}
	return math.Inf(1)
}
