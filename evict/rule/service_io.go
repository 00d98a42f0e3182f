package rule

import (
	"fmt"

	"polder/lib/evictconfig"
	"polder/lib/tick"
)

// serviceIO is Polder's own, for disks what [serviceWaiting] is for CPUs.
var serviceIO = &Rule{
	Name: "service-io-waiting",
	Doc: `a service waits for the disk, and batch pods use it
Off unless service-io-enabled. The value is the longest waiting of all pods that are not reclaimed, in thousandths of the time: some avg10 of
their io.pressure, which cgroup v2 alone has. Where one has waited more than service-io-threshold for service-io-duration, the reclaimed
pod that reads and writes most goes, and then none for service-io-cooldown. Pods of which that is not known or 0 do not go. Where no
service's waiting is known nothing is measured.`,
	Scopes: []string{ScopeServiceIO},
	Rows:   (*evictconfig.Settings).ServiceIORows,
	New:    func() Window { return &ioWindow{} },
}

// ScopeServiceIO is how long services wait for disks, in thousandths of the time.
const ScopeServiceIO = "io.pressure.services"

type ioWindow struct {
	Waiting level `json:"waiting"`
}

func (w *ioWindow) Measure(s *Settings, t *tick.Tick) Measure {
	var m Measure
	if !s.ServiceIOEnabled {
		w.Waiting = level{}
		return m
	}
	worst, value := longestIO(&m, t)
	if worst == nil {
		w.Waiting.observe(t, false)
		return m
	}
	threshold, met := w.Waiting.over(t, value, s.ServiceIOThreshold, s.ServiceIOHysteresis)
	f := Finding{PressureFinding: tick.PressureFinding{
		Rule: serviceIO.Name, Scope: ScopeServiceIO,
		Value: value, Threshold: threshold, Met: met, Hard: true, Since: since(w.Waiting.Start),
	}}
	f.Tolerance, f.Cooldown, f.GracePeriodSeconds = s.ServiceIODuration, s.ServiceIOCooldown, grace(s.ServiceIOGracePeriod)
	if met {
		f.Candidates = usingDisks(t, value)
		f.Message = fmt.Sprintf("service %s waits for the disk for %.0f permille of the time, over the threshold of %.0f, for %.0fs",
			worst.Name, value, threshold, w.Waiting.lasted(t.Time).Seconds())
	}
	m.Findings = append(m.Findings, f)
	return m
}

// longestIO is the service that waits most for disks, nil where the waiting of none is known.
func longestIO(m *Measure, t *tick.Tick) (worst *tick.Pod, permille float64) {
	services := 0
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if p.QoS == tick.QoSReclaimed || Ended(p) || p.Missing == tick.MissingCgroup {
			continue
		}
		services++
		if p.IOPressure == nil || p.IOPressure.Some == nil {
			continue
		}
		if v, ok := amount(&p.IOPressure.Some.Avg10); ok && v <= 100 && (worst == nil || v*10 > permille) {
			worst, permille = p, v*10
		}
	}
	if worst == nil && services > 0 {
		m.Errors = append(m.Errors, fmt.Sprintf("%s: how long any of the %d services waits is not known: not measured",
			ScopeServiceIO, services))
	}
	return worst, permille
}

// usingDisks are the reclaimed pods that read or write; the end of one is taken to end the waiting, until the cooldown shows. An operation
// counts as 4 KiB at least, for a disk that turns it is the operations that cost.
func usingDisks(t *tick.Tick, waiting float64) []Candidate {
	const leastBytes = 4096
	var list []Candidate
	for _, p := range active(t, tick.QoSReclaimed) {
		if p.IO == nil {
			continue
		}
		sum := func(x, y *float64) float64 {
			a, _ := amount(x)
			b, _ := amount(y)
			return a + b
		}
		use := max(sum(p.IO.ReadBytesPerSecond, p.IO.WriteBytesPerSecond), leastBytes*sum(p.IO.ReadsPerSecond, p.IO.WritesPerSecond))
		if use > 0 {
			list = append(list, Candidate{Pod: p, Rank: []float64{use}, Releases: waiting})
		}
	}
	return list
}
