package guard

import (
	"math"
	"strings"
	"time"

	"polder/advise/class"
	"polder/advise/histogram"
	"polder/advise/policy"
	"polder/lib/podwait"
	"polder/lib/tick"
)

// Resources that services wait for.
const (
	resourceCPU    = "a CPU"
	resourceMemory = "memory"
	resourceIO     = "I/O"
)

// resourceNames are the resources in the order of [waitingsOf].
var resourceNames = [...]string{resourceCPU, resourceMemory, resourceIO}

const (
	// maxServices bounds the history, and forgetAfter is how long a service must be absent to be forgotten.
	maxServices = 512
	forgetAfter = time.Hour
	// quantile is the quantile of a service's waiting while batch used little; it counts as the service's own waiting.
	quantile = 0.98
	// minObservations is how many such observations are needed, and firstTargetPermille the target until then.
	minObservations     = 10
	firstTargetPermille = 100
	// halfLife is the time in which an observation's weight halves; only time with little batch counts.
	halfLife = 30 * time.Minute
	// settleTime is how long batch must have used little before the services' waiting counts as their own: values are some seconds old.
	settleTime = 10 * time.Second
	// lowUsePart is the part of the machine up to which batch's use counts as little, and lowUseMilliCPU the least such bound.
	lowUsePart     = 0.02
	lowUseMilliCPU = 20
	// revertPart is the part of a service's target up to which its waiting is short enough for a step to be reverted.
	revertPart = 0.8
	// maxPermille is the end of the histogram's scale, in thousandths: a hundred threads that wait all the time.
	maxPermille = 100_000
	// levels is the number of levels of a service's use: up to minLevelUse milli-CPU, and each further one up to twice as much.
	levels      = 12
	minLevelUse = 50
)

// service is the history of one service.
type service struct {
	SeenAt time.Time `json:"seen"`
	// LearnedAt is when an observation was last added.
	LearnedAt time.Time `json:"learned,omitzero"`
	// CPU, Memory and IO are the observed waitings, on the scale of [toScale], by the level of the service's own use: a service that uses more
	// CPU waits more, for its own threads.
	CPU    []histogram.Histogram `json:"cpu,omitempty"`
	Memory []histogram.Histogram `json:"memory,omitempty"`
	IO     []histogram.Histogram `json:"io,omitempty"`
	// Beside are the mean waitings beside batch that no step limits, by resource in the order of [waitingsOf], and by level.
	Beside [3][]mean `json:"beside,omitzero"`
}

// levelOf returns the level of a service's use; -1 if the use is unknown.
func levelOf(milliCPU *float64) int {
	if milliCPU == nil {
		return -1
	}
	return min(max(int(math.Ceil(math.Log2(max(policy.Amount(milliCPU), 1)/minLevelUse))), 0), levels-1)
}

// waiting is how long a service or the node waits for a resource, and its target.
type waiting struct {
	name, resource   string
	permille, target float64
	// pod, resourceIndex and level identify the histogram that the waiting belongs to.
	pod                  *tick.Pod
	resourceIndex, level int
	// revertBelow is the waiting up to which a step may be reverted.
	revertBelow float64
}

// toScale maps a waiting to a part of 1, of which the first half is used: each bin of the histogram is 12 % wider than the one before.
func toScale(permille float64) float64 { return math.Log2(1+permille) / math.Log2(1+maxPermille) / 2 }

// fromScale is the inverse of toScale.
func fromScale(part float64) float64 { return math.Exp2(2*part*math.Log2(1+maxPermille)) - 1 }

// waitingsOf returns a service's current waitings in thousandths of the time, negative if unknown. PSI of memory and of I/O is that of the
// last 10 s.
func waitingsOf(p *tick.Pod) (list [3]float64) {
	for i, of := range []func(*tick.Pod) (float64, bool){podwait.CPU, podwait.Memory, podwait.IO} {
		permille, known := of(p)
		if list[i] = min(permille, maxPermille); !known {
			list[i] = -1
		}
	}
	return list
}

