package rule

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"polder/lib/phrase"
	"polder/lib/reason"
	"polder/lib/tick"
)

// measureSuppression finds the reclaimed pods that get far less CPU than they requested.
func (w *cpuWindow) measureSuppression(m *Measure, s *Settings, t *tick.Tick) {
	pods := podsOfClass(t, tick.QoSReclaimed)
	sum, candidates, withoutRequest := requests(pods, resource{request: reclaimedMilliCPU}, nil, noneExempt)
	if len(withoutRequest) > 0 {
		m.Errors = append(m.Errors, fmt.Sprintf("%s: %d of %d reclaimed pods request no reclaimed CPU and count as 0: %s", ScopeSuppression,
			len(withoutRequest), len(pods), phrase.First(withoutRequest, shownNames)))
	}
	previous := w.Suppressed
	w.Suppressed = nil // drop pods that have ended
	size, err := reclaimSize(t)
	if err != nil {
		if len(candidates) > 0 {
			m.Errors = append(m.Errors, reason.NotMeasured(ScopeSuppression, err.Error()))
			return
		}
		size = 1 // no pod requests any of it
	}
	// The largest request comes first, and then the lowest priority.
	for i := range candidates {
		x := &candidates[i]
		x.Rank = []float64{x.Releases, -priority(x.Pod)}
	}
	slices.SortFunc(candidates, Compare)

	f := Finding{PressureFinding: tick.PressureFinding{
		Rule: cpuPressure.Name, Scope: ScopeSuppression, Part: tick.PoolReclaim,
		Value: wholeCores(sum) / size, Threshold: s.SuppressionMaxToleranceRate,
	}}
	remaining := sum
	var start time.Time
	for i := range candidates {
		x := &candidates[i]
		releases := x.Releases / 1000 / size
		tolerance, err := toleranceOf(x.Pod, s)
		if err != nil { // an error in an annotation exempts no pod
			m.Errors = append(m.Errors, fmt.Sprintf("%s: pod %s: annotation %s: %v: --suppression-max-tolerance-rate applies",
				ScopeSuppression, x.Pod.Name, annotationCPU, err))
		}
		ratio := wholeCores(remaining) / size
		l, threshold := w.Suppressed.podIsOver(previous, x.Pod.UID, t, ratio, tolerance, s.SuppressionHysteresis)
		f.Threshold = min(f.Threshold, threshold)
		if l == nil || l.metFor(t.Time) <= s.SuppressionMinDuration {
			f.Others = append(f.Others, Candidate{Pod: x.Pod, Releases: releases})
			if wholeCores(x.Releases)/size > s.SuppressionMaxToleranceRate {
				// The end of all other pods would not be enough: none is evicted for what this one requests. No scheduler may have counted
				// that, and a pod that is replaced again and again is never suppressed for long enough to be evicted.
				remaining -= x.Releases
			}
			continue
		}
		message := fmt.Sprintf("current pool suppression rate %.2f is over than "+reason.ToleranceRate+"%.2f", ratio, threshold)
		if !f.Met {
			f.Met, f.Message = true, message
		}
		if start.IsZero() || l.Start.Before(start) {
			start = l.Start
		}
		remaining -= x.Releases
		f.Candidates = append(f.Candidates, Candidate{Pod: x.Pod, Rank: x.Rank, Releases: releases, Threshold: threshold, Message: message})
	}
	f.Since = formatTime(start)
	f.GracePeriodSeconds = graceSeconds(s.CPUGracePeriod)
	m.Findings = append(m.Findings, f)
}

// noneExempt counts the requests of all pods: each is measured with those of the pods that request less.
func noneExempt(*tick.Pod) bool { return false }

// wholeCores returns whole cores, rounded up; less than a thousandth of a milli-CPU is rounding noise.
func wholeCores(milli float64) float64 { return max(0, math.Ceil((milli-0.001)/1000)) }

// toleranceOf returns the ratio of requests to the pool's CPUs above which the pod is evicted.
func toleranceOf(p *tick.Pod, s *Settings) (float64, error) {
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
	offered, ok := intAmount(t.Advice.Reclaimed.MilliCPU)
	if !ok || offered == 0 {
		return 0, errors.New("the advice has neither a pool reclaim nor reclaimed CPU")
	}
	return offered / 1000, nil
}
