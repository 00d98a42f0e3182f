package guard

import (
	"math"
	"strings"
	"time"

	"polder/advise/class"
	"polder/advise/histogram"
	"polder/advise/policy"
	"polder/lib/tick"
)

// Resources that services wait for.
const (
	resourceCPU    = "a CPU"
	resourceMemory = "memory"
	resourceIO     = "I/O"
)

const (
	// maxServices bounds the history, and forgetAfter is how long a service must be absent to be forgotten.
	maxServices = 512
	forgetAfter = time.Hour
	// quantile is the quantile of a service's waiting while batch used little; it counts as the service's own waiting.
	quantile = 0.98
	// leastSeen is how many such observations are needed, and firstTargetPermille the target until then.
	leastSeen           = 10
	firstTargetPermille = 100
	// halfLife is the time in which an observation's weight halves; only time with little batch counts.
	halfLife = 30 * time.Minute
	// settled is how long batch must have used little before the services' waiting counts as their own: values are some seconds old.
	settled = 10 * time.Second
	// littlePart is the part of the machine up to which batch's use counts as little, and littleMilliCPU the least such bound.
	littlePart     = 0.02
	littleMilliCPU = 20
	// releasePart is the part of a service's target up to which its waiting is short enough for a step to be reverted.
	releasePart = 0.8
	// maxPermille is the end of the histogram's scale, in thousandths: a hundred threads that wait all the time.
	maxPermille = 100_000
	// levels is the number of levels of a service's use: up to leastUse milli-CPU, and each further one up to twice as much.
	levels   = 12
	leastUse = 50
)

// service is the history of one service.
type service struct {
	Seen time.Time `json:"seen"`
	// Learned is when an observation was last added.
	Learned time.Time `json:"learned,omitzero"`
	// CPU, Memory and IO are the observed waitings, on the scale of [scaled], by the level of the service's own use: a service that uses more
	// CPU waits more, for its own threads.
	CPU    []histogram.Histogram `json:"cpu,omitempty"`
	Memory []histogram.Histogram `json:"memory,omitempty"`
	IO     []histogram.Histogram `json:"io,omitempty"`
}

// levelOf returns the level of a service's use; -1 if the use is unknown.
func levelOf(milliCPU *float64) int {
	if milliCPU == nil {
		return -1
	}
	return min(max(int(math.Ceil(math.Log2(max(policy.Amount(milliCPU), 1)/leastUse))), 0), levels-1)
}

// waiting is how long a service or the node waits for a resource, and its target.
type waiting struct {
	name, resource   string
	permille, target float64
	// pod, table and level identify the histogram that the waiting belongs to.
	pod          *tick.Pod
	table, level int
	// calm is the waiting up to which a step may be reverted.
	calm float64
}

// scaled maps a waiting to a part of 1, of which the first half is used: each bin of the histogram is 12 % wider than the one before.
func scaled(permille float64) float64 { return math.Log2(1+permille) / math.Log2(1+maxPermille) / 2 }

// unscaled is the inverse of scaled.
func unscaled(part float64) float64 { return math.Exp2(2*part*math.Log2(1+maxPermille)) - 1 }

// readings returns a service's current waitings in thousandths of the time, negative if unknown. PSI of memory and of I/O is that of the
// last 10 s.
func readings(p *tick.Pod) (list [3]float64) {
	list = [3]float64{-1, some(p.MemoryPressure), some(p.IOPressure)}
	if v := p.CPUWaitPermille; v != nil && *v >= 0 {
		list[0] = min(*v, maxPermille)
	} else {
		list[0] = some(p.CPUPressure)
	}
	return list
}

// some returns the share of the last 10 s in which some task waited, in thousandths; negative if unknown.
func some(p *tick.Pressure) float64 {
	if p == nil || p.Some == nil || !(p.Some.Avg10 >= 0 && p.Some.Avg10 <= 100) {
		return -1
	}
	return p.Some.Avg10 * 10
}

// compare compares each service's waiting with its target, learns from it while batch uses little, and returns the one that is longest
// relative to its target, if it is too long for a step to be reverted.
func (st *State) compare(t *tick.Tick, v *view, s Settings, m class.Machine) (worst *waiting) {
	now := t.Time
	little := v.batchKnown && v.batchUse <= max(littlePart*float64(m.MilliCPU), littleMilliCPU) && !v.usesDisks()
	switch {
	case !little:
		st.Little = time.Time{}
	case st.Little.IsZero():
		st.Little = now
	}
	alone := little && now.Sub(st.Little) >= settled
	atFloor := !st.Exhausted.IsZero() && now.Sub(st.Exhausted) >= learnAfter
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if !isService(p) {
			continue
		}
		one := st.Services[policy.Identity(p)]
		if one != nil {
			one.Seen = now
		}
		learned := time.Time{}
		if one != nil {
			learned = one.Learned
		}
		level := levelOf(p.UsageMilliCPU)
		for j, permille := range readings(p) {
			if permille < 0 {
				continue
			}
			v.known = true
			w := one.compare(j, level, permille, s)
			w.pod = p
			if level >= 0 && (alone || atFloor && permille > w.target) {
				one = st.learn(&w, one, learned, now)
			}
			worst = longer(worst, w)
		}
	}
	st.expire(now)
	if v.known || s.TargetPermille <= 0 || st.Known.IsZero() || now.Sub(st.Known) < unknownAfter {
		return worst
	}
	return v.node(t.Sample, s)
}

