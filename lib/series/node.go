package series

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"polder/lib/cpus"
	"polder/lib/reason"
	"polder/lib/tick"
)

// Node contains the counters over the ticks of one node.
type Node struct {
	tool           string
	ticks          float64
	fallbacks      float64
	errors         counts // by tool
	sources        counts
	writes         counts            // by key
	reclaimedBytes float64           // bytes of reclaimed memory
	reclaims       counts            // by state
	written        counts            // by target
	evictions      counts            // by rule and state
	states         map[string]string // the last state of each eviction, by UID and rule
	worth          Worth
	shadow         counts // by how much the shadow's offer differs, by direction and policy
	advices        clock  // of the ticks with an advice
}

// NewNode returns a node without a tick yet, for a tool's metrics.
func NewNode(tool string) *Node { return &Node{tool: tool} }

// OfFleet is the suffix of the label tool for a fleet controller's tools, because the nodes of its ticks have tools of the same name.
const OfFleet = "-fleet"

// label returns the label's value for a tool of the pipe that t passed through.
func (n *Node) label(tool string, t *tick.Tick) string {
	ofFleet := strings.HasSuffix(n.tool, OfFleet) || t.Sample != nil && t.Sample.Fleet != nil || t.Eviction != nil && t.Eviction.Fleet != nil
	if !strings.HasSuffix(tool, OfFleet) && ofFleet {
		tool += OfFleet
	}
	return tool
}

// Worth returns batch's use over the ticks so far.
func (n *Node) Worth() *Worth { return &n.worth }

// Add counts a tick, by the sections that it contains.
func (n *Node) Add(t *tick.Tick) {
	n.ticks++
	if t.Sample != nil {
		n.errors.add(n.label("collect", t), float64(len(t.Sample.Errors)))
		for _, e := range t.Sample.Errors {
			n.sources.add(e.Source, 1)
		}
		if t.Sample.Fleet == nil { // otherwise the node's own tools count it
			n.worth.add(t)
		}
	}
	if t.Advice != nil {
		seconds := n.sinceAdvice(t.Time)
		n.addShadow(t.Advice, seconds)
		n.worth.addSqueeze(t, seconds)
	}
	if i := t.Isolation; i != nil {
		n.errors.add(n.label("isolate", t), float64(len(i.Errors)))
		if i.Fallback {
			n.fallbacks++
		}
		for _, r := range i.Reclaims {
			n.reclaimedBytes += float64(max(r.ReclaimedBytes, 0))
			n.reclaims.add(r.State, 1)
		}
		if !i.DryRun {
			for _, w := range i.Writes {
				n.writes.add(w.Key, 1)
			}
		}
	}
	if i := t.Network; i != nil {
		n.errors.add(n.label("isolate", t), float64(len(i.Errors)))
	}
	if e := t.Eviction; e != nil {
		n.errors.add(n.label("evict", t), float64(len(e.Errors)))
		for _, x := range e.Pressures {
			for _, state := range evictionStates {
				n.evictions.begin(x.Rule + "\x00" + state)
			}
		}
		if e.Refused == "" { // otherwise the states are as they were at the previous tick
			n.addEvictions(t)
		}
	}
	if r := t.Report; r != nil {
		for _, x := range r.Targets {
			failed, written := 0.0, 0.0
			switch x.State {
			case tick.TargetFailed:
				failed = 1
			case tick.TargetWritten:
				written = 1
			}
			n.errors.add(n.label("report", t), failed)
			n.written.add(x.Target, written)
		}
	}
}

// maxAdviceSpan is the longest time between two advices that counts: for a longer one what held in between is unknown.
const maxAdviceSpan = 5 * time.Minute

// sinceAdvice returns the time in seconds since the previous advice, 0 if there was none or if the time is unknown.
func (n *Node) sinceAdvice(now time.Time) float64 {
	span, isFirst := n.advices.since(now)
	if isFirst || span <= 0 || span > maxAdviceSpan {
		return 0
	}
	return span.Seconds()
}

// evictionStates are the states that an eviction can reach. The counter of each exists, at 0, from a rule's first finding on,
// because Prometheus' increase() sees no increase in a series that begins with its first event.
var evictionStates = []string{tick.StateWouldEvict, tick.StateRequested, tick.StateCreated, tick.StateSucceeded, tick.StateFailed}

// accepted are the states of an eviction that nothing refused.
func accepted(state string) bool { return state == tick.StateCreated || state == tick.StateSucceeded }

