// Package explain answers "why?" from a recording, in sentences: what a pod was allowed to use, what limited it, which service was
// the cause, which pods were throttled and evicted, and what would have to be different. It is pure, and keeps a few ticks of a
// recording, however long that is.
package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"polder/lib/clip"
	"polder/lib/tick"
	"polder/report/amounts"
	"polder/report/view"
)

// Question is a question about a recording.
type Question struct {
	// Pod is namespace/name, or the name alone; empty asks about the node.
	Pod string
	// Node is the node of the question; empty is all nodes of the recording.
	Node string
	// At asks about one time; From and Until, either of which may be nil, about a period. Without any the question is about the whole
	// recording.
	At, From, Until *Moment
	// Inserted names the sections that the recording lacks and that were decided for this answer.
	Inserted []string
}

const (
	keptNodes = 64
	// keptNames bounds the maps by a pod's name or UID: peaks, throttling, the names that an error suggests.
	keptNames = 4096
	// afterwards is how long after the time of the question the pod's eviction still belongs to the answer.
	afterwards = 10 * time.Minute
	keptTaints = 32
	// keptGaps bounds the times without an offer that are listed.
	keptGaps = 5
)

// Recording takes ticks one after the other and answers at the end.
type Recording struct {
	q               Question
	namespace, name string
	nodes           []*node
	otherNodes      bool     // more than are kept
	otherNames      []string // some nodes that the question is not about
	first           time.Time
	from, until     time.Time // zero where the recording's ends bound it
	names           map[string]bool
}

// New returns a Recording without ticks.
func New(q Question) *Recording {
	r := &Recording{q: q, names: map[string]bool{}}
	if namespace, name, found := strings.Cut(q.Pod, "/"); found {
		r.namespace, r.name = namespace, name
	} else {
		r.name = q.Pod
	}
	return r
}

// node is what is remembered of one node.
type node struct {
	name        string
	first, last time.Time
	ticks       int // in total
	outOfOrder  int // left out: older than the one before
	next        time.Time

	asked   int        // ticks in the period
	begin   time.Time  // of the first of them
	current *tick.Tick // the last of them
	pod     *tick.Pod  // in it
	podTick *tick.Tick // the last of them that has the pod
	lastPod *tick.Pod  // in that

	podTicks         int
	podFirst, podEnd time.Time
	namespaces       []string // of the pods with the question's name
	podKey           string

	offer, memory, allowed, use, throttling figures
	peaks                                   map[string]peak // services' needs
	throttledPods                           map[string]peak
	throttlingKnown                         bool
	gaps                                    []gap
	moreGaps                                int
	inGap                                   bool
	cold                                    taken
	squeezes                                squeezes
	pooled                                  bool // the squeezes are of the pool, not of the offer
	evictions                               evictions
	taints                                  map[string]int
}

// figures are the least, the largest and the average of an amount.
type figures struct {
	low, high, sum    float64
	lowAt, highAt     time.Time
	number            int
	beginning, ending float64
}

func (f *figures) add(at time.Time, v *float64) {
	if v == nil {
		return
	}
	if f.number == 0 {
		f.beginning = *v
	}
	if f.number == 0 || *v < f.low {
		f.low, f.lowAt = *v, at
	}
	if f.number == 0 || *v > f.high {
		f.high, f.highAt = *v, at
	}
	f.sum += *v
	f.ending = *v
	f.number++
}

func (f *figures) average() float64 { return f.sum / float64(max(f.number, 1)) }

// peak is a largest value with its time.
type peak struct {
	name  string
	value float64
	at    time.Time
	text  string
}

// gap is a time without an offer.
type gap struct {
	from, to time.Time
	why      string
}

// Add adds the next tick.
func (r *Recording) Add(t *tick.Tick) {
	if r.q.Node != "" && t.Node != r.q.Node {
		if len(r.otherNames) < 5 && !slices.Contains(r.otherNames, t.Node) {
			r.otherNames = append(r.otherNames, t.Node)
		}
		return
	}
	if len(r.nodes) == 0 {
		r.first = t.Time
		r.resolve()
	}
	i := slices.IndexFunc(r.nodes, func(n *node) bool { return n.name == t.Node })
	if i < 0 {
		if len(r.nodes) == keptNodes {
			r.otherNodes = true
			return
		}
		i = len(r.nodes)
		r.nodes = append(r.nodes, &node{
			name: t.Node, first: t.Time, peaks: map[string]peak{}, throttledPods: map[string]peak{}, taints: map[string]int{},
			squeezes: squeezes{keep: keptSqueezes},
		})
	}
	r.nodes[i].add(r, t)
}

