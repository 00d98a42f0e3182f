package series

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"polder/lib/phrase"
	"polder/lib/podwait"
	"polder/lib/tick"
	"polder/lib/usage"
)

// Worth is how much of a node's CPUs batch (the pods of class reclaimed) got over its ticks, in seconds of CPU time. It is summed from
// the rates of each tick over the time since the previous tick; ticks without the node's capacity or use do not count, nor those with a pod
// that may be batch. A batch pod whose use is unknown adds nothing: it has just started, because a rate needs two readings.
type Worth struct {
	// Seconds is the time that was counted.
	Seconds float64
	// Batch is the CPU time that batch used, Free the time that batch used or nothing used ([usage.Free]).
	Batch, Free float64
	// BeyondRequests is the part of Batch beyond what each pod requests, of native and reclaimed CPU.
	BeyondRequests float64
	// Throttled is the time, weighted by the largest part of it in which a container of batch was throttled.
	Throttled float64
	// Services is the time in which services' waiting for a CPU was known, summed over all services, and Waited the part of it in which
	// they waited: where the tick has their PSI the time in which at least one thread of the service waited, elsewhere the run delays
	// of its threads, at most one second per second.
	Services, Waited float64
	// Advised is the time between advices, HeldBack the part of it in which something held batch back, whatever the cause.
	Advised, HeldBack float64
	// Evicted are the accepted evictions, without those that a budget refused.
	Evicted float64

	clock clock // of the ticks
	// withPSI and withDelays are Services and Waited of those services whose PSI the tick has, and of the others, but the run delays without
	// their bound. Run delays are summed over a service's threads, so they are not a part of the time: they are large where many threads
	// wait for a moment each, even if no request takes longer.
	withPSI, withDelays waiting
	squeezed            counts // the parts of Advised in which something held batch back, by cause
	pods                counts // the CPU time of each present batch pod, by namespace and name, and that of others beyond the bound
	// counted are the pods in pods.
	counted map[string]countedPod
}

// countedPod is a pod that has a counter. Its class ([batchClass]) is as it was first known: the labels of a counter do not change.
type countedPod struct{ uid, class string }

// maxGapIntervals is the longest time between two ticks that counts, in intervals of the tick, or of collect if that one is longer: a
// longer gap is unknown.
const maxGapIntervals = 3

// coveredSeconds returns the time in seconds that a tick covers, 0 if it is unknown.
func (w *Worth) coveredSeconds(t *tick.Tick) float64 {
	span, isFirst := w.clock.since(t.Time)
	since := span.Seconds()
	if t.Sample == nil || t.Sample.IntervalSeconds == nil {
		return 0
	}
	interval := *t.Sample.IntervalSeconds
	switch {
	case !(interval > 0 && interval < tick.MaxIntervalSeconds) || !isFirst && since <= 0: // a repeated tick, or the clock was set back
		return 0
	case isFirst || since > maxGapIntervals*max(interval, t.Sample.Interval().Seconds()): // an early tick's own interval is short
		return interval
	}
	return since
}

// add counts a tick.
func (w *Worth) add(t *tick.Tick) {
	seconds := w.coveredSeconds(t)
	if t.Sample == nil || t.Sample.CPU == nil || seconds == 0 {
		return
	}
	taken := usage.Taken(t.Sample.CPU.UsageMilliCPU, t.Sample.CPU.StealMilliCPU)
	if taken == nil {
		return
	}
	capacity := usage.Capacity(t.Sample)
	if capacity == nil || *capacity > usage.MaxMilliCPU || mayHaveUnknownBatch(t.Sample.Pods) {
		return
	}
	w.addWaiting(t.Sample.Pods, seconds)
	var batch, beyond, throttled float64 // milli-CPU, milli-CPU, percent
	podSeconds := w.presentPods(t.Sample)
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if !p.IsBatch() || p.UsageMilliCPU == nil || *p.UsageMilliCPU > usage.MaxMilliCPU {
			continue
		}
		use := max(0, *p.UsageMilliCPU) // a negative one would make counters decrease
		batch += use
		beyond += min(use, max(0, use-requested(p))) // a request may be negative
		for j := range p.Containers {
			if part := p.Containers[j].ThrottledPercent; part != nil {
				throttled = max(throttled, min(100, *part))
			}
		}
		podSeconds.add(podKey(p), use/1000*seconds)
		w.addCounted(podSeconds, p)
	}
	maps.DeleteFunc(w.counted, func(key string, _ countedPod) bool { _, counted := podSeconds[key]; return !counted })
	w.pods = podSeconds
	w.Seconds += seconds
	w.Batch += batch / 1000 * seconds
	w.Free += usage.Free(*capacity, *taken, batch) / 1000 * seconds
	w.BeyondRequests += beyond / 1000 * seconds
	w.Throttled += throttled / 100 * seconds
}

