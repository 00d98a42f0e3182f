package rule

import (
	"fmt"
	"time"

	"polder/lib/reason"
	"polder/lib/tick"
)

// kswapd is the state of the kernel's background reclaim.
type kswapd struct {
	condition
	streak
	// Pages is the kernel's counter at PeriodStart, the beginning of the present period, which is zero if unknown.
	Pages       float64   `json:"pages"`
	PeriodStart time.Time `json:"at,omitzero"`
	// Rate is the last period's, in pages per second; Known means that there is one.
	Rate  float64 `json:"rate"`
	Known bool    `json:"known,omitempty"`
}

// measure computes the mean rate of each period from the counter: a rate in the sample covers one interval of collect, and
// a period contains many.
func (k *kswapd) measure(x *memoryCheck, due, continued bool) {
	memory := x.t.Sample.Memory
	now := x.t.Time
	pages, okPages := amount(memory.KswapdStealPages)
	sampleRate, okRate := amount(memory.KswapdStealPerSecond)
	if !okPages && !okRate {
		*k = kswapd{condition: condition{Last: now, Interval: Interval(x.t.Sample)}}
		x.addError(partKswapd, "the sample has neither kswapd's pages nor their rate")
		return
	}
	if _, ok := amount(&k.Rate); !ok { // a state file may contain anything
		k.Known = false
	}
	if now.Before(k.PeriodStart) { // the clock was set back: the period starts over
		k.PeriodStart = time.Time{}
	}
	if due {
		elapsed := now.Sub(k.PeriodStart).Seconds()
		switch {
		case okPages && !k.PeriodStart.IsZero() && continued && elapsed > 0 && pages >= k.Pages:
			k.Rate, k.Known = (pages-k.Pages)/elapsed, true
		case okRate:
			k.Rate, k.Known = sampleRate, true
		default:
			k.Known = false // the first sample, or a counter that was reset: it does not show when the pages were reclaimed
		}
	}
	if okPages && (due || k.PeriodStart.IsZero()) {
		k.Pages, k.PeriodStart = pages, now
	}
	if !k.Known {
		k.observe(x.t, false)
		k.Times = 0
		return
	}
	threshold, isOver := k.isOver(x.t, k.Rate, x.s.MemoryKswapdRate, x.s.MemoryHysteresis)
	if due {
		k.count(continued, isOver)
	}
	met := isOver && k.Times >= x.s.MemoryKswapdTimes
	howLong := k.streak.String()
	if d := x.s.MemoryKswapdDuration; d > 0 {
		lasted := k.metFor(now)
		met = isOver && lasted >= d
		howLong = "for " + lasted.Round(time.Second).String()
	}
	f := x.newFinding(partKswapd, k.Rate, threshold, met, &k.condition)
	if !met {
		f.Since = ""
	} else {
		taint := taintMemoryPressure
		f.Taint = &taint
		f.Candidates, f.Others = x.relievingCandidates(k.Rate, ofClasses(tick.QoSReclaimed, tick.QoSShared))
		if !due { // a pod may have ended since the measurement
			f.WhyWait = "waits for the next period's rate"
		}
		f.Message = fmt.Sprintf("kswapd reclaimed %.0f pages a second, over the "+reason.Threshold+"%.0f, %s", k.Rate, threshold, howLong)
	}
	x.m.Findings = append(x.m.Findings, f)
}

// relievingCandidates returns the candidates for a sign of pressure whose relief cannot be attributed to single pods: the end of
// the first one counts as sufficient, and the sign is measured again when that pod has ended.
func (x *memoryCheck) relievingCandidates(value float64, accept func(*tick.Pod) bool) (candidates, others []Candidate) {
	candidates, others = x.candidates(x.s.MemorySystemRanking, value, -1, accept)
	for _, list := range [][]Candidate{candidates, others} {
		for i := range list {
			list[i].Releases = value
		}
	}
	return candidates, others
}
