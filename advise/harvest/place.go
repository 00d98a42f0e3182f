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

// place is where batch runs: on all CPUs except as many whole cores as the services use, and those that stay idle for their bursts.
type place struct {
	// Bursts are the growths of services' use within two ticks, as parts of the CPUs that batch may use.
	Bursts histogram.Histogram `json:"bursts,omitempty"`
	// Uses are the uses of the last ticks, newest last.
	Uses []use `json:"uses,omitempty"`
	// Kept is the list of CPUs without batch, and Needed when all of them were last needed.
	Kept   string    `json:"kept,omitempty"`
	Needed time.Time `json:"needed,omitzero"`
	// NUMA is on which NUMA nodes the services run; nil if unknown.
	NUMA *byNUMA `json:"numa,omitempty"`
	// Tier is kubelet's cgroup of the BestEffort pods, if it was ever confined to batch's CPUs.
	Tier string `json:"tier,omitempty"`
	// Confined reports whether batch had a CPU list, which must be undone if it has none any more.
	Confined bool `json:"confined,omitempty"`

	last *division // the one in force since the last tick; nil in the first
}

// see adds a use of milliCPU out of a capacity.
func (p *place) see(now time.Time, milliCPU, of float64) {
	if n := len(p.Uses); n > 0 && !now.After(p.Uses[n-1].At) {
		p.Uses = nil // the clock was set back
	}
	if n := len(p.Uses); n > 0 {
		p.Bursts.Age(math.Exp2(-now.Sub(p.Uses[n-1].At).Minutes() / burstHalfLife.Minutes()))
		least := milliCPU
		for _, u := range p.Uses {
			least = min(least, u.Use)
		}
		p.Bursts.Add((milliCPU - least) / max(of, 1))
	}
	p.Uses = append(p.Uses, use{now, milliCPU})
	p.Uses = slices.Delete(p.Uses, 0, max(len(p.Uses)-2, 0))
}

// divide decides the CPUs of batch: all that batch may use except the kept ones.
func (p *place) divide(a *tick.Advice, now time.Time, sh *shape, s Settings) *division {
	avail := sh.Avail.Size()
	used := 0.0
	for _, u := range p.Uses {
		used = max(used, u.Use)
	}
	part, seen := p.Bursts.Quantile(s.Burst)
	burst := part * float64(avail) * 1000
	idle := max(ceilCPUs(min(burst, float64(avail)*500)), sh.LargestCore()) // at most half of the machine
	limit := max(avail-sh.floorCPUs(), 0)
	want := min(ceilCPUs(used)+idle, limit)

	split := p.NUMA.split(want)
	d := sh.divide(p.Kept, want, limit, split)
	if p.Needed.After(now) {
		p.Needed = now
	}
	held := ""
	switch hold := s.BurstHold - now.Sub(p.Needed); {
	case !d.shrinks:
		p.Needed = now
	case hold > 0:
		d = sh.divide(p.Kept, d.present, limit, split)
		held = fmt.Sprintf("; %d would do, the others are kept for %.0fs more", want, math.Ceil(hold.Seconds()))
	}
	p.Kept, p.last = d.kept, d
	why := ""
	if ceilCPUs(used)+idle > limit {
		why = fmt.Sprintf("; batch keeps its floor of %d CPUs", avail-limit)
	}
	const text = "batch runs on %d of %d CPUs: services use %.0fm, and %d CPUs stay idle for their bursts " +
		"(%s of %.0f growths within two ticks were up to %.0fm)%s%s%s"
	a.Reasons = append(a.Reasons, fmt.Sprintf(text,
		d.size, avail, used, idle, percent(s.Burst), seen, burst, why, held, p.NUMA.text(sh, d)))
	return d
}

// confine pins the containers of batch to a CPU list, and to its floor in the fallback.
func confine(a *tick.Advice, pods []tick.Pod, batch, floor string) {
	for i := range pods {
		p := &pods[i]
		if p.QoS != tick.QoSReclaimed || p.Missing == tick.MissingCgroup || p.Ended() {
			continue
		}
		for j := range policy.Cgroups(p) {
			if c := policy.Cgroup(p, j); len(c) > 1 && c[0] == '/' {
				a.Cgroups = append(a.Cgroups, tick.Cgroup{Cgroup: c, CPUSetCPUs: batch})
				a.Fallback = append(a.Fallback, tick.Cgroup{Cgroup: c, CPUSetCPUs: floor})
			}
		}
	}
}

// ceilCPUs rounds milli-CPU up to whole CPUs; less than a thousandth of a milli-CPU is rounding noise.
func ceilCPUs(milliCPU float64) int { return int(math.Ceil((min(milliCPU, 1e9) - 0.001) / 1000)) }