// resolve converts the question's moments to times, by the recording's first tick.
func (r *Recording) resolve() {
	switch {
	case r.q.At != nil:
		r.until = r.q.At.end(r.q.At.after(r.first))
	case r.q.From != nil && r.q.Until != nil:
		from, until := period(r.q.From, r.q.Until, r.first)
		r.from, r.until = from, r.q.Until.end(until)
	case r.q.From != nil:
		r.from = r.q.From.From(r.first)
	case r.q.Until != nil:
		r.until = r.q.Until.end(r.q.Until.after(r.first))
	}
}

func (n *node) add(r *Recording, t *tick.Tick) {
	if t.Time.Before(n.last) {
		n.outOfOrder++
		return
	}
	n.ticks++
	n.last = t.Time
	p := r.find(n, t)
	if p != nil {
		if n.podTicks == 0 {
			n.podFirst = t.Time
		}
		n.podTicks++
		n.podEnd = t.Time
	}
	late := !r.until.IsZero() && t.Time.After(r.until)
	// If the recording begins within the minute of the question, the question is about its first tick.
	if late && r.q.At != nil && n.current == nil && t.Time.Sub(r.until) < r.q.At.precision {
		late = false
	}
	switch {
	case late:
		if n.next.IsZero() {
			n.next = t.Time
		}
		if r.q.At != nil && r.name != "" && t.Time.Sub(r.until) <= afterwards {
			n.evictions.add(t, func(x *tick.PodEviction) bool { return r.isPod(x.Namespace, x.Name) })
		}
		return
	case t.Time.Before(r.from):
		return
	}
	n.take(r, t, p)
}

// take notes a tick of the question's period.
func (n *node) take(r *Recording, t *tick.Tick, p *tick.Pod) {
	if n.asked == 0 {
		n.begin = t.Time
	}
	n.asked++
	n.current, n.pod = t, p
	if p != nil {
		n.podTick, n.lastPod = t, p
	}
	n.evictions.add(t, func(x *tick.PodEviction) bool { return r.name == "" || r.isPod(x.Namespace, x.Name) })
	if t.Eviction != nil {
		for _, x := range t.Eviction.Taints {
			if key := short(x.Key + ":" + x.Effect); n.taints[key] > 0 || len(n.taints) < keptTaints {
				n.taints[key]++
			}
		}
	}
	n.cold.add(t, func(cgroup string) bool { return r.name == "" || p != nil && cgroup == p.Cgroup })
	offer, offeredMemory := offerOf(t)
	n.offer.add(t.Time, offer)
	n.memory.add(t.Time, offeredMemory)
	n.noteGap(t, offer)
	amount := offer
	if size, found := reclaimPool(t); found {
		amount, n.pooled = &size, true
	}
	if p != nil {
		a := allowanceOf(t, p)
		amount = offer
		if most, bounded := a.milliCPU(); bounded {
			n.allowed.add(t.Time, &most)
			amount = &most
		}
		n.use.add(t.Time, p.UsageMilliCPU)
		n.throttling.add(t.Time, amounts.Throttled(p))
	}
	if amount != nil {
		n.squeezes.add(t, *amount)
	}
	if r.q.At == nil {
		n.notePeaks(r, t)
	}
}

func (n *node) notePeaks(r *Recording, t *tick.Tick) {
	all := needs(t)
	for _, x := range all[:min(len(all), 10)] {
		if old, there := n.peaks[x.name]; there && old.value >= x.milliCPU || !there && len(n.peaks) >= keptNames {
			continue
		}
		n.peaks[x.name] = peak{name: x.name, value: x.milliCPU, at: t.Time, text: x.name + " with " + x.amount()}
	}
	if r.name != "" || t.Sample == nil {
		return
	}
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		v := amounts.Throttled(p)
		n.throttlingKnown = n.throttlingKnown || v != nil
		if v == nil || *v < 1 {
			continue
		}
		if old, there := n.throttledPods[p.UID]; there && old.value >= *v || !there && len(n.throttledPods) >= keptNames {
			continue
		}
		n.throttledPods[p.UID] = peak{name: nameOf(p.Namespace, p.Name), value: *v, at: t.Time}
	}
}

