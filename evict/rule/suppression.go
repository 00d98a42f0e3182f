package rule

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"polder/lib/tick"
)

// suppression finds the reclaimed pods that get far less CPU than they requested.
func (w *cpuWindow) suppression(m *Measure, s *Settings, t *tick.Tick) {
	pods := active(t, tick.QoSReclaimed)
	sum, all, without := requests(pods, resource{request: reclaimedMilliCPU}, nil)
	if len(without) > 0 {
		m.Errors = append(m.Errors, fmt.Sprintf("%s: %d of %d reclaimed pods request no reclaimed CPU and count as 0: %s", ScopeSuppression, len(without), len(pods), some(without)))
	}
	before := w.Suppressed
	w.Suppressed = nil // drop pods that have ended
	size, err := reclaimSize(t)
	if err != nil {
		if len(all) > 0 {
			m.Errors = append(m.Errors, fmt.Sprintf("%s: %v: not measured", ScopeSuppression, err))
			return
		}
		size = 1 // no pod requests any of it
	}
	// The largest request comes first, and then the lowest priority.
	for i := range all {
		x := &all[i]
		x.Rank = []float64{x.Releases, -priority(x.Pod)}
	}
	slices.SortFunc(all, Compare)

	f := Finding{PressureFinding: tick.PressureFinding{
		Rule: cpuPressure.Name, Scope: ScopeSuppression, Part: tick.PoolReclaim,
		Value: cores(sum) / size, Threshold: s.SuppressionMaxToleranceRate,
	}}
	left := sum
	var began time.Time
	for i := range all {
		x := &all[i]
		tolerance, err := tolerates(x.Pod, s)
		if err != nil {
			m.Errors = append(m.Errors, fmt.Sprintf("%s: pod %s: annotation %s: %v: the pod is left alone", ScopeSuppression, x.Pod.Name, annotationCPU, err))
			continue
		}
		present := cores(left) / size
		l, counts := podOver(&w.Suppressed, before, x.Pod.UID, t, present, tolerance, s.SuppressionHysteresis)
		f.Threshold = min(f.Threshold, counts)
		if l == nil || l.lasted(t.Time) <= s.SuppressionMinDuration {
			continue
		}
		message := fmt.Sprintf("current pool suppression rate %.2f is over than the pod suppression tolerance rate %.2f", present, counts)
		if !f.Met {
			f.Met, f.Message = true, message
		}
		if began.IsZero() || l.Start.Before(began) {
			began = l.Start
		}
		left -= x.Releases
		f.Candidates = append(f.Candidates, Candidate{Pod: x.Pod, Rank: x.Rank, Releases: x.Releases / 1000 / size, Message: message})
	}
	f.Since = since(began)
	f.GracePeriodSeconds = grace(s.CPUGracePeriod)
	m.Findings = append(m.Findings, f)
}

// cores returns whole cores, rounded up; less than a thousandth of a milli-CPU is rounding noise.
func cores(milli float64) float64 { return max(0, math.Ceil((milli-0.001)/1000)) }

// tolerates returns the ratio of requests to the pool's CPUs above which the pod is evicted.
func tolerates(p *tick.Pod, s *Settings) (float64, error) {
	own, err := rate(p, annotationCPU, "suppression_tolerance_rate")
	if err != nil || own == nil {
		return s.SuppressionMaxToleranceRate, err
	}
	return min(*own, s.SuppressionMaxToleranceRate), nil
}

// reclaimSize returns the number of CPUs of the reclaimed pods.
func reclaimSize(t *tick.Tick) (float64, error) {
	if t.Advice == nil {
		return 0, errors.New("the tick has no advice")
	}
	for _, p := range t.Advice.Pools {
		if p.Name == tick.PoolReclaim {
			return poolSize(p)
		}
	}
	if len(t.Advice.Pools) > 0 {
		return 0, errors.New("the advice has no pool reclaim")
	}
	if t.Advice.Reclaimed == nil {
		return 0, errors.New("the advice has neither a pool reclaim nor reclaimed CPU")
	}
	offered, ok := whole(t.Advice.Reclaimed.MilliCPU)
	if !ok || offered == 0 {
		return 0, errors.New("the advice has neither a pool reclaim nor reclaimed CPU")
	}
	return offered / 1000, nil
}
