package rule

import (
	"fmt"
	"time"

	"polder/lib/phrase"
	"polder/lib/podwait"
	"polder/lib/reason"
	"polder/lib/tick"
)

// measurePSI measures memory pressure (PSI).
func measurePSI(x *memoryCheck, l *condition) {
	const v2 = 2
	sample, now := x.t.Sample, x.t.Time
	value, ok := podwait.SomePercent(sample.Memory.Pressure)
	if !ok || sample.CgroupVersion != v2 {
		l.observe(x.t, false)
		if sample.CgroupVersion == v2 && sample.Memory.Pressure != nil {
			x.addError(partPSI, "the node's memory pressure has no some avg10 of 0 to 100")
		}
		return // a machine without PSI
	}
	stalled, sum, unknown, total := 0, 0.0, []string(nil), 0
	for _, v := range x.pods {
		if !v.pod.IsService() {
			continue
		}
		total++
		avg10, ok := podwait.SomePercent(v.pod.MemoryPressure)
		switch {
		case !ok:
			unknown = append(unknown, v.pod.Name)
		case avg10 > x.s.MemoryPSIPodThreshold:
			stalled++
			sum += avg10
		}
	}
	if len(unknown) > 0 {
		x.m.Errors = append(x.m.Errors,
			fmt.Sprintf("%s (%s): no memory pressure of %d of %d shared and dedicated pods, they count as without pressure: %s",
				ScopeMemory, partPSI, len(unknown), total, phrase.First(unknown, shownNames)))
	}
	factor := l.factor(x.t, x.s.MemoryHysteresis)
	threshold := x.s.MemoryPSIThreshold * factor
	podsStalled := stalled >= x.s.MemoryPSIPods && sum/float64(stalled) >= x.s.MemoryPSIPodsMean*factor
	met := l.observe(x.t, value > threshold && podsStalled)

	f := x.newFinding(partPSI, value, threshold, met, l)
	f.Tolerance = max(f.Tolerance, x.s.MemoryPSIDurationReclaimed)
	f.Cooldown = max(f.Cooldown, x.s.MemoryPSICooldown)
	if met {
		lasted := l.metFor(now)
		accept, allowed := ofClasses(tick.QoSReclaimed), "reclaimed pods may be evicted"
		if lasted >= x.s.MemoryPSIDuration {
			accept, allowed = anyPod, "any pod may be evicted"
		}
		if lasted >= f.Tolerance {
			taint := taintMemoryPressure
			f.Taint = &taint
		}
		f.Candidates, f.Others = x.relievingCandidates(value, accept)
		f.Message = fmt.Sprintf(
			"tasks wait for memory %.2f%% of the time, over the "+reason.Threshold+"%.2f%%, and %d pods for %.2f%% on average, for %s: %s",
			value, threshold, stalled, sum/float64(stalled), lasted.Round(time.Second), allowed)
	}
	x.m.Findings = append(x.m.Findings, f)
}
