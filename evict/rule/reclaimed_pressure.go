package rule

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/evictconfig"
	"polder/lib/phrase"
	"polder/lib/reason"
	"polder/lib/tick"
)

// reclaimedPressure is "Resource Overcommit" of Katalyst's guide.
var reclaimedPressure = &Rule{
	Name: "reclaimed-resource-pressure-eviction-plugin",
	Doc: `reclaimed pods request far more than the offer
The condition is met, and hard, if the sum of the active reclaimed pods' requests (milli-CPU, or bytes) is over reclaimed-threshold
times the offer for reclaimed-tolerance. CPU and memory can have a threshold each, and a lower soft one, for which one pod at a time is
evicted when no hard finding needs a victim. Pods that opt out of eviction, and those of critical priority, do not count: no other pod
is evicted for what they request. An offer of 0 counts as withdrawn, unless reclaimed-zero-offer-enabled is on: nothing is measured
against it, because withdrawing an offer does not ask running pods to end. A pod that requests more than the threshold by itself is
first, because without its end that of all others would not be enough. Then comes the pod with the lowest number in its annotation
katalyst.kubewharf.io/pod_evict_score (default 0; where no opt-out is allowed, --opt-out "", a number over 0 counts as 0), then the pod
with the lowest priority (pods without a priority before all others), then the pod with the largest request.

On each NUMA node the rule compares the requests of the reclaimed pods that are bound to it with that node's part of the
offer. A pod is bound if its annotation katalyst.kubewharf.io/numa_bind_result has one node, or if it requests numa_binding in
its memory_enhancement and its containers' CPUs are all of one node.`,
	Scopes: []string{ScopeReclaimedMilliCPU, ScopeReclaimedMemory, "zone<id>|<one of these>"},
	Rows:   (*evictconfig.Settings).ReclaimedRows,
	New:    func() Window { return &reclaimedWindow{} },
}

// Scopes of the reclaimed resources.
const (
	ScopeReclaimedMilliCPU = "katalyst.kubewharf.io/reclaimed_millicpu"
	ScopeReclaimedMemory   = "katalyst.kubewharf.io/reclaimed_memory"
)

type reclaimedWindow struct {
	MilliCPU   condition  `json:"milliCPU"`
	Memory     condition  `json:"memory"`
	SoftCPU    condition  `json:"softMilliCPU"`
	SoftMemory condition  `json:"softMemory"`
	Zones      conditions `json:"zones,omitempty"` // by scope
}

// resource is one of the two reclaimed resources.
type resource struct {
	scope      string
	name       string
	text       func(float64) string
	request    func(*tick.Resources) *float64
	hard, soft float64 // multiples of the offer; soft is 0 if it is off
}

func (w *reclaimedWindow) Measure(s *Settings, t *tick.Tick) Measure {
	var m Measure
	offered := new(tick.Reclaimed)
	if t.Advice != nil && t.Advice.Reclaimed != nil {
		offered = t.Advice.Reclaimed
	}
	cpu := resource{ScopeReclaimedMilliCPU, "reclaimed CPU", milliCPU, reclaimedMilliCPU, firstPositive(s.ReclaimedCPUThreshold, s.ReclaimedThreshold), s.ReclaimedSoftCPUThreshold}
	memory := resource{ScopeReclaimedMemory, "reclaimed memory", mebibytes, reclaimedMemoryBytes, firstPositive(s.ReclaimedMemoryThreshold, s.ReclaimedThreshold), s.ReclaimedSoftMemoryThreshold}
	pods := podsOfClass(t, tick.QoSReclaimed)
	scores := evictScores(&m, s, pods)
	w.measure(&m, s, t, &w.MilliCPU, &w.SoftCPU, cpu, offered.MilliCPU, pods, scores)
	w.measure(&m, s, t, &w.Memory, &w.SoftMemory, memory, offered.MemoryBytes, pods, scores)
	w.measureZones(&m, s, t, []resource{cpu, memory}, offered.NUMANodes, pods, scores)
	return m
}

func firstPositive(v, fallback float64) float64 {
	if v > 0 {
		return v
	}
	return fallback
}

