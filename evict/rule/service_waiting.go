package rule

import (
	"fmt"
	"slices"
	"time"

	"polder/lib/evictconfig"
	"polder/lib/podwait"
	"polder/lib/reason"
	"polder/lib/tick"
)

// These are scopes of the rules below, in thousandths of the time: how long services wait for a CPU, for disks, and for memory.
const (
	ScopeServiceWaiting = "cpu.wait.services"
	ScopeServiceIO      = "io.pressure.services"
	ScopeServiceMemory  = "memory.pressure.services"
)

// Three rules of Polder's own measure what colocation must not cause: services that wait for resources that batch pods use. They
// are one rule with one source each.
var (
	serviceWaiting = waitingSource{
		name: "service-waiting",
		doc: `a service waits for a CPU, and batch pods use some
Off unless service-waiting-enabled. The value is the longest waiting of all services (pods of another class than reclaimed), their
cpuWaitPermille: on cgroup v2 the thousandths of the time in which some task of the pod waited for a CPU, on version 1 and on v2 without
PSI the run delays of its threads, added up, which exceed the default threshold in many services even without batch: look at the value
in quiet times before you enable the rule there. Where a tick lacks it, as collect's first one, their cpuPressure (some avg10) applies. If a
service waits more than service-waiting-threshold for service-waiting-duration, the reclaimed pod that uses most CPU is evicted. The
cooldown is service-waiting-cooldown. Pods with unknown use or a use of 0 are not evicted. The waiting of a service that its own CPU limit
throttles is unknown: the kernel counts that as waiting too. If no service's waiting is known, nothing is measured.`,
		scope:    ScopeServiceWaiting,
		rows:     (*evictconfig.Settings).WaitingRows,
		settings: func(s *Settings) *evictconfig.Waiting { return &s.ServiceWaiting },
		resource: "a CPU",
		waiting:  podwait.CPU,
		use: func(p *tick.Pod) []float64 {
			milliCPU, _ := amount(p.UsageMilliCPU)
			return []float64{milliCPU}
		},
	}.rule()

	serviceIO = waitingSource{
		name: "service-io-waiting",
		doc: `a service waits for the disk, and batch pods use it
Off unless service-io-enabled. The value is the longest waiting of all services (pods of another class than reclaimed), in thousandths of
the time: some avg10 of their io.pressure, which only cgroup v2 has. If a service waits more than service-io-threshold for
service-io-duration, the reclaimed pod that reads and writes most is evicted. The cooldown is service-io-cooldown. Pods whose reading and
writing is unknown or 0 are not evicted. If no service's waiting is known, nothing is measured.`,
		scope:    ScopeServiceIO,
		rows:     (*evictconfig.Settings).ServiceIORows,
		settings: func(s *Settings) *evictconfig.Waiting { return &s.ServiceIO },
		resource: "the disk",
		waiting:  podwait.IO,
		use:      func(p *tick.Pod) []float64 { return []float64{ioUse(p)} },
	}.rule()

	serviceMemory = waitingSource{
		name: "service-memory-waiting",
		doc: `a service waits for memory, and batch pods use some
Off unless service-memory-enabled. The value is the longest waiting of all services (pods of another class than reclaimed), in thousandths
of the time: some avg10 of their memory.pressure, which only cgroup v2 has. If a service waits more than service-memory-threshold for
service-memory-duration, the reclaimed pod with the most anonymous memory (rssBytes) is evicted, because the kernel can drop page cache
without its end; among equals the one with the largest working set. The cooldown is service-memory-cooldown. Pods of which both are
unknown or 0 are not evicted. The waiting of a service that uses 95 % of its own memory limit or more is unknown: the kernel reclaims from
it then, whatever other pods use. If no service's waiting is known, nothing is measured.`,
		scope:    ScopeServiceMemory,
		rows:     (*evictconfig.Settings).ServiceMemoryRows,
		settings: func(s *Settings) *evictconfig.Waiting { return &s.ServiceMemory },
		resource: "memory",
		waiting:  podwait.Memory,
		use:      memoryUse,
	}.rule()
)

