package harvest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"polder/advise/histogram"
	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// burstHalfLife is the time in which the weight of a growth between two ticks halves.
const burstHalfLife = 10 * time.Minute

// placement is where batch runs: on all CPUs except as many whole cores as it takes for some CPUs to be idle for the services' bursts.
type placement struct {
	// Bursts are the growths of services' use within two ticks, as parts of the CPUs that batch may use.
	Bursts histogram.Histogram `json:"bursts,omitempty"`
	// Uses are the uses of the last ticks, newest last.
	Uses []use `json:"uses,omitempty"`
	// WithoutBatch is the list of CPUs without batch, NeededAt when all of them were last needed, and NeededSince how many at most since then.
	WithoutBatch string    `json:"kept,omitempty"`
	NeededAt     time.Time `json:"needed,omitzero"`
	NeededSince  int       `json:"neededSince,omitempty"`
	// NUMA is on which NUMA nodes the services run; nil if unknown.
	NUMA *numaUse `json:"numa,omitempty"`
	// Tier is kubelet's cgroup of the BestEffort pods, if it was ever confined to batch's CPUs.
	Tier string `json:"tier,omitempty"`
	// IsConfined reports whether batch had a CPU list, which must be undone if it has none any more.
	IsConfined bool `json:"confined,omitempty"`
	// Lists has the cgroups with a CPU list: a pod that is a service now must not keep that of batch.
	Lists policy.SetCgroups `json:"lists,omitempty"`

	grown float64   // by how many milli-CPU the services' use has grown within two ticks; 0 if it has not, or that is unknown
	last  *division // the one in force since the last tick; nil in the first
}

// maxPause is how long the last uses are compared with: a difference across a longer pause is no burst, unless ticks are so rare.
const maxPause = time.Minute

// maxGap is the longest time between two ticks for which a hold-down counts, unless ticks are so rare. After a longer one nothing is known
// of the time between: the CPUs were idle if isolate had applied the fallback.
const maxGap = 10 * time.Second

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
		if interval > 0 && pause > max(maxGap, 3*interval) {
			p.NeededAt = now
		}
		p.Bursts.Age(math.Exp2(-max(pause, 0).Minutes() / burstHalfLife.Minutes()))
	}
	if p.grown = 0; len(p.Uses) > 0 {
		for _, u := range p.Uses {
			p.grown = max(p.grown, milliCPU-u.Use)
		}
		p.Bursts.Add(p.grown / max(capacity, 1))
	}
	p.Uses = append(p.Uses, use{now, milliCPU})
	p.Uses = slices.Delete(p.Uses, 0, max(len(p.Uses)-2, 0))
}

// idleCPUs is how much of the CPUs that batch may use was idle since the last tick, in milli-CPU; NaN if that is unknown. isGuarded is true
// while the guard takes CPUs from batch, which are idle for that reason.
type idleCPUs struct {
	milliCPU  float64
	isGuarded bool
}

// idleSlackMilliCPU is by how much fewer CPUs than wanted may be idle before batch leaves further ones.
const idleSlackMilliCPU = 500

// withoutBatch returns how many CPUs batch should leave, of which it now leaves some, so that as many as wanted are idle; grown is by how
// many milli-CPU the services' use grew within two ticks.
//
// Services run on all CPUs. What they use of those with batch takes nothing from the others, and how much that is, only the machine shows.
// If batch gets a CPU back at most one fewer is idle, so all surplus can be given back at once. If it leaves one services may use that
// instead of another, so a shortage may take several ticks. The least are the wanted CPUs. The most are these besides as many as services
// use, which is also the answer if nothing is known: if the idle CPUs are not, or batch has no list yet.
func (idle idleCPUs) withoutBatch(current, wanted, used int, grown float64) int {
	most := used + wanted
	if current == 0 || math.IsNaN(idle.milliCPU) {
		return most
	}
	missing := float64(wanted)*1000 - idle.milliCPU
	switch {
	case missing > idleSlackMilliCPU:
		current += ceilCPUs(max(missing, grown))
	case missing < 0 && !idle.isGuarded:
		current += int(math.Ceil(missing / 1000))
	}
	return min(max(current, wanted), most)
}

// divide decides the CPUs of batch: all that batch may use except those that it leaves.
func (p *placement) divide(a *tick.Advice, now time.Time, sh *shape, idleNow idleCPUs, s Settings) *division {
	avail := sh.Avail.Size()
	used := 0.0
	for _, u := range p.Uses {
		used = max(used, u.Use)
	}
	part, observations := p.Bursts.Quantile(s.Burst)
	burst := part * float64(avail) * 1000
	buffer := max(ceilCPUs(min(burst, float64(avail)*500)), sh.LargestCore()) // at most half of the machine
	limit := max(avail-sh.floorCPUs(), 0)
	current, _ := cpus.Parse(p.WithoutBatch)
	want := idleNow.withoutBatch(current.Intersection(sh.Avail).Size(), buffer, ceilCPUs(used), p.grown)
	desired := min(want, limit)

	split := p.NUMA.split(desired)
	d := sh.divide(p.WithoutBatch, desired, limit, split)
	if p.NeededAt.After(now) {
		p.NeededAt = now
	}
	holdText := ""
	if d.shrinks { // a state file may contain any value
		p.NeededSince = min(max(p.NeededSince, desired), d.previousSize)
	}
	switch remaining := s.BurstHold - now.Sub(p.NeededAt); {
	case !d.shrinks:
		p.NeededAt, p.NeededSince = now, 0
	case remaining > 0:
		d = sh.divide(p.WithoutBatch, d.previousSize, limit, split)
		const text = "; %d CPUs without batch are enough, batch gets the others in %.0fs"
		holdText = fmt.Sprintf(text, p.NeededSince, math.Ceil(remaining.Seconds()))
	default: // what was too much in every tick: the services' use varies, and a tick with little of it would take the buffer of the next one
		d = sh.divide(p.WithoutBatch, p.NeededSince, limit, split)
		p.NeededAt, p.NeededSince = now, 0
	}
	p.WithoutBatch, p.last = d.withoutBatch, d
	floorText := ""
	if want > limit {
		floorText = fmt.Sprintf("; batch keeps its floor of %d CPUs", avail-limit)
	}
	idleText := "unknown"
	if !math.IsNaN(idleNow.milliCPU) {
		idleText = fmt.Sprintf("%.0fm", idleNow.milliCPU)
	}
	const text = "batch runs on %d of %d CPUs, so that %d CPUs are idle for bursts of the services, which use %.0fm (idle now: %s; " +
		"%s of %.0f growths within two ticks were up to %.0fm)%s%s%s"
	a.Reasons = append(a.Reasons, fmt.Sprintf(text,
		d.size, avail, buffer, used, idleText, percent(s.Burst), observations, burst, floorText, holdText, p.NUMA.text(sh, d)))
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