// node returns the node's own PSI, for use if no service's waiting is known. It includes batch's waiting, so it is compared only with a
// configured target, never with a learned one.
func (v *view) node(sample *tick.Sample, s Settings) *waiting {
	if sample.CPU == nil {
		return nil
	}
	permille := some(sample.CPU.Pressure)
	if permille < 0 {
		return nil
	}
	v.known, v.byNode = true, true
	w := (*service)(nil).compare(0, -1, permille, s)
	w.name = "the node (of no service it is known)"
	if permille <= w.calm {
		return nil
	}
	return &w
}

// longer returns the one of two waitings that is longer relative to its target; neither if both are short enough.
func longer(worst *waiting, w waiting) *waiting {
	if w.permille <= w.calm || worst != nil && w.permille*worst.target <= worst.permille*w.target {
		return worst
	}
	w.name = strings.TrimPrefix(policy.Key(w.pod), "/")
	return &w
}

// tables returns the histograms of a resource, by its index in [readings].
func (one *service) tables(resource int) *[]histogram.Histogram {
	return [...]*[]histogram.Histogram{&one.CPU, &one.Memory, &one.IO}[resource]
}

// own returns how long a service waits without batch at a level of its use. If there are no observations at that level, other levels give a
// lower bound: from lower levels twice as long for each level. Then it is not sure.
func (one *service) own(resource, level int) (permille float64, sure bool) {
	if one == nil {
		return 0, false
	}
	for i, table := range *one.tables(resource) {
		part, seen := table.Quantile(quantile)
		switch {
		case seen < leastSeen || i >= levels:
		case i == level:
			return unscaled(part), true
		case level < 0 || i > level:
			permille = max(permille, unscaled(part))
		default:
			permille = max(permille, unscaled(part)*math.Exp2(float64(level-i)))
		}
	}
	return permille, false
}

// compare returns a service's waiting with its target. The receiver may be nil: the service has no history then.
func (one *service) compare(resource, level int, permille float64, s Settings) waiting {
	w := waiting{resource: [...]string{resourceCPU, resourceMemory, resourceIO}[resource], permille: permille, table: resource, level: level}
	switch {
	case s.TargetPermille > 0:
		w.target = s.TargetPermille
	case permille <= s.MarginPermille/2: // below every possible target: no lookup needed
		w.target, w.calm = s.MarginPermille, s.MarginPermille/2
		return w
	default:
		own, sure := one.own(resource, level)
		if sure {
			w.target, w.calm = own+s.MarginPermille, own+s.MarginPermille/2
			return w
		}
		w.target = max(own+s.MarginPermille, firstTargetPermille)
	}
	w.calm = releasePart * w.target
	return w
}

// learn adds a waiting that is the service's own. Only time in which something is learned ages older observations.
func (st *State) learn(w *waiting, one *service, before, now time.Time) *service {
	if one == nil {
		if len(st.Services) >= maxServices {
			return nil
		}
		if st.Services == nil {
			st.Services = map[string]*service{}
		}
		one = &service{Seen: now}
		st.Services[strings.Clone(policy.Identity(w.pod))] = one
	}
	list := one.tables(w.table)
	for len(*list) <= w.level {
		*list = append(*list, nil)
	}
	table := &(*list)[w.level]
	if gap := now.Sub(before); gap > 0 && !before.IsZero() {
		table.Age(math.Exp2(-min(gap, settled).Minutes() / halfLife.Minutes()))
	}
	table.Add(scaled(w.permille))
	one.Learned = now
	return one
}

// absolve adds a waiting often enough that it counts as the service's own.
func (st *State) absolve(w *waiting, now time.Time) {
	one := st.Services[policy.Identity(w.pod)]
	times := float64(leastSeen)
	if one != nil && w.level < len(*one.tables(w.table)) {
		times += math.Ceil((*one.tables(w.table))[w.level].Sum() * 2 * (1 - quantile))
	}
	for range int(min(times, 1000)) {
		if one = st.learn(w, one, time.Time{}, now); one == nil {
			return
		}
	}
}

// expire forgets services that no longer exist.
func (st *State) expire(now time.Time) {
	for id, one := range st.Services {
		switch {
		case one == nil || now.Sub(one.Seen) > forgetAfter || len(st.Services) > maxServices: // invalid entries of a state file
			delete(st.Services, id)
		case one.Seen.After(now): // the clock was set back
			one.Seen, one.Learned = now, time.Time{}
		}
	}
}

// isService reports whether a pod is a service whose waiting counts.
func isService(p *tick.Pod) bool {
	return p.QoS != tick.QoSReclaimed && p.Missing != tick.MissingCgroup && !p.Ended()
}
