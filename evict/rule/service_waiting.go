package rule

import (
	"fmt"

	"polder/lib/evictconfig"
	"polder/lib/tick"
)

// serviceWaiting is Polder's own: it looks at what colocation must not do.
var serviceWaiting = &Rule{
	Name: "service-waiting",
	Doc: `a service waits for a CPU, and batch pods use some
Off unless service-waiting-enabled. The value is the longest waiting of all pods that are not reclaimed, their cpuWaitPermille: on cgroup v2
the thousandths of the time in which some task of the pod waited for a CPU, on version 1 the run delays of its threads, added up.
Where one has waited more than service-waiting-threshold for service-waiting-duration, the reclaimed pod that uses most CPU goes, and
then none for service-waiting-cooldown. Pods whose use is not known or 0 do not go. Where no service's waiting is known nothing is measured.`,
	Scopes: []string{ScopeServiceWaiting},
	Rows:   (*evictconfig.Settings).WaitingRows,
	New:    func() Window { return &waitingWindow{} },
}

// ScopeServiceWaiting is how long services wait for a CPU, in thousandths of the time.
const ScopeServiceWaiting = "cpu.wait.services"

type waitingWindow struct {
	Waiting level `json:"waiting"`
}

func (w *waitingWindow) Measure(s *Settings, t *tick.Tick) Measure {
	var m Measure
	if !s.ServiceWaitingEnabled {
		w.Waiting = level{}
		return m
	}
	worst, value := longestWaiting(&m, t)
	if worst == nil {
		w.Waiting.observe(t, false)
		return m
	}
	threshold, met := w.Waiting.over(t, value, s.ServiceWaitingThreshold, s.ServiceWaitingHysteresis)
	f := Finding{PressureFinding: tick.PressureFinding{
		Rule: serviceWaiting.Name, Scope: ScopeServiceWaiting,
		Value: value, Threshold: threshold, Met: met, Hard: true, Since: since(w.Waiting.Start),
	}}
	f.Tolerance, f.Cooldown, f.GracePeriodSeconds = s.ServiceWaitingDuration, s.ServiceWaitingCooldown, grace(s.ServiceWaitingGracePeriod)
	if met {
		f.Candidates = usingCPU(t, value)
		f.Message = fmt.Sprintf("service %s waits for a CPU for %.0f permille of the time, over the threshold of %.0f, for %.0fs",
			worst.Name, value, threshold, w.Waiting.lasted(t.Time).Seconds())
	}
	m.Findings = append(m.Findings, f)
	return m
}

// longestWaiting is the service that waits most, nil where the waiting of none is known.
func longestWaiting(m *Measure, t *tick.Tick) (worst *tick.Pod, permille float64) {
	services := 0
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if p.QoS == tick.QoSReclaimed || Ended(p) || p.Missing == tick.MissingCgroup {
			continue
		}
		services++
		if v, ok := amount(p.CPUWaitPermille); ok && (worst == nil || v > permille) {
			worst, permille = p, v
		}
	}
	if worst == nil && services > 0 {
		m.Errors = append(m.Errors, fmt.Sprintf("%s: how long any of the %d services waits is not known: not measured",
			ScopeServiceWaiting, services))
	}
	return worst, permille
}

// usingCPU are the reclaimed pods that use CPU; the end of one is taken to end the waiting, until the cooldown shows.
func usingCPU(t *tick.Tick, waiting float64) []Candidate {
	var list []Candidate
	for _, p := range active(t, tick.QoSReclaimed) {
		if use, ok := amount(p.UsageMilliCPU); ok && use > 0 {
			list = append(list, Candidate{Pod: p, Rank: []float64{use}, Releases: waiting})
		}
	}
	return list
}