// evictScores returns the pods' annotations, by UID; an invalid number counts as none.
func evictScores(m *Measure, s *Settings, pods []*tick.Pod) map[string]float64 {
	var scores map[string]float64
	for _, p := range pods {
		text, ok := p.Annotations[annotationEvictScore]
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(math.Abs(v) <= maxAmount) {
			m.Errors = append(m.Errors, fmt.Sprintf("pod %s: annotation %s %q is not a number and counts as 0", p.Name, annotationEvictScore, clip.Text(text, shownBytes)))
			continue
		}
		if len(s.OptOut) == 0 { // a tenant may not have the pods of others evicted before its own
			v = min(v, 0)
		}
		if scores == nil {
			scores = map[string]float64{}
		}
		scores[p.UID] = v
	}
	return scores
}

func (w *reclaimedWindow) measure(
	m *Measure, s *Settings, t *tick.Tick, hard, soft *condition, r resource, offer *int64, pods []*tick.Pod, scores map[string]float64,
) {
	sum, candidates, withoutRequest := requests(pods, r, scores, s.isExempt)
	offered, why := r.offer(s, offer, sum)
	if why != "" {
		hard.observe(t, false)
		soft.observe(t, false)
		m.Errors = append(m.Errors, why)
		return
	}
	if len(withoutRequest) > 0 {
		m.Errors = append(m.Errors, fmt.Sprintf("%s: %d of %d reclaimed pods request none and count as 0: %s", r.scope, len(withoutRequest),
			len(pods), phrase.First(withoutRequest, shownNames)))
	}
	m.Findings = append(m.Findings, r.newFinding(s, t, hard, r.hard, offered, sum, candidates, ""))
	if r.soft > 0 {
		f := r.newFinding(s, t, soft, r.soft, offered, sum, candidates, "soft ")
		f.Hard = false
		m.Findings = append(m.Findings, f)
	} else {
		soft.observe(t, false)
	}
}

// offer returns the offer, or why the requests are not compared with it. An offer of 0 is not used if anything is requested: a
// disabled switch, a reserve or a brief wrong reading cause it, and every pod would be evicted.
func (r resource) offer(s *Settings, offer *int64, requested float64) (offered float64, why string) {
	offered, ok := intAmount(offer)
	switch {
	case offer == nil:
		return 0, reason.NotMeasured(r.scope, "the advice has no "+r.name)
	case !ok:
		return 0, reason.NotMeasured(r.scope, fmt.Sprintf("the advice has %d of %s, which is not a valid amount", *offer, r.name))
	case offered == 0 && requested > 0 && !s.ReclaimedZeroOfferEnabled:
		return 0, reason.NotMeasured(r.scope, "the advice offers no "+r.name+", which counts as withdrawn")
	}
	return offered, ""
}

// isExempt reports whether a pod is never evicted because it has an opt-out or is critical. No other pod is evicted for what it requests:
// anybody can write either, and request any amount by naming the node itself.
func (s *Settings) isExempt(p *tick.Pod) bool { return OptedOut(p, s.OptOut) != "" || IsCritical(p) }

// requests adds up the pods' requests; withoutRequest are the names of pods that request nothing. What an exempt pod requests does not
// count, and its end would release nothing.
func requests(
	pods []*tick.Pod, r resource, scores map[string]float64, isExempt func(*tick.Pod) bool,
) (sum float64, candidates []Candidate, withoutRequest []string) {
	for _, p := range pods {
		request, ok := podRequest(p, r.request)
		if !ok {
			if p.Namespace != "" { // a cgroup of a plain host cannot request anything: that is no error
				withoutRequest = append(withoutRequest, p.Name)
			}
			continue
		}
		counted := request
		if isExempt(p) {
			counted = 0
		}
		sum += counted
		if request > 0 {
			candidates = append(candidates, Candidate{Pod: p, Rank: []float64{-scores[p.UID], -priority(p), request}, Releases: counted})
		}
	}
	return sum, candidates, withoutRequest
}

// indispensableFirst ranks pods first that exceed the threshold by themselves: the end of all others would not be enough.
func indispensableFirst(candidates []Candidate, threshold float64) []Candidate {
	ranked := slices.Clone(candidates)
	for i := range ranked {
		exceeds := 0.0
		if ranked[i].Releases > threshold {
			exceeds = 1
		}
		ranked[i].Rank = append([]float64{exceeds}, ranked[i].Rank...)
	}
	return ranked
}