// noteGap notes the times without an offer, and their reasons.
func (n *node) noteGap(t *tick.Tick, offer *float64) {
	if t.Advice == nil || offer != nil && *offer > 0 {
		n.inGap = false
		return
	}
	if n.inGap && len(n.gaps) > 0 && n.moreGaps == 0 {
		n.gaps[len(n.gaps)-1].to = t.Time
		return
	}
	if !n.inGap {
		if len(n.gaps) < keptGaps {
			n.gaps = append(n.gaps, gap{from: t.Time, to: t.Time, why: short(whyNothing(t))})
		} else {
			n.moreGaps++
		}
	}
	n.inGap = true
}

// offerOf is the offer to reclaimed pods, nil where the advice has none.
func offerOf(t *tick.Tick) (milliCPU, memoryBytes *float64) {
	if t.Advice == nil || t.Advice.Reclaimed == nil {
		return nil, nil
	}
	return tick.Float(t.Advice.Reclaimed.MilliCPU), tick.Float(t.Advice.Reclaimed.MemoryBytes)
}

// reclaimPool is the size of the reclaimed pods' pool in milli-CPU.
func reclaimPool(t *tick.Tick) (milliCPU float64, found bool) {
	if t.Advice == nil {
		return 0, false
	}
	n, found := amounts.PoolCPUs(t.Advice, tick.PoolReclaim)
	return float64(n) * 1000, found
}

func (r *Recording) isPod(namespace, name string) bool {
	return name == r.name && (r.namespace == "" || namespace == r.namespace)
}

// find is the pod of the question, nil where the tick does not have it. It also notes the names that an error would suggest.
func (r *Recording) find(n *node, t *tick.Tick) *tick.Pod {
	if r.name == "" || t.Sample == nil {
		return nil
	}
	var found *tick.Pod
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if r.isPod(p.Namespace, p.Name) {
			found = p
			if !slices.Contains(n.namespaces, p.Namespace) && len(n.namespaces) < 5 {
				n.namespaces = append(n.namespaces, p.Namespace)
			}
			n.podKey = nameOf(p.Namespace, p.Name)
		}
		if len(r.names) < keptNames && n.podTicks == 0 {
			r.names[nameOf(p.Namespace, p.Name)] = true
		}
	}
	return found
}

// Answer returns the text. Its error names what is wrong with the question or the recording, and what to do.
func (r *Recording) Answer() (string, error) {
	if len(r.nodes) == 0 && len(r.otherNames) > 0 {
		return "", fmt.Errorf("--node %s: the recording has no tick of it; it has %s", clip.Clean(r.q.Node), clip.Clean(list(r.otherNames)))
	}
	if len(r.nodes) == 0 {
		return "", fmt.Errorf("no tick in the input: give a recording, as in: report --to explain < day.jsonl")
	}
	if r.otherNodes {
		return "", fmt.Errorf("the recording has more than %d nodes: choose one with --node", keptNodes)
	}
	nodes := r.nodes
	if r.name != "" {
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return n.podTicks == 0 })
		if len(nodes) == 0 {
			return "", r.unknownPod()
		}
	}
	var texts []string
	var failed error
	for _, n := range nodes {
		text, err := r.answer(n)
		if err != nil {
			failed = err
			continue
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return "", failed
	}
	return strings.Join(texts, "\n"), nil
}

func (r *Recording) answer(n *node) (string, error) {
	n.squeezes.end()
	switch {
	case len(n.namespaces) > 1:
		var full []string
		for _, namespace := range n.namespaces {
			full = append(full, view.Name(namespace, r.name))
		}
		return "", fmt.Errorf("--pod %s: there are %s on %s: give the namespace too", clip.Clean(r.q.Pod), list(full), clip.Clean(n.name))
	case n.current == nil || r.isPastEnd(n):
		return "", r.outside(n)
	case r.name != "" && (n.lastPod == nil || r.q.At != nil && n.pod == nil):
		return "", r.podAway(n)
	}
	var paragraphs []string
	add := func(p string) {
		if p != "" {
			paragraphs = append(paragraphs, p)
		}
	}
	add(paragraph("", r.title(n)))
	add(paragraph("", r.caveats(n)...))
	switch {
	case r.name != "" && r.q.At != nil:
		r.podAt(n, add)
	case r.name != "":
		r.podOver(n, add)
	case r.q.At != nil:
		r.nodeAt(n, add)
	default:
		r.nodeOver(n, add)
	}
	return strings.Join(paragraphs, "\n"), nil
}