// mayHaveUnknownBatch reports whether a pod of unknown class uses anything, or may do so: then batch's use is unknown, not 0.
func mayHaveUnknownBatch(pods []tick.Pod) bool {
	for i := range pods {
		if p := &pods[i]; p.IsClassUnknown() && (p.UsageMilliCPU == nil || *p.UsageMilliCPU != 0) {
			return true
		}
	}
	return false
}

// podKey identifies a pod's counter.
func podKey(p *tick.Pod) string { return p.Namespace + "\x00" + p.Name }

// batchMid is the class of batch pods on Koordinator's mid resources. All others have their class in the tick.
const batchMid = "mid"

// batchClass returns the offer that a batch pod runs on: mid for one that requests Koordinator's mid resources, otherwise its class.
func batchClass(p *tick.Pod) string {
	if r := p.Requests; r != nil {
		for _, v := range []*float64{r.MidMilliCPU, r.MidMemoryBytes} {
			if v != nil && *v > 0 {
				return batchMid
			}
		}
	}
	return p.QoS
}

// addCounted remembers a pod that has a counter of its own. Pods beyond the bound have none.
func (w *Worth) addCounted(counters counts, p *tick.Pod) {
	key := podKey(p)
	before, isKnown := w.counted[key]
	if _, isCounted := counters[key]; !isCounted || isKnown && before.uid == p.UID {
		return
	}
	if w.counted == nil {
		w.counted = map[string]countedPod{}
	}
	w.counted[key] = countedPod{p.UID, batchClass(p)}
}

// presentPods returns the counters of the pods that a sample has, whatever is known of their use or class this time, and that of the pods
// beyond the bound, which never ends. They come before the counters of new pods, so that the bound does not end the counter of a pod that
// still exists. A pod that has replaced another one of its name has a counter that begins.
func (w *Worth) presentPods(s *tick.Sample) counts {
	if s.IsUnread("pods") { // a list that could not be read does not mean that a pod has ended
		return maps.Clone(w.pods)
	}
	present := counts{}
	if v, known := w.pods[other]; known {
		present[other] = v
	}
	for i := range s.Pods {
		key := podKey(&s.Pods[i])
		if v, known := w.pods[key]; known && w.counted[key].uid == s.Pods[i].UID {
			present[key] = v
		}
	}
	return present
}

// waiting is how long services waited, in a time that is summed over them.
type waiting struct{ seconds, waited float64 }

func (w *waiting) add(seconds, permille float64) {
	w.seconds += seconds
	w.waited += permille / 1000 * seconds
}

// addWaiting counts how long services waited, without those that their own limits throttle. [tick.Pod.CPUWaitPermille] is from PSI where
// the pod has CPUPressure, and only there.
func (w *Worth) addWaiting(pods []tick.Pod, seconds float64) {
	for i := range pods {
		p := &pods[i]
		permille, known := podwait.CPU(p)
		if !known || !p.IsService() {
			continue
		}
		w.Services += seconds
		w.Waited += min(permille, 1000) / 1000 * seconds
		if p.CPUPressure != nil {
			w.withPSI.add(seconds, min(permille, 1000))
		} else {
			w.withDelays.add(seconds, permille)
		}
	}
}

// These are the causes for which batch is held back.
const (
	causeGuard   = "guard"   // steps of the guard are in force
	causeStarved = "starved" // batch gets less than its floor on a full machine
)

