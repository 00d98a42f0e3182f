package suppress

import (
	"fmt"

	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/phrase"
	"polder/lib/sloconfig"
)

// minCPUs is what batch pods keep however busy the services are.
const minCPUs = 2

// divideCPUs divides the CPUs: policy cpuset.
func (c *call) divideCPUs(b budget) {
	rest := c.Online.Difference(c.out).Difference(c.lsr)
	have := rest.Size() + c.lsr.Size()
	c.st.QuotaMilliCPU = 0
	if have == 0 {
		be, from := c.lastResort()
		c.st.Mode, c.st.CPUs, c.st.QuotaMilliCPU = sloconfig.SuppressCPUSet, be.String(), minQuotaMilliCPU
		c.say("suppression: %s; no CPU is left for batch pods, all %d are kept out (%s): they share CPU %s (%s), with a quota of %dm",
			b.sum, c.Online.Size(), c.outText(), be, from, minQuotaMilliCPU)
		c.hold(be)
		return
	}
	n, bound := ceilCPUs(b.milliCPU), ""
	if n < minCPUs {
		bound = "; no CPU is left for batch pods, they keep the minimum"
		n = minCPUs
	}
	if present := c.presentCPUs(); present > 0 {
		step := (c.Online.Size() + 9) / 10
		if most := int64(present + step); n > most {
			n, bound = most, fmt.Sprintf("; it grows by a tenth of all %d CPUs a step, rounded up: from %d by %d", c.Online.Size(), present, step)
		}
	}
	if n > int64(have) {
		n, bound = int64(have), fmt.Sprintf("; there are no more than %d that are not kept out", have)
	}
	fromLSR := int(n) * c.lsr.Size() / have
	fromRest := int(n) - fromLSR
	be := parse(c.st.CPUs)
	if be.Size() != int(n) || be.Intersection(c.lsr).Size() != fromLSR || be.Intersection(rest).Size() != fromRest {
		be = cpus.New(c.TakePairs(c.lsr, fromLSR)...).Union(cpus.New(c.TakePairs(rest, fromRest)...))
	}
	c.st.Mode, c.st.CPUs = sloconfig.SuppressCPUSet, be.String()
	kept := ""
	if !c.lsr.IsEmpty() {
		kept = fmt.Sprintf("; %d of the %d of LSR pods (%d * %d / %d), %d of the other %d", fromLSR, c.lsr.Size(), n, c.lsr.Size(), have, fromRest, rest.Size())
	}
	if !c.out.IsEmpty() {
		kept += "; kept out: " + c.outText()
	}
	c.say("suppression: %s -> %s%s%s", b.sum, phrase.Count(int(n), "CPU"), bound, kept)
	c.hold(be)
}

// ceilCPUs is milli-CPU in whole CPUs, rounded up.
func ceilCPUs(milliCPU int64) int64 {
	if milliCPU <= 0 {
		return 0
	}
	return (milliCPU + 999) / 1000
}

// presentCPUs is the number of CPUs that the batch pods have: those of their tier in force, where it is held; else those that
// were advised last, else those of their containers. 0 where nothing is known.
func (c *call) presentCPUs() int {
	inForce := set{}
	if c.tier != nil {
		inForce = parse(c.tier.CPUSetCPUs)
	}
	if c.tier != nil && c.above && !inForce.IsEmpty() {
		return inForce.Size()
	}
	if advised := parse(c.st.CPUs); !advised.IsEmpty() {
		return advised.Size()
	}
	of := set{}
	for i := range c.pods {
		if p := &c.pods[i]; p.held {
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

// full is where the batch pods run that are not suppressed: it is never empty.
func (c *call) full() set {
	if full := c.Online.Difference(c.out); !full.IsEmpty() {
		return full
	}
	be, _ := c.lastResort()
	return be
}

// lastResort is the one CPU for batch pods where all are kept out: where they do the least harm.
func (c *call) lastResort() (set, string) {
	others := c.system.Union(c.lse, c.exclusive)
	for _, from := range []struct {
		cpus set
		name string
	}{
		{c.reserved.Difference(others), "reserved"},
		{c.system.Difference(c.lse).Difference(c.exclusive), "SYSTEM's"},
		{c.lse.Difference(c.exclusive), "LSE's"},
		{c.Online, "kubelet's exclusive"},
	} {
		if !from.cpus.IsEmpty() {
			return cpus.New(c.TakePairs(from.cpus, 1)...), from.name
		}
	}
	return c.Online, "all" // not reached: a topology has a CPU
}

// outText names what is kept out.
func (c *call) outText() string {
	text := ""
	for _, of := range []struct {
		name string
		cpus set
	}{{"reserved", c.reserved}, {"SYSTEM", c.system}, {"LSE", c.lse}, {"kubelet's exclusive", c.exclusive}} {
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
