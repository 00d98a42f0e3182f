package explain

import (
	"fmt"

	"polder/lib/clip"
	"polder/lib/tick"
)

// whatToChange names what would have to be different for the pod, or the reclaimed pods of the node, to have more CPU.
func whatToChange(t *tick.Tick, p *tick.Pod) []string {
	if t.Advice == nil || t.Sample == nil {
		return nil
	}
	var s []string
	if p != nil {
		if own := ownLimit(p); own != nil && p.UsageMilliCPU != nil && *p.UsageMilliCPU >= fullPart**own {
			return []string{fmt.Sprintf("A higher limit of its own: it used %s of %s.", coresNumber(*p.UsageMilliCPU), coresOf(*own))}
		}
		if p.QoS != tick.QoSReclaimed {
			return nil
		}
	}
	if t.Advice.Withdrawn != "" {
		s = append(s, "The offer comes back when this is over: "+sentence(plain(t.Advice.Withdrawn))+".")
	}
	all, ns := machine(t), needs(t)
	b, found := shareOf(t.Advice.Reasons)
	switch {
	case found && b.SumMilliCPU+1000 < b.size() && b.Bound != "":
		s = append(s, fmt.Sprintf("Only time: the services need %s of their %s now, and reclaimed pods get the rest when "+
			"the wait is over. A shorter --hold or a larger --shrink-step of advise shortens the wait.",
			coresNumber(b.SumMilliCPU), coresOf(b.size())))
	case found:
		s = append(s, fmt.Sprintf("Each core that services need less is one more for reclaimed pods, and so is each core less in reserve "+
			"(--reserve-cpu, now %s).", coresOf(float64(b.ReserveMilliCPU))))
		if len(ns) > 0 && ns[0].request != nil && *ns[0].request > 0 && ns[0].milliCPU-*ns[0].request >= 500 && all > 0 {
			less := ns[0].milliCPU - *ns[0].request
			s = append(s, fmt.Sprintf("With %s at its request of %s, that sum would be %s, and some %s would be left.",
				ns[0].name, coresOf(*ns[0].request), coresOf(max(b.SumMilliCPU-less, 0)), coresOf(min(all-max(b.SumMilliCPU-less, 0), all))))
		}
	default:
		if x, found := suppressionOf(t.Advice.Reasons); found {
			s = append(s, fmt.Sprintf("Each core that services use less is one more for batch pods, and each percent more of "+
				"cpuSuppressThresholdPercent (now %d) is %s.", x.Percent, coresOf(all/100)))
		}
	}
	return s
}

// failures are the errors of reading and writing; about is nil for the node.
func failures(t *tick.Tick, about *tick.Pod) string {
	var s []string
	if t.Isolation != nil {
		for _, e := range t.Isolation.Errors {
			if about == nil || tick.IsWithin(e.Cgroup, about.Cgroup) {
				s = append(s, fmt.Sprintf("isolate could not write %s of %s: %s.",
					clip.Clean(e.Key), clip.Clean(e.Cgroup), sentence(clip.Clean(e.Error))))
			}
		}
	}
	if about != nil {
		for _, e := range about.Errors {
			s = append(s, sentence(plain(e))+".")
		}
	}
	if t.Sample != nil && about == nil {
		for _, e := range t.Sample.Errors {
			s = append(s, fmt.Sprintf("collect could not read %s: %s.", clip.Clean(e.Source), sentence(clip.Clean(e.Error))))
		}
	}
	if t.Eviction != nil && about == nil {
		for _, e := range t.Eviction.Errors {
			s = append(s, "evict: "+sentence(plain(e))+".")
		}
	}
	if excess := len(s) - 5; excess > 0 {
		s = append(s[:5:5], fmt.Sprintf("And %d more.", excess))
	}
	return paragraph("Errors", s...)
}
