package rule

import (
	"errors"
	"fmt"
	"strings"

	"polder/lib/cpus"
	"polder/lib/phrase"
	"polder/lib/reason"
	"polder/lib/tick"
)

// poolLoad is the state of one shared pool.
type poolLoad struct {
	Window SampleWindow[loadSample] `json:"ring"`
	Soft   condition                `json:"soft"`
	Hard   condition                `json:"hard"`
}

// loadSample is a pool's load with the bounds at the time of the sample: the pool may have another size now.
type loadSample struct {
	Load  float64            `json:"load"`
	Lower float64            `json:"lower"`
	Upper float64            `json:"upper"`
	Pods  map[string]float64 `json:"pods,omitempty"` // by UID
}

// pool is a shared pool with its pods.
type pool struct {
	name string
	size float64 // in CPUs
	err  error   // why the size is unknown
	pods []*tick.Pod
}

func (w *cpuWindow) measureLoad(m *Measure, s *Settings, t *tick.Tick) {
	pools, err := sharedPools(t)
	if err != nil {
		m.Errors = append(m.Errors, reason.NotMeasured(ScopeLoad1, err.Error()))
		for _, l := range w.Pools {
			l.observeUnknown(t)
		}
		return
	}
	before := w.Pools
	w.Pools = make(map[string]*poolLoad, len(pools))
	exclusive := exclusiveCPUs(t)
	for i := range pools {
		p := &pools[i]
		l := before[p.name]
		if l == nil {
			l = &poolLoad{}
		}
		w.Pools[p.name] = l
		l.measure(m, s, t, p, exclusive)
	}
}

func (l *poolLoad) observeUnknown(t *tick.Tick) {
	if l == nil { // from a state file
		return
	}
	l.Soft.observe(t, false)
	l.Hard.observe(t, false)
}

func (l *poolLoad) measure(m *Measure, s *Settings, t *tick.Tick, p *pool, exclusive cpus.Set) {
	due := l.Window.Due(t.Time, s.LoadSyncPeriod, s.LoadMetricRingSize)
	current, err := p.sample(s, m, exclusive)
	if err != nil {
		m.Errors = append(m.Errors, reason.NotMeasured(ScopeLoad1, err.Error()))
		l.observeUnknown(t)
		return
	}
	if due {
		l.Window.Add(t.Time, current, s.LoadMetricRingSize)
	}
	soft := l.finding(s, t, p, &l.Soft, current.Load, current.Lower, func(x *loadSample) float64 { return x.Lower })
	hard := l.finding(s, t, p, &l.Hard, current.Load, current.Upper, func(x *loadSample) float64 { return x.Upper })
	hard.Hard = true
	hard.Cooldown = s.LoadCooldown
	if hard.Met {
		hard.Candidates = l.candidates(p.pods, current.Pods, s.LoadMetricRingSize)
		hard.GracePeriodSeconds = graceSeconds(s.CPUGracePeriod)
	}
	m.Findings = append(m.Findings, soft, hard)
}

func (l *poolLoad) finding(
	s *Settings, t *tick.Tick, p *pool, state *condition, load, bound float64, boundOf func(*loadSample) float64,
) Finding {
	factor := state.factor(t, s.LoadHysteresis)
	share := l.Window.Share(s.LoadMetricRingSize, func(x loadSample) bool { return x.Load > boundOf(&x)*factor })
	f := Finding{PressureFinding: tick.PressureFinding{
		Rule: cpuPressure.Name, Scope: ScopeLoad1, Part: p.name, Value: load, Threshold: bound * factor,
		Met: state.observe(t, share >= s.LoadThresholdMetPercentage),
	}}
	f.Since = formatTime(state.Start)
	if f.Met {
		taint := taintCPUPressure
		f.Taint = &taint
		f.Message = fmt.Sprintf("the load of pool %s is %.2f, "+reason.LoadBound+"%.2f; it was over the bound in %.0f%% of the last %d samples",
			p.name, load, f.Threshold, 100*share, s.LoadMetricRingSize)
	}
	return f
}

// sample returns the pool's present load. It names a pod with unknown load in m and omits it, so that the sum is a
// lower bound. If no pod's load is known there is no sample.
func (p *pool) sample(s *Settings, m *Measure, exclusive cpus.Set) (loadSample, error) {
	if p.err != nil {
		return loadSample{}, p.err
	}
	x := loadSample{Lower: p.size * s.LoadLowerBoundRatio, Upper: p.size * s.LoadUpperBoundRatio, Pods: make(map[string]float64, len(p.pods))}
	var unknown []string
	for _, pod := range p.pods {
		load, ok := podLoad(pod, exclusive)
		if !ok {
			unknown = append(unknown, pod.Name)
			continue
		}
		x.Load += load
		if pod.UID != "" {
			x.Pods[pod.UID] += load
		}
	}
	if len(unknown) > 0 && len(unknown) == len(p.pods) {
		return loadSample{}, fmt.Errorf("the sample has no load1 of any of the %d shared pods of pool %s", len(p.pods), p.name)
	}
	if len(unknown) > 0 {
		m.Errors = append(m.Errors, fmt.Sprintf("%s: no load1 of %d of %d shared pods of pool %s, the sum is a lower bound: %s", ScopeLoad1,
			len(unknown), len(p.pods), p.name, phrase.First(unknown, shownNames)))
	}
	return x, nil
}