// compare compares each service's waiting with its target, learns from it while batch uses little, and returns the one that is longest
// relative to its target, if it is too long for a step to be reverted.
func (st *State) compare(t *tick.Tick, a *tick.Advice, v *view, s Settings, m class.Machine) (worst *waiting) {
	now := t.Time
	v.usesMuch = v.batchUse > max(lowUsePart*float64(m.MilliCPU), lowUseMilliCPU) || v.usesDisks()
	isLowUse := v.batchKnown && !v.usesMuch
	switch {
	case !isLowUse:
		st.LowUseSince = time.Time{}
	case st.LowUseSince.IsZero():
		st.LowUseSince = now
	}
	isAlone := isLowUse && now.Sub(st.LowUseSince) >= settleTime
	isAtFloor := !st.ExhaustedSince.IsZero() && now.Sub(st.ExhaustedSince) >= learnAfter
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if !isService(p) {
			continue
		}
		history := st.Services[policy.Identity(p)]
		learnedAt := time.Time{}
		if history != nil {
			history.SeenAt, learnedAt = now, history.LearnedAt
		}
		level := levelOf(p.UsageMilliCPU)
		for j, permille := range waitingsOf(p) {
			if permille < 0 {
				v.isCauseUnknown = v.isCauseUnknown || st.isCause(p, resourceNames[j])
				v.hasOwnLimits = v.hasOwnLimits || resourceNames[j] == resourceCPU && p.CPUWaitPermille != nil
				continue
			}
			v.isKnown = true
			w := history.compare(j, level, permille, s)
			w.pod = p
			if resourceNames[j] == resourceCPU && permille > w.revertBelow && v.isApart(p, a) {
				continue
			}
			if level >= 0 && (isAlone || isAtFloor && permille > w.target) {
				history = st.learn(&w, history, learnedAt, now)
			}
			if level >= 0 && st.isOnlyCause(&w) { // without a level, the verdict could not be learned
				cause := w
				v.cause = &cause
			}
			if level >= 0 && v.batchKnown && !isLowUse && !v.hasDeleted {
				history = st.observe(&w, history, now)
			}
			worst = worse(worst, w)
		}
	}
	st.expire(now)
	if v.isKnown || v.hasOwnLimits || s.TargetPermille <= 0 || st.KnownAt.IsZero() || now.Sub(st.KnownAt) < unknownAfter {
		return worst
	}
	return v.nodeWaiting(t.Sample, s)
}

// isCause reports whether a service's waiting for a resource caused the last step.
func (st *State) isCause(p *tick.Pod, resource string) bool {
	if len(st.Steps) == 0 {
		return false
	}
	last := &st.Steps[len(st.Steps)-1]
	return last.Resource == resource && last.Service == nameOf(p)
}

// nodeWaiting returns the node's own PSI, for use if no service's waiting is known. It includes batch's waiting, so it is compared only
// with a configured target, never with a learned one.
func (v *view) nodeWaiting(sample *tick.Sample, s Settings) *waiting {
	if sample.CPU == nil {
		return nil
	}
	percent, known := podwait.SomePercent(sample.CPU.Pressure)
	if !known {
		return nil
	}
	permille := 10 * percent
	v.isKnown, v.isNodeOnly = true, true
	w := (*service)(nil).compare(0, -1, permille, s)
	w.name = "the node (no service's waiting is known)"
	if permille <= w.revertBelow {
		return nil
	}
	return &w
}

// nameOf is a service's name in reasons and steps.
func nameOf(p *tick.Pod) string { return strings.TrimPrefix(policy.Key(p), "/") }

// worse returns the one of two waitings that is longer relative to its target; neither if both are short enough.
func worse(worst *waiting, w waiting) *waiting {
	if w.permille <= w.revertBelow || worst != nil && w.permille*worst.target <= worst.permille*w.target {
		return worst
	}
	w.name = nameOf(w.pod)
	return &w
}

// byLevel returns the histograms of a resource, by its index in [waitingsOf].
func (history *service) byLevel(resource int) *[]histogram.Histogram {
	return [...]*[]histogram.Histogram{&history.CPU, &history.Memory, &history.IO}[resource]
}

