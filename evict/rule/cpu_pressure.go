package rule

import (
	"errors"
	"fmt"
	"strings"

	"polder/lib/cpus"
	"polder/lib/tick"
	"polder/lib/window"
)

// cpuPressure is the guide's "Load Eviction".
var cpuPressure = &Rule{
	Name: "cpu-pressure-eviction-plugin",
	Doc: `the shared pods have more runnable threads than their pool has CPUs
A sample of the shared pods' summed load1 is taken every load-sync-period, together with the bounds that hold then: the
CPUs of the pool "share" and of the pools that pods name, times load-lower-bound-ratio (soft: the node is tainted CPUPressure:NoSchedule) and times
load-upper-bound-ratio (hard: a pod goes as well). A bound is met where it was exceeded in load-threshold-met-percentage
of the last load-metric-ring-size samples; samples that are still missing count as not over. The pod with the largest sum
of its own load over those samples goes, with its own grace period, and then none for load-cooldown. Nobody goes while
the present load is under the bound.

A machine too small for pools has no pool "share": its size is then the machine's CPUs less what is offered to reclaimed
pods, which are held to that by quota.`,
	Scopes: []string{ScopeLoad1},
	Keys:   []string{"load-lower-bound-ratio", "load-upper-bound-ratio", "load-threshold-met-percentage", "load-metric-ring-size", "load-sync-period", "load-cooldown"},
	New:    func() Window { return &loadWindow{} },
}

// ScopeLoad1 is the containers' load, averaged over a minute.
const ScopeLoad1 = "cpu.load.1min.container"

// taintCPUPressure keeps new pods off the node.
var taintCPUPressure = tick.Taint{Key: "node.katalyst.kubewharf.io/CPUPressure", Effect: "NoSchedule"}

// loadSample is the shared pods' load with the bounds that held when it was taken: the pool may have another size now.
type loadSample struct {
	Load  float64            `json:"load"`
	Lower float64            `json:"lower"`
	Upper float64            `json:"upper"`
	Pods  map[string]float64 `json:"pods,omitempty"` // by UID
}

type loadWindow struct {
	Ring window.Ring[loadSample] `json:"ring"`
	Soft window.Since            `json:"soft"`
	Hard window.Since            `json:"hard"`
}

func (w *loadWindow) Measure(s *Settings, t *tick.Tick) Measure {
	var m Measure
	due := w.Ring.Due(t.Time, s.LoadSyncPeriod, s.LoadMetricRingSize)
	present, pods, err := presentLoad(s, t, &m)
	if err != nil {
		m.Errors = append(m.Errors, fmt.Sprintf("%s: %v: not measured", ScopeLoad1, err))
		w.Soft.Observe(t.Time, false)
		w.Hard.Observe(t.Time, false)
		return m
	}
	if due {
		w.Ring.Push(t.Time, present, s.LoadMetricRingSize)
	}
	soft := w.finding(s, t, &w.Soft, present.Load, present.Lower, func(x loadSample) bool { return x.Load > x.Lower })
	hard := w.finding(s, t, &w.Hard, present.Load, present.Upper, func(x loadSample) bool { return x.Load > x.Upper })
	hard.Hard = true
	hard.Cooldown = s.LoadCooldown
	if hard.Met {
		hard.Candidates = w.candidates(pods, present.Pods, s.LoadMetricRingSize)
	}
	m.Findings = []Finding{soft, hard}
	return m
}

func (w *loadWindow) finding(s *Settings, t *tick.Tick, met *window.Since, load, bound float64, over func(loadSample) bool) Finding {
	share := w.Ring.Share(s.LoadMetricRingSize, over)
	f := Finding{PressureFinding: tick.PressureFinding{
		Rule: cpuPressure.Name, Scope: ScopeLoad1, Value: load, Threshold: bound,
		Met: share >= s.LoadThresholdMetPercentage,
	}}
	f.Since = since(met.Observe(t.Time, f.Met))
	if f.Met {
		taint := taintCPUPressure
		f.Taint = &taint
		f.Message = fmt.Sprintf("the shared pods' load is %.2f, the bound is %.2f; it was over the bound in %.0f%% of the last %d samples",
			load, bound, 100*share, s.LoadMetricRingSize)
	}
	return f
}

