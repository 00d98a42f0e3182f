package suppress

import (
	"fmt"

	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/phrase"
	"polder/lib/sloconfig"
)

// minCPUs is the number of CPUs that batch pods keep at any load of the services.
const minCPUs = 2

// divideCPUs divides the CPUs: policy cpuset.
func (v *view) divideCPUs(b budget, before limit) decision {
	d := decision{decided: true}
	d.mode = sloconfig.SuppressCPUSet
	rest := v.Online.Difference(v.out).Difference(v.lsr)
	have := rest.Size() + v.lsr.Size()
	if have == 0 {
		be, from := v.lastResort()
		d.cpus, d.quotaMilliCPU, d.confined = be.String(), minQuotaMilliCPU, be
		d.because("suppression: %s; no CPU is left for batch pods, all %d are kept out (%s): they share CPU %s (%s), with a quota of %dm",
			b.sum, v.Online.Size(), v.outText(), be, from, minQuotaMilliCPU)
		return d
	}
	n, bound := ceilCPUs(b.milliCPU), ""
	if n < minCPUs {
		bound = "; no CPU is left for batch pods, they keep the minimum"
		n = minCPUs
	}
	if present := v.presentCPUs(before); present > 0 {
		step := (v.Online.Size() + 9) / 10
		if most := int64(present + step); n > most {
			n, bound = most, fmt.Sprintf("; it grows by a tenth of all %d CPUs a step, rounded up: from %d by %d", v.Online.Size(), present, step)
		}
	}
	if n > int64(have) {
		n, bound = int64(have), fmt.Sprintf("; there are no more than %d that are not kept out", have)
	}
	fromLSR := int(n) * v.lsr.Size() / have
	fromRest := int(n) - fromLSR
	be := parse(before.cpus)
	if be.Size() != int(n) || be.Intersection(v.lsr).Size() != fromLSR || be.Intersection(rest).Size() != fromRest {
		be = cpus.New(v.TakePairs(v.lsr, fromLSR)...).Union(cpus.New(v.TakePairs(rest, fromRest)...))
	}
	d.cpus, d.confined = be.String(), be
	kept := ""
	if !v.lsr.IsEmpty() {
		kept = fmt.Sprintf("; %d of the %d of LSR pods (%d * %d / %d), %d of the other %d", fromLSR, v.lsr.Size(), n, v.lsr.Size(), have, fromRest, rest.Size())
	}
	if !v.out.IsEmpty() {
		kept += "; kept out: " + v.outText()
	}
	d.because("suppression: %s -> %s%s%s", b.sum, phrase.Count(int(n), "CPU"), bound, kept)
	return d
}

// ceilCPUs rounds milli-CPU up to whole CPUs.
func ceilCPUs(milliCPU int64) int64 {
	if milliCPU <= 0 {
		return 0
	}
	return (milliCPU + 999) / 1000
}

// presentCPUs returns the number of the batch pods' CPUs: those of their tier in force, if it is confined; else those that were last
// advised, else those of their containers. 0 if unknown.
func (v *view) presentCPUs(before limit) int {
	inForce := set{}
	if v.tier != nil {
		inForce = parse(v.tier.CPUSetCPUs)
	}
	if v.tier != nil && v.above && !inForce.IsEmpty() {
		return inForce.Size()
	}
	if advised := parse(before.cpus); !advised.IsEmpty() {
		return advised.Size()
	}
	of := set{}
	for i := range v.pods {
		if p := &v.pods[i]; p.suppressed {
			for j := range p.Containers {
				of = of.Union(parse(p.Containers[j].CPUSetCPUs))
			}
		}
	}
	if of.IsEmpty() {
		of = inForce
	}
	return of.Size()
}

// full returns the CPUs of batch pods without suppression: it is never empty.
func (v *view) full() set {
	if full := v.Online.Difference(v.out); !full.IsEmpty() {
		return full
	}
	be, _ := v.lastResort()
	return be
}

// lastResort returns the one CPU for batch pods if all CPUs are kept out: the one where they harm least.
func (v *view) lastResort() (set, string) {
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

// outText names the CPUs that are kept out.
func (v *view) outText() string {
	text := ""
	for _, of := range []struct {
		name string
		cpus set
	}{{"reserved", v.reserved}, {"SYSTEM", v.system}, {"LSE", v.lse}, {"kubelet's exclusive", v.exclusive}} {
		if of.cpus.IsEmpty() {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += of.name + " " + clip.Text(of.cpus.String(), shownBytes)
	}
	return text
}
