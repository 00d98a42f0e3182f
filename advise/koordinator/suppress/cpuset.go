package suppress

import (
	"fmt"

	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/phrase"
	"polder/lib/reason"
	"polder/lib/sloconfig"
)

// minCPUs is the number of CPUs that batch pods keep at any load of the services.
const minCPUs = 2

// decideCPUs divides the CPUs: policy cpuset.
func (v *view) decideCPUs(b budget, previous limit) decision {
	d := decision{isDecided: true}
	d.mode = sloconfig.SuppressCPUSet
	others := v.Online.Difference(v.all).Difference(v.lsr)
	available := others.Size() + v.lsr.Size()
	if available == 0 {
		be, from := v.leastHarmfulCPU()
		d.cpus, d.quotaMilliCPU, d.confined = be.String(), minQuotaMilliCPU, be
		d.addReason("suppression: %s; no CPU is left for batch pods, all %d are excluded (%s): they share CPU %s (%s), with a quota of %dm",
			b.sum, v.Online.Size(), v.keptOutText(), be, from, minQuotaMilliCPU)
		return d
	}
	n, boundText := ceilCPUs(b.milliCPU), ""
	if n < minCPUs {
		boundText = "; no CPU is left for batch pods, they keep the minimum"
		n = minCPUs
	}
	if current := v.currentCPUs(previous); current > 0 {
		step := (v.Online.Size() + 9) / 10
		if maximum := int64(current + step); n > maximum {
			n, boundText = maximum, fmt.Sprintf("; it grows by a tenth of all %d CPUs a step, rounded up: from %d by %d", v.Online.Size(), current, step)
		}
	}
	if n > int64(available) {
		n, boundText = int64(available), fmt.Sprintf("; only %d are not excluded", available)
	}
	fromLSR := int(n) * v.lsr.Size() / available
	fromRest := int(n) - fromLSR
	be := parse(previous.cpus)
	if be.Size() != int(n) || be.Intersection(v.lsr).Size() != fromLSR || be.Intersection(others).Size() != fromRest {
		be = cpus.New(v.TakePairs(v.lsr, fromLSR)...).Union(cpus.New(v.TakePairs(others, fromRest)...))
	}
	d.cpus, d.confined = be.String(), be
	keptText := ""
	if !v.lsr.IsEmpty() {
		keptText = fmt.Sprintf("; %d of the %d of LSR pods (%d * %d / %d), %d of the other %d", fromLSR, v.lsr.Size(), n, v.lsr.Size(), available, fromRest, others.Size())
	}
	if !v.all.IsEmpty() {
		keptText += "; excluded: " + v.keptOutText()
	}
	d.addReason("%s", reason.Suppression{Budget: b.sum, Result: phrase.Count(int(n), "CPU") + boundText + keptText})
	return d
}

// ceilCPUs rounds milli-CPU up to whole CPUs.
func ceilCPUs(milliCPU int64) int64 {
	if milliCPU <= 0 {
		return 0
	}
	return (milliCPU + 999) / 1000
}

// currentCPUs returns the number of the batch pods' CPUs: those of their tier in force, if it is confined; else those that were last
// advised, else those of their containers. 0 if unknown.
func (v *view) currentCPUs(previous limit) int {
	inForce := set{}
	if v.tier != nil {
		inForce = parse(v.tier.CPUSetCPUs)
	}
	if v.tier != nil && v.mayNarrowTier && !inForce.IsEmpty() {
		return inForce.Size()
	}
	if advised := parse(previous.cpus); !advised.IsEmpty() {
		return advised.Size()
	}
	used := set{}
	for i := range v.pods {
		if p := &v.pods[i]; p.isSuppressed {
			for j := range p.Containers {
				used = used.Union(parse(p.Containers[j].CPUSetCPUs))
			}
		}
	}
	if used.IsEmpty() {
		used = inForce
	}
	return used.Size()
}

// unsuppressedCPUs returns the CPUs of batch pods without suppression: it is never empty.
func (v *view) unsuppressedCPUs() set {
	if full := v.Online.Difference(v.all); !full.IsEmpty() {
		return full
	}
	be, _ := v.leastHarmfulCPU()
	return be
}

// leastHarmfulCPU returns the one CPU for batch pods if all CPUs are kept out: the one where they harm least.
func (v *view) leastHarmfulCPU() (set, string) {
	others := v.system.Union(v.lse, v.exclusive)
	for _, from := range []struct {
		cpus set
		name string
	}{
		{v.reserved.Difference(others), "reserved"},
		{v.system.Difference(v.lse).Difference(v.exclusive), "SYSTEM's"},
		{v.lse.Difference(v.exclusive), "LSE's"},
		{v.Online, "kubelet's exclusive"},
	} {
		if !from.cpus.IsEmpty() {
			return cpus.New(v.TakePairs(from.cpus, 1)...), from.name
		}
	}
	return v.Online, "all" // unreachable: a topology has a CPU
}

// keptOutText names the CPUs that are kept out.
func (v *view) keptOutText() string {
	text := ""
	for _, group := range []struct {
		name string
		cpus set
	}{{"reserved", v.reserved}, {"SYSTEM", v.system}, {"LSE", v.lse}, {"kubelet's exclusive", v.exclusive}} {
		if group.cpus.IsEmpty() {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += group.name + " " + clip.Text(group.cpus.String(), shownBytes)
	}
	return text
}
