package rule

import (
	"fmt"

	"polder/lib/tick"
)

// measurePSI measures memory pressure (PSI).
func measurePSI(x *shortage, l *level) {
	const v2 = 2
	sample, now := x.t.Sample, x.t.Time
	value, ok := some10(sample.Memory.Pressure)
	if !ok || sample.CgroupVersion != v2 {
		l.observe(x.t, false)
		if sample.CgroupVersion == v2 && sample.Memory.Pressure != nil {
			x.missing(partPSI, "the node's memory pressure has no some avg10 of 0 to 100")
		}
		return // a machine without PSI
	}
	pressed, sum, without, all := 0, 0.0, []string(nil), 0
	for _, v := range x.pods {
		if v.pod.QoS == tick.QoSReclaimed {
			continue
		}
		all++
		avg10, ok := some10(v.pod.MemoryPressure)
		switch {
		case !ok:
			without = append(without, v.pod.Name)
		case avg10 > x.s.MemoryPSIPodThreshold:
			pressed++
			sum += avg10
		}
	}
	if len(without) > 0 {
		x.m.Errors = append(x.m.Errors, fmt.Sprintf("%s (%s): no memory pressure of %d of %d shared and dedicated pods, they count as not pressed: %s", ScopeMemory, partPSI, len(without), all, some(without)))
	}
	counts := 1.0
	if l.held(x.t) {
		counts -= x.s.MemoryHysteresis
	}
	threshold := x.s.MemoryPSIThreshold * counts
	suffer := pressed >= x.s.MemoryPSIPods && sum/float64(pressed) >= x.s.MemoryPSIPodsMean*counts
	met := l.observe(x.t, value > threshold && suffer)

	f := x.finding(partPSI, value, threshold, met, l)
	f.Tolerance = max(f.Tolerance, x.s.MemoryPSIDurationReclaimed)
	f.Cooldown = max(f.Cooldown, x.s.MemoryPSICooldown)
	if met {
		lasted := l.lasted(now)
		accept, who := only(tick.QoSReclaimed), "reclaimed pods may be evicted"
		if lasted >= x.s.MemoryPSIDuration {
			accept, who = anyone, "any pod may be evicted"
		}
		if lasted >= f.Tolerance {
			taint := taintMemoryPressure
			f.Taint = &taint
		}
		f.Candidates, f.Others = x.relieving(value, accept)
		f.Message = fmt.Sprintf("tasks wait for memory %.2f%% of the time, over the threshold of %.2f%%, and %d pods for %.2f%% on average, for %.0fs: %s",
			value, threshold, pressed, sum/float64(pressed), lasted.Seconds(), who)
	}
	x.m.Findings = append(x.m.Findings, f)
}

// some10 returns the percentage of the last 10 seconds in which some task waited.
func some10(p *tick.Pressure) (float64, bool) {
	if p == nil || p.Some == nil || !(p.Some.Avg10 >= 0 && p.Some.Avg10 <= 100) {
		return 0, false
	}
	return p.Some.Avg10, true
}