// presentLoad is this tick's sample; a pod whose load is not known is named in m and left out, which makes the sum a
// lower bound. Where no pod's load is known there is no sample.
func presentLoad(s *Settings, t *tick.Tick, m *Measure) (loadSample, []*tick.Pod, error) {
	size, err := poolSize(t)
	if err != nil {
		return loadSample{}, nil, err
	}
	x := loadSample{Lower: size * s.LoadLowerBoundRatio, Upper: size * s.LoadUpperBoundRatio, Pods: map[string]float64{}}
	pods := active(t, tick.QoSShared)
	var unknown []string
	for _, p := range pods {
		load, ok := podLoad(p)
		if !ok {
			unknown = append(unknown, p.Name)
			continue
		}
		x.Load += load
		if p.UID != "" {
			x.Pods[p.UID] += load
		}
	}
	if len(unknown) > 0 && len(unknown) == len(pods) {
		return loadSample{}, nil, fmt.Errorf("the sample has no load1 of any of the %d shared pods", len(pods))
	}
	if len(unknown) > 0 {
		m.Errors = append(m.Errors, fmt.Sprintf("%s: no load1 of %d of %d shared pods, the sum is a lower bound: %s", ScopeLoad1, len(unknown), len(pods), some(unknown)))
	}
	return x, pods, nil
}

// podLoad is the sum over the pod's containers, or the pod's own where no container has one.
func podLoad(p *tick.Pod) (float64, bool) {
	var sum float64
	found := false
	for i := range p.Containers {
		if v, ok := amount(p.Containers[i].Load1); ok {
			sum += v
			found = true
		}
	}
	if found {
		return sum, true
	}
	return amount(p.Load1)
}

// poolSize is the number of CPUs that the shared pods have.
func poolSize(t *tick.Tick) (float64, error) {
	if t.Advice == nil {
		return 0, errors.New("the tick has no advice")
	}
	size := 0
	for _, p := range t.Advice.Pools {
		if p.Name == tick.PoolReclaim || p.Name == tick.PoolReserve || strings.HasPrefix(p.Name, tick.PoolDedicatedPrefix) {
			continue // share, or a pool that shared pods name
		}
		set, err := cpus.Parse(p.CPUs)
		if err != nil {
			return 0, fmt.Errorf("pool %s: %w", p.Name, err)
		}
		if set.IsEmpty() {
			return 0, fmt.Errorf("pool %s has no CPUs", p.Name)
		}
		size += set.Size()
	}
	if size > 0 {
		return float64(size), nil
	}
	if t.Sample.Topology == nil {
		return 0, errors.New("the advice has no pool share, and the sample no topology")
	}
	machine, err := cpus.Parse(t.Sample.Topology.CPUs)
	if err != nil {
		return 0, fmt.Errorf("topology: %w", err)
	}
	if t.Advice.Reclaimed == nil || t.Advice.Reclaimed.MilliCPU == nil {
		return 0, errors.New("the advice has neither a pool share nor reclaimed CPU")
	}
	left := float64(machine.Size()) - float64(*t.Advice.Reclaimed.MilliCPU)/1000
	if left <= 0 {
		return 0, fmt.Errorf("the advice leaves none of the machine's %d CPUs to shared pods", machine.Size())
	}
	return left, nil
}

// candidates ranks the pods by the load that they had over the window, not by this instant's alone.
func (w *loadWindow) candidates(pods []*tick.Pod, present map[string]float64, capacity int) []Candidate {
	history := map[string]float64{}
	samples := w.Ring.Samples
	for _, s := range samples[max(0, len(samples)-capacity):] {
		for uid, load := range s.Value.Pods {
			history[uid] += load
		}
	}
	var out []Candidate
	for _, p := range pods {
		if sum := history[p.UID]; sum > 0 {
			out = append(out, Candidate{Pod: p, Rank: []float64{sum}, Releases: present[p.UID]})
		}
	}
	return out
}
