package harvest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"polder/advise/histogram"
	"polder/advise/policy"
	"polder/lib/tick"
)

// burstHalfLife is the time in which the weight of a growth between two ticks halves.
const burstHalfLife = 10 * time.Minute

// placement is where batch runs: on all CPUs except as many whole cores as the services use, and those that stay idle for their bursts.
type placement struct {
	// Bursts are the growths of services' use within two ticks, as parts of the CPUs that batch may use.
	Bursts histogram.Histogram `json:"bursts,omitempty"`
	// Uses are the uses of the last ticks, newest last.
	Uses []use `json:"uses,omitempty"`
	// WithoutBatch is the list of CPUs without batch, and NeededAt when all of them were last needed.
	WithoutBatch string    `json:"kept,omitempty"`
	NeededAt     time.Time `json:"needed,omitzero"`
	// NUMA is on which NUMA nodes the services run; nil if unknown.
	NUMA *numaUse `json:"numa,omitempty"`
	// Tier is kubelet's cgroup of the BestEffort pods, if it was ever confined to batch's CPUs.
	Tier string `json:"tier,omitempty"`
	// IsConfined reports whether batch had a CPU list, which must be undone if it has none any more.
	IsConfined bool `json:"confined,omitempty"`
	// Lists has the cgroups with a CPU list: a pod that is a service now must not keep that of batch.
	Lists policy.SetCgroups `json:"lists,omitempty"`

	last *division // the one in force since the last tick; nil in the first
}

// maxPause is how long the last uses are compared with: a difference across a longer pause is no burst, unless ticks are so rare.
const maxPause = time.Minute

// observe adds a use in milli-CPU, of a capacity; interval is the time between two ticks, 0 if unknown.
func (p *placement) observe(now time.Time, interval time.Duration, milliCPU, capacity float64) {
	if n := len(p.Uses); n > 0 {
		pause := now.Sub(p.Uses[n-1].At)
		switch {
		case pause <= 0: // the clock was set back
			p.Uses = nil
		case pause > max(maxPause, 3*interval):
			p.Uses = []use{{now, milliCPU}} // no growth is known
		}
		p.Bursts.Age(math.Exp2(-max(pause, 0).Minutes() / burstHalfLife.Minutes()))
	}
	if len(p.Uses) > 0 {
		minimum := milliCPU
		for _, u := range p.Uses {
			minimum = min(minimum, u.Use)
		}
		p.Bursts.Add((milliCPU - minimum) / max(capacity, 1))
	}
	p.Uses = append(p.Uses, use{now, milliCPU})
	p.Uses = slices.Delete(p.Uses, 0, max(len(p.Uses)-2, 0))
}

// divide decides the CPUs of batch: all that batch may use except the kept ones.
func (p *placement) divide(a *tick.Advice, now time.Time, sh *shape, s Settings) *division {
	avail := sh.Avail.Size()
	used := 0.0
	for _, u := range p.Uses {
		used = max(used, u.Use)
	}
	part, observations := p.Bursts.Quantile(s.Burst)
	burst := part * float64(avail) * 1000
	idle := max(ceilCPUs(min(burst, float64(avail)*500)), sh.LargestCore()) // at most half of the machine
	limit := max(avail-sh.floorCPUs(), 0)
	desired := min(ceilCPUs(used)+idle, limit)

	split := p.NUMA.split(desired)
	d := sh.divide(p.WithoutBatch, desired, limit, split)
	if p.NeededAt.After(now) {
		p.NeededAt = now
	}
	holdText := ""
	switch remaining := s.BurstHold - now.Sub(p.NeededAt); {
	case !d.shrinks:
		p.NeededAt = now
	case remaining > 0:
		d = sh.divide(p.WithoutBatch, d.previousSize, limit, split)
		holdText = fmt.Sprintf("; %d CPUs without batch are enough, batch gets the others in %.0fs", desired, math.Ceil(remaining.Seconds()))
	}
	p.WithoutBatch, p.last = d.withoutBatch, d
	floorText := ""
	if ceilCPUs(used)+idle > limit {
		floorText = fmt.Sprintf("; batch keeps its floor of %d CPUs", avail-limit)
	}
	const text = "batch runs on %d of %d CPUs: services use %.0fm, and %d CPUs stay idle for their bursts " +
		"(%s of %.0f growths within two ticks were up to %.0fm)%s%s%s"
	a.Reasons = append(a.Reasons, fmt.Sprintf(text,
		d.size, avail, used, idle, percent(s.Burst), observations, burst, floorText, holdText, p.NUMA.text(sh, d)))
	return d
}

// pinBatch pins the containers of batch to a CPU list, and to its floor in the fallback.
func pinBatch(a *tick.Advice, pods []tick.Pod, batch, floor string) {
	for i := range pods {
		p := &pods[i]
		if p.QoS != tick.QoSReclaimed || p.Missing == tick.MissingCgroup || p.Ended() {
			continue
		}
		for j := range policy.Cgroups(p) {
			if c := policy.Cgroup(p, j); policy.IsCgroup(c) {
				a.Cgroups = append(a.Cgroups, tick.Cgroup{Cgroup: c, CPUSetCPUs: batch})
				a.Fallback = append(a.Fallback, tick.Cgroup{Cgroup: c, CPUSetCPUs: floor})
			}
		}
	}
}

// ceilCPUs rounds milli-CPU up to whole CPUs; less than a thousandth of a milli-CPU is rounding noise.
func ceilCPUs(milliCPU float64) int { return int(math.Ceil((min(milliCPU, 1e9) - 0.001) / 1000)) }