// ownWaiting returns how long a service waits without batch at a level of its use. If there are no observations at that level, other levels
// give a lower bound: from lower levels twice as long for each level. Then isMeasured is false.
func (history *service) ownWaiting(resource, level int) (permille float64, isMeasured bool) {
	if history == nil {
		return 0, false
	}
	for i, counts := range *history.byLevel(resource) {
		part, observations := counts.Quantile(quantile)
		switch {
		case observations < minObservations || i >= levels:
		case i == level:
			return fromScale(part), true
		case level < 0 || i > level:
			permille = max(permille, fromScale(part))
		default:
			permille = max(permille, fromScale(part)*math.Exp2(float64(level-i)))
		}
	}
	return permille, false
}

// compare returns a service's waiting with its target. The receiver may be nil: the service has no history then.
func (history *service) compare(resource, level int, permille float64, s Settings) waiting {
	w := waiting{resource: resourceNames[resource], permille: permille, resourceIndex: resource, level: level}
	switch {
	case s.TargetPermille > 0:
		w.target = s.TargetPermille
	case permille <= s.MarginPermille/2: // below every possible target: no lookup needed
		w.target, w.revertBelow = s.MarginPermille, s.MarginPermille/2
		return w
	default:
		own, isMeasured := history.ownWaiting(resource, level)
		if isMeasured {
			w.target, w.revertBelow = own+s.MarginPermille, own+s.MarginPermille/2
			return w
		}
		w.target = max(own+s.MarginPermille, firstTargetPermille)
	}
	w.revertBelow = revertPart * w.target
	return w
}

// learn adds a waiting that is the service's own. Only time in which something is learned ages older observations.
func (st *State) learn(w *waiting, history *service, previous, now time.Time) *service {
	if history = st.historyOf(w.pod, history, now); history == nil {
		return nil
	}
	levels := history.byLevel(w.resourceIndex)
	for len(*levels) <= w.level {
		*levels = append(*levels, nil)
	}
	counts := &(*levels)[w.level]
	if gap := now.Sub(previous); gap > 0 && !previous.IsZero() {
		counts.Age(math.Exp2(-min(gap, settleTime).Minutes() / halfLife.Minutes()))
	}
	counts.Add(toScale(w.permille))
	history.LearnedAt = now
	return history
}

// historyOf returns a service's history, which it creates if there is none yet; nil if there are too many.
func (st *State) historyOf(p *tick.Pod, history *service, now time.Time) *service {
	if history != nil || len(st.Services) >= maxServices {
		return history
	}
	if st.Services == nil {
		st.Services = map[string]*service{}
	}
	history = &service{SeenAt: now}
	st.Services[strings.Clone(policy.Identity(p))] = history
	return history
}

// learnAsOwn adds a waiting often enough that it counts as the service's own.
func (st *State) learnAsOwn(w *waiting, now time.Time) {
	history := st.Services[policy.Identity(w.pod)]
	times := float64(minObservations)
	if history != nil && w.level < len(*history.byLevel(w.resourceIndex)) {
		times += math.Ceil((*history.byLevel(w.resourceIndex))[w.level].Sum() * 2 * (1 - quantile))
	}
	for range int(min(times, 1000)) {
		if history = st.learn(w, history, time.Time{}, now); history == nil {
			return
		}
	}
}

// expire forgets services that no longer exist.
func (st *State) expire(now time.Time) {
	for id, history := range st.Services {
		switch {
		case history == nil || now.Sub(history.SeenAt) > forgetAfter || len(st.Services) > maxServices: // invalid entries of a state file
			delete(st.Services, id)
		case history.SeenAt.After(now): // the clock was set back
			history.SeenAt, history.LearnedAt = now, time.Time{}
		}
	}
}

// isService reports whether a pod is a service whose waiting counts.
func isService(p *tick.Pod) bool {
	return p.QoS != tick.QoSReclaimed && p.Missing != tick.MissingCgroup && !p.Ended()
}