// addSqueeze counts how long something held batch back, over the time in seconds since the previous advice; 0 is unknown. A cause of which
// nothing is known has no counter. In a dry run the guard's steps hold nothing back.
func (w *Worth) addSqueeze(t *tick.Tick, seconds float64) {
	isHeldBack := false
	count := func(cause string, isInForce bool) {
		w.squeezed.begin(cause)
		if isInForce {
			w.squeezed.add(cause, seconds)
			isHeldBack = true
		}
	}
	count(causeGuard, len(t.Advice.GuardSteps) > 0 && (t.Isolation == nil || !t.Isolation.DryRun))
	if is := t.Advice.BatchStarved; is != nil {
		count(causeStarved, *is)
	}
	w.Advised += seconds
	if isHeldBack {
		w.HeldBack += seconds
	}
}

// requested returns the CPU that a pod requests, in milli-CPU; a missing request is 0.
func requested(p *tick.Pod) (sum float64) {
	if p.Requests == nil {
		return 0
	}
	for _, v := range []*float64{p.Requests.MilliCPU, p.Requests.ReclaimedMilliCPU, p.Requests.MidMilliCPU} {
		if v != nil {
			sum += *v
		}
	}
	return sum
}

// String returns the sum in a sentence, as in "batch got 3.1 of 4.0 idle core-hours (78 %, 0.4 beyond requests) in 2h00m,
// throttled 0.5 % of it, 2 evictions; batch was held back 1.2 % of the time; services waited 0.1 % of the time". It is empty if nothing
// was counted.
func (w *Worth) String() string {
	text := strings.Join(w.OfBatch(), ", ")
	if text == "" {
		return ""
	}
	if held := w.OfSqueeze(); held != "" {
		text += "; batch was " + held
	}
	for _, waited := range w.OfServices() {
		text += "; " + waited
	}
	return text
}

// OfSqueeze returns its part about how long batch was held back, without the subject; it is empty if that is unknown, or less than the
// least part of the time that is shown.
func (w *Worth) OfSqueeze() string {
	if w.Advised == 0 {
		return ""
	}
	part := fmt.Sprintf("%.1f", 100*w.HeldBack/w.Advised)
	if part == "0.0" {
		return ""
	}
	return "held back " + part + " % of the time"
}

// OfServices returns its parts about services, with PSI and without; it is empty if their waiting is unknown.
func (w *Worth) OfServices() (pieces []string) {
	if of := w.withPSI; of.seconds > 0 {
		pieces = append(pieces, fmt.Sprintf("services waited %.1f %% of the time", 100*of.waited/of.seconds))
	}
	if of := w.withDelays; of.seconds > 0 {
		pieces = append(pieces, fmt.Sprintf("services waited %.2f s per second each (all threads added up)", of.waited/of.seconds))
	}
	return pieces
}

// OfBatch returns its part about batch, in pieces to be joined with commas. The idle time is what batch used or nothing used.
func (w *Worth) OfBatch() []string {
	if w.Seconds == 0 {
		return nil
	}
	unit, per := "core-hours", 3600.0
	if w.Free < 3600 {
		unit, per = "core-seconds", 1
	}
	text := fmt.Sprintf("batch got %s of %s idle %s", phrase.Decimal(w.Batch/per, 1), phrase.Decimal(w.Free/per, 1), unit)
	var inBrackets []string
	if w.Free > 0 {
		inBrackets = append(inBrackets, fmt.Sprintf("%.0f %%", 100*w.Batch/w.Free))
	}
	if beyond := phrase.Decimal(w.BeyondRequests/per, 1); beyond != "0.0" {
		inBrackets = append(inBrackets, beyond+" beyond requests")
	}
	if len(inBrackets) > 0 {
		text += " (" + strings.Join(inBrackets, ", ") + ")"
	}
	pieces := []string{text + " in " + shortSpan(w.Seconds), fmt.Sprintf("throttled %.1f %% of it", 100*w.Throttled/w.Seconds)}
	switch w.Evicted {
	case 0:
		return pieces
	case 1:
		return append(pieces, "1 eviction")
	}
	return append(pieces, fmt.Sprintf("%.0f evictions", w.Evicted))
}

// shortSpan formats a time with its two largest units.
func shortSpan(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Round(time.Second)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	switch {
	case h > 0:
		return fmt.Sprintf("%dh%02dm", h, m)
	case m > 0:
		return fmt.Sprintf("%dm%02ds", m, s)
	}
	return fmt.Sprintf("%ds", s)
}