// podLoad returns the sum over the pod's containers, or the pod's own if no container has one.
func podLoad(p *tick.Pod, exclusive cpus.Set) (float64, bool) {
	var sum float64
	found := false
	for i := range p.Containers {
		c := &p.Containers[i]
		if v, ok := amount(c.Load1); ok {
			found = true
			if !hasExclusiveCPUs(c, exclusive) {
				sum += v
			}
		}
	}
	if found {
		return sum, true
	}
	return amount(p.Load1)
}

// exclusiveCPUs returns the CPUs that kubelet assigned exclusively to containers.
func exclusiveCPUs(t *tick.Tick) cpus.Set {
	if t.Sample.Kubelet == nil {
		return cpus.New()
	}
	set, err := cpus.Parse(t.Sample.Kubelet.ExclusiveCPUs)
	if err != nil {
		return cpus.New()
	}
	return set
}

// hasExclusiveCPUs reports whether kubelet assigned the container exclusive CPUs: it runs on such CPUs, as many as it requests.
func hasExclusiveCPUs(c *tick.Container, exclusive cpus.Set) bool {
	if exclusive.IsEmpty() || c.CPUSetCPUs == "" || c.Requests == nil || c.Requests.MilliCPU == nil {
		return false
	}
	set, err := cpus.Parse(c.CPUSetCPUs)
	return err == nil && !set.IsEmpty() && set.IsSubsetOf(exclusive) && *c.Requests.MilliCPU == float64(set.Size())*1000
}

// sharedPools returns the pools in which shared pods run, each with its pods. A pod that names a missing pool runs in
// "share".
func sharedPools(t *tick.Tick) ([]pool, error) {
	if t.Advice == nil {
		return nil, errors.New("the tick has no advice")
	}
	var pools []pool
	indexByName := map[string]int{}
	for _, p := range t.Advice.Pools {
		if p.Name == tick.PoolReclaim || p.Name == tick.PoolReserve || strings.HasPrefix(p.Name, tick.PoolDedicatedPrefix) {
			continue
		}
		if _, isDuplicate := indexByName[p.Name]; isDuplicate {
			continue
		}
		indexByName[p.Name] = len(pools)
		size, err := poolSize(p)
		pools = append(pools, pool{name: p.Name, size: size, err: err})
	}
	if len(pools) == 0 {
		size, err := quotaSize(t)
		if err != nil {
			return nil, err
		}
		pools, indexByName = []pool{{name: tick.PoolShare, size: size}}, map[string]int{tick.PoolShare: 0}
	}
	for _, p := range podsOfClass(t, tick.QoSShared) {
		if t.Sample.HasOwnPartition(p) {
			continue // its load is not on the pools' CPUs
		}
		i, ok := indexByName[enhancement(p, annotationCPU, "cpuset_pool")]
		if !ok {
			i, ok = indexByName[tick.PoolShare]
		}
		if !ok {
			i = len(pools)
			indexByName[tick.PoolShare] = i
			pools = append(pools, pool{name: tick.PoolShare, err: errors.New("the advice has no pool share")})
		}
		pools[i].pods = append(pools[i].pods, p)
	}
	return pools, nil
}

// poolSize returns a pool's number of CPUs.
func poolSize(p tick.Pool) (float64, error) {
	set, err := cpus.Parse(p.CPUs)
	if err != nil {
		return 0, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	if set.IsEmpty() {
		return 0, fmt.Errorf("pool %s has no CPUs", p.Name)
	}
	return float64(set.Size()), nil
}

// quotaSize returns the CPUs of shared pods on a machine without pools.
func quotaSize(t *tick.Tick) (float64, error) {
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
	offered, ok := intAmount(t.Advice.Reclaimed.MilliCPU)
	remaining := (float64(machine.Size())*1000 - offered) / 1000
	if !ok || remaining <= 0 {
		return 0, fmt.Errorf("the advice leaves none of the machine's %d CPUs to shared pods", machine.Size())
	}
	return remaining, nil
}

// candidates ranks the pods by their load over the window, not only by the present one.
func (l *poolLoad) candidates(pods []*tick.Pod, current map[string]float64, capacity int) []Candidate {
	history := map[string]float64{}
	samples := l.Window.Samples
	for _, s := range samples[max(0, len(samples)-capacity):] {
		for uid, load := range s.Value.Pods {
			if v, ok := amount(&load); ok { // a state file may contain anything
				history[uid] += v
			}
		}
	}
	var out []Candidate
	for _, p := range pods {
		if sum := history[p.UID]; sum > 0 {
			out = append(out, Candidate{Pod: p, Rank: []float64{sum}, Releases: current[p.UID]})
		}
	}
	return out
}