// addEvictions counts the states that evictions have reached. What lasts in the first section has begun before this process, and the one
// before has counted it: Prometheus would add it once more, because a counter that begins again counts from 0.
func (n *Node) addEvictions(t *tick.Tick) {
	isFirst, states := n.states == nil, map[string]string{}
	for i := range t.Eviction.Evictions {
		x := &t.Eviction.Evictions[i]
		key, counter := x.UID+" "+x.Rule, x.Rule+"\x00"+x.State
		last, isSeen := states[key] // one tick may have the end of an eviction and the next one of the same pod
		if !isSeen {
			last = n.states[key]
		}
		switch {
		case last == x.State: // a state lasts for many ticks, and counts once
		case isFirst && !isSeen && lasts(x):
			n.evictions.begin(counter)
		default:
			n.evictions.add(counter, 1)
			if accepted(x.State) && !accepted(last) {
				n.worth.Evicted++
			}
		}
		states[key] = x.State
	}
	n.states = states
}

// lasts reports whether an eviction's state may be that of an earlier tick. The end is reported once, except a frozen pod's.
func lasts(x *tick.PodEviction) bool {
	if x.State == tick.StateSucceeded {
		return strings.HasSuffix(x.Message, reason.Frozen)
	}
	return x.State != tick.StateFailed
}

// Samples returns the node's series: t's values, and the counters. No two of them have the same labels.
func (n *Node) Samples(t *tick.Tick) []Sample {
	p := &page{node: t.Node}
	p.addNumber(tickTimestamp, float64(t.Time.UnixMilli())/1000, n.label(n.tool, t))
	p.addNumber(ticks, n.ticks, n.label(n.tool, t))
	if t.Sample != nil {
		p.sample(t.Sample)
		n.sources.each(func(source string, v float64) { p.addNumber(sourceErrors, v, source) })
		p.addNumber(droppedTicks, float64(t.Sample.DroppedTicks), n.label("collect", t))
	}
	p.addWorth(&n.worth)
	if t.Advice != nil {
		p.advice(t.Advice)
		n.worth.squeezed.each(func(cause string, v float64) { p.addNumber(batchSqueezed, v, cause) })
		n.shadow.each(func(key string, v float64) {
			direction, policy, whole := strings.Cut(key, "\x00")
			if !whole {
				policy = other
			}
			p.addNumber(shadowDifference, v, policy, direction)
		})
	}
	if i := t.Network; i != nil {
		distinct(i.Classes, func(x tick.NetworkCount) string { return x.Link + "\x00" + x.Class }, func(x tick.NetworkCount) {
			p.addNumber(networkSent, x.SentBytes, x.Link, x.Class)
			p.addNumber(networkDropped, x.DroppedPackets, x.Link, x.Class)
			p.addNumber(networkBacklog, x.BacklogBytes, x.Link, x.Class)
		})
		p.addNumber(droppedTicks, float64(i.DroppedTicks), n.label("isolate-network", t)) // an instance of its own
	}
	if i := t.Isolation; i != nil {
		n.writes.each(func(key string, v float64) { p.addNumber(isolationWrites, v, key) })
		if i.Refused == "" { // otherwise nothing was compared with the advice
			p.addNumber(isolationUnchanged, float64(i.Unchanged))
			p.addNumber(isolationMissing, float64(i.Missing))
		}
		p.addNumber(isolationFallbacks, n.fallbacks)
		p.addNumber(memoryReclaimed, n.reclaimedBytes)
		n.reclaims.each(func(state string, v float64) { p.addNumber(reclaims, v, state) })
		p.addNumber(droppedTicks, float64(i.DroppedTicks), n.label("isolate", t))
	}
	if t.Eviction != nil {
		p.eviction(t.Eviction)
		n.evictions.each(func(key string, v float64) {
			rule, state, whole := strings.Cut(key, "\x00")
			if !whole {
				state = other
			}
			p.addNumber(evictions, v, rule, state)
		})
		p.addNumber(droppedTicks, float64(t.Eviction.DroppedTicks), n.label("evict", t))
	}
	if t.Report != nil {
		p.report(t.Report)
		n.written.each(func(target string, v float64) { p.addNumber(targetWrites, v, target) })
	}
	n.errors.each(func(tool string, v float64) { p.addNumber(errorsTotal, v, tool) })
	return p.samples
}

// each visits the counts, sorted by label.
func (c counts) each(visit func(string, float64)) {
	for _, key := range slices.Sorted(maps.Keys(c)) {
		visit(key, c[key])
	}
}