// waitingSource is a resource for which services wait while batch pods use it.
type waitingSource struct {
	name, doc, scope string
	rows             func(*evictconfig.Settings) []evictconfig.Row
	settings         func(*Settings) *evictconfig.Waiting
	resource         string // the name in messages
	// waiting returns how long a service waits, in thousandths of the time; false if unknown.
	waiting func(*tick.Pod) (permille float64, known bool)
	// use returns how much a batch pod uses, by which batch pods are ranked, from left to right; 0 if unknown. A pod that has only zeros is
	// not a candidate.
	use func(*tick.Pod) []float64
}

func (src waitingSource) rule() *Rule {
	return &Rule{
		Name: src.name, Doc: src.doc, Scopes: []string{src.scope}, Rows: src.rows,
		New: func() Window { return &waitingWindow{source: &src} },
	}
}

type waitingWindow struct {
	Waiting condition `json:"waiting"`
	source  *waitingSource
}

func (w *waitingWindow) Measure(all *Settings, t *tick.Tick) Measure {
	var m Measure
	s := w.source.settings(all)
	if !s.Enabled {
		w.Waiting = condition{}
		return m
	}
	worst, value := w.source.longestWaiting(&m, t)
	if worst == nil {
		w.Waiting.observe(t, false)
		return m
	}
	threshold, met := w.Waiting.isOver(t, value, s.Threshold, s.Hysteresis)
	f := Finding{PressureFinding: tick.PressureFinding{
		Rule: w.source.name, Scope: w.source.scope,
		Value: value, Threshold: threshold, Met: met, Hard: true, Since: formatTime(w.Waiting.Start),
	}}
	f.Tolerance, f.Cooldown, f.GracePeriodSeconds = s.Duration, s.Cooldown, graceSeconds(s.GracePeriod)
	if met {
		f.Candidates = w.source.candidates(t, value)
		f.Message = fmt.Sprintf("service %s waits for %s for %.0f ms per second, over the "+reason.Threshold+"%.0f ms, for %s",
			worst.Name, w.source.resource, value, threshold, w.Waiting.metFor(t.Time).Round(time.Second))
	}
	m.Findings = append(m.Findings, f)
	return m
}

// longestWaiting returns the service that waits most; nil if no service's waiting is known.
func (src *waitingSource) longestWaiting(m *Measure, t *tick.Tick) (worst *tick.Pod, permille float64) {
	services := 0
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if !p.IsService() || p.Ended() || p.Missing == tick.MissingCgroup {
			continue
		}
		services++
		if v, known := src.waiting(p); known && (worst == nil || v > permille) {
			worst, permille = p, v
		}
	}
	if worst == nil && services > 0 {
		m.Errors = append(m.Errors, reason.NotMeasured(src.scope, fmt.Sprintf("the waiting of all %d services is unknown", services)))
	}
	return worst, permille
}

// candidates returns the reclaimed pods that use the resource. One pod's end counts as ending the waiting, until the cooldown is over.
func (src *waitingSource) candidates(t *tick.Tick, permille float64) []Candidate {
	var list []Candidate
	for _, p := range podsOfClass(t, tick.QoSReclaimed) {
		if use := src.use(p); slices.Max(use) > 0 {
			list = append(list, Candidate{Pod: p, Rank: use, Releases: permille})
		}
	}
	return list
}

// memoryUse returns a pod's anonymous memory, which the kernel cannot drop, and its working set, in bytes.
func memoryUse(p *tick.Pod) []float64 {
	rss, _ := podMemory(p, rssBytes)
	workingSet, _ := podMemory(p, workingSetBytes)
	return []float64{rss, workingSet}
}

// ioUse returns what a pod reads and writes, in bytes per second. An operation counts as at least 4 KiB: on a rotating disk the
// number of operations determines the cost.
func ioUse(p *tick.Pod) float64 {
	const leastBytes = 4096
	if p.IO == nil {
		return 0
	}
	sum := func(x, y *float64) float64 {
		a, _ := amount(x)
		b, _ := amount(y)
		return a + b
	}
	return max(sum(p.IO.ReadBytesPerSecond, p.IO.WriteBytesPerSecond), leastBytes*sum(p.IO.ReadsPerSecond, p.IO.WritesPerSecond))
}