func (r resource) newFinding(
	s *Settings, t *tick.Tick, l *condition, factor, offered, sum float64, candidates []Candidate, kind string,
) Finding {
	threshold, met := l.isOver(t, sum, factor*offered, s.ReclaimedHysteresis)
	f := Finding{PressureFinding: tick.PressureFinding{
		Rule: reclaimedPressure.Name, Scope: r.scope, Value: sum, Threshold: threshold, Met: met, Hard: true, Since: formatTime(l.Start),
	}}
	f.Tolerance = s.ReclaimedTolerance
	if met {
		f.Candidates = indispensableFirst(candidates, threshold)
		f.GracePeriodSeconds = graceSeconds(s.ReclaimedGracePeriod)
		f.Message = fmt.Sprintf("reclaimed pods request %s of %s, over the %s"+reason.Threshold+"%s (%v x the %s offered)",
			r.text(sum), r.name, kind, r.text(threshold), factor, r.text(offered))
	}
	return f
}

// measureZones compares on each NUMA node to which pods are bound.
func (w *reclaimedWindow) measureZones(
	m *Measure, s *Settings, t *tick.Tick, resources []resource, offered []tick.ReclaimedNUMA, pods []*tick.Pod, scores map[string]float64,
) {
	previous := w.Zones
	w.Zones = nil
	if !s.ReclaimedNUMAEnabled || t.Sample.Topology == nil || len(t.Sample.Topology.NUMANodes) < 2 {
		return
	}
	nodes := numaNodes(t.Sample.Topology)
	bound := map[int][]*tick.Pod{}
	for _, p := range pods {
		if id, ok := boundNode(p, nodes); ok {
			bound[id] = append(bound[id], p)
		}
	}
	for i := range nodes { // in order
		id := nodes[i].id
		if len(bound[id]) == 0 {
			continue
		}
		for j, r := range resources {
			r.scope = fmt.Sprintf("zone%d|%s", id, r.scope)
			r.name += fmt.Sprintf(" on NUMA node %d", id)
			sum, candidates, _ := requests(bound[id], r, scores, s.isExempt) // pods that request nothing were named above
			offer, why := r.offer(s, offerOf(offered, id, j), sum)
			if why != "" {
				m.Errors = append(m.Errors, why)
				continue
			}
			l := w.Zones.keep(previous, r.scope)
			m.Findings = append(m.Findings, r.newFinding(s, t, l, r.hard, offer, sum, candidates, ""))
		}
	}
}

// offerOf returns a NUMA node's part of the offer, of CPU (0) or memory (1).
func offerOf(offered []tick.ReclaimedNUMA, id, which int) *int64 {
	for i := range offered {
		if offered[i].ID == id {
			return []*int64{offered[i].MilliCPU, offered[i].MemoryBytes}[which]
		}
	}
	return nil
}

// numaNode is a NUMA node with its CPUs.
type numaNode struct {
	id   int
	cpus cpus.Set
}

// numaNodes omits a node whose CPUs cannot be read: no pod counts as bound to it.
func numaNodes(t *tick.Topology) []numaNode {
	var nodes []numaNode
	for i := range t.NUMANodes {
		if set, err := cpus.Parse(t.NUMANodes[i].CPUs); err == nil {
			nodes = append(nodes, numaNode{t.NUMANodes[i].ID, set})
		}
	}
	return nodes
}

// boundNode returns the NUMA node to which a pod is bound, as far as a tick shows.
func boundNode(p *tick.Pod, nodes []numaNode) (int, bool) {
	if text, ok := p.Annotations[annotationNUMABinding]; ok {
		id, err := strconv.Atoi(text)
		for i := range nodes {
			if err == nil && nodes[i].id == id {
				return id, true
			}
		}
		return 0, false
	}
	if enhancement(p, annotationMemory, "numa_binding") != "true" || len(p.Containers) == 0 {
		return 0, false
	}
	for i := range nodes {
		if runsOnlyOn(p, nodes[i].cpus) {
			return nodes[i].id, true
		}
	}
	return 0, false
}

// runsOnlyOn reports whether all of a pod's containers run only on these CPUs.
func runsOnlyOn(p *tick.Pod, to cpus.Set) bool {
	for i := range p.Containers {
		set, err := cpus.Parse(p.Containers[i].CPUSetCPUs)
		if err != nil || set.IsEmpty() || !set.IsSubsetOf(to) {
			return false
		}
	}
	return true
}