// distinct visits the elements in order; of those with the same key only the first.
func distinct[E any, K cmp.Ordered](list []E, key func(E) K, visit func(E)) {
	seen := map[K]bool{}
	for _, e := range list {
		if k := key(e); !seen[k] {
			seen[k] = true
			visit(e)
		}
	}
}

func (p *page) advice(a *tick.Advice) {
	if r := a.Reclaimed; r != nil {
		p.add(reclaimedCPU, inCores(tick.Float(r.MilliCPU)))
		p.add(reclaimedMemory, tick.Float(r.MemoryBytes))
		distinct(r.NUMANodes, func(x tick.ReclaimedNUMA) int { return x.ID }, func(x tick.ReclaimedNUMA) {
			p.add(reclaimedNUMACPU, inCores(tick.Float(x.MilliCPU)), strconv.Itoa(x.ID))
			p.add(reclaimedNUMAMem, tick.Float(x.MemoryBytes), strconv.Itoa(x.ID))
		})
	}
	if x := a.Shadow; x != nil && x.Reclaimed != nil {
		p.add(shadowCPU, inCores(tick.Float(x.Reclaimed.MilliCPU)), x.Policy)
		p.add(shadowMemory, tick.Float(x.Reclaimed.MemoryBytes), x.Policy)
	}
	pools := slices.SortedStableFunc(slices.Values(a.Pools), func(a, b tick.Pool) int { return cmp.Compare(a.Name, b.Name) })
	distinct(pools, func(x tick.Pool) string { return x.Name }, func(x tick.Pool) {
		if set, err := cpus.Parse(x.CPUs); err == nil {
			p.addNumber(poolCPUs, float64(set.Size()), x.Name)
		}
	})
	if a.BatchStarved != nil {
		p.addBool(batchStarved, *a.BatchStarved)
	}
	p.addNumber(adviceReasons, float64(len(a.Reasons)))
}

func (p *page) addWorth(w *Worth) {
	if w.Seconds == 0 {
		return
	}
	p.addNumber(batchTime, w.Batch)
	p.addNumber(batchBeyondRequests, w.BeyondRequests)
	p.addNumber(batchThrottled, w.Throttled)
	p.addNumber(freeTime, w.Free)
	if w.Services > 0 {
		p.addNumber(servicesTime, w.Services)
		p.addNumber(servicesWaited, w.Waited)
	}
	for _, key := range slices.Sorted(maps.Keys(w.pods)) {
		namespace, pod, _ := strings.Cut(key, "\x00")
		p.addNumber(batchPodTime, w.pods[key], namespace, pod, cmp.Or(w.counted[key].class, other))
	}
}

func (p *page) eviction(e *tick.Eviction) {
	level := func(x tick.PressureFinding) string {
		if x.Hard {
			return "hard"
		}
		return "soft"
	}
	distinct(e.Pressures, func(x tick.PressureFinding) string {
		return x.Rule + "\x00" + x.Scope + "\x00" + x.Part + "\x00" + level(x)
	}, func(x tick.PressureFinding) {
		p.addNumber(pressureValue, x.Value, x.Rule, x.Scope, x.Part, level(x))
		p.addNumber(pressureThreshold, x.Threshold, x.Rule, x.Scope, x.Part, level(x))
		p.addBool(pressureMet, x.Met, x.Rule, x.Scope, x.Part, level(x))
	})
	distinct(e.Pressures, func(x tick.PressureFinding) string { return x.Rule }, func(x tick.PressureFinding) {
		p.addBool(ruleDryRun, e.DryRun || x.DryRun, x.Rule)
	})
	distinct(e.Taints, func(x tick.Taint) string { return x.Key + "\x00" + x.Effect }, func(x tick.Taint) {
		p.addNumber(taint, 1, x.Key, x.Effect)
	})
	if e.Refused == "" { // otherwise it is unknown how many wait
		p.addNumber(evictionQueue, float64(e.Queued))
	}
	if f := e.Fleet; f != nil {
		p.addBool(fleetProtection, f.Protection != "")
		p.addBool(fleetHeld, f.Held)
		p.addNumber(fleetWaiting, float64(f.Waiting))
	}
}

// targetStates are the states of report's targets.
var targetStates = []string{tick.TargetWritten, tick.TargetUnchanged, tick.TargetPending, tick.TargetFailed}

func (p *page) report(r *tick.Report) {
	distinct(r.Targets, func(x tick.Target) string { return x.Target }, func(x tick.Target) {
		for _, state := range targetStates {
			p.addBool(targetState, state == x.State, x.Target, state)
		}
	})
}
