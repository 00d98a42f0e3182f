package pick

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"polder/evict/rule"
	"polder/lib/tick"
)

// Queue are the pods that wait because a soft finding names them, by UID, with the start of the unbroken time. A pod that
// is no longer named is removed. The state file contains it as JSON.
type Queue map[string]time.Time

// queuedCandidate is a candidate of a soft finding.
type queuedCandidate struct {
	choice  *Choice
	need    *need
	finding int // its index among the findings
}

// chooseSoft chooses the best one of all candidates of soft findings.
func (r *round) chooseSoft(dryRun bool) {
	var all []queuedCandidate
	for i := range r.result.Verdicts {
		v := &r.result.Verdicts[i]
		if v.Finding.Hard || v.Finding.DryRun != dryRun || v.Why != "" {
			continue
		}
		n := newNeed(r, v)
		for j := range v.Candidates {
			if x := &v.Candidates[j]; x.Why == "" {
				x.Why = "not needed: the candidates before it are enough"
				if n.isUncoveredBy(x) {
					x.Why = "waits: soft findings evict one pod a tick"
					all = append(all, queuedCandidate{x, n, i})
				}
			}
		}
	}
	slices.SortFunc(all, r.compare)
	if !dryRun {
		r.updateQueue(all)
	}
	for i, w := range all {
		if w.choice.Chosen, w.choice.Why = r.tryChoose(w.need, w.choice); !w.choice.Chosen {
			continue
		}
		for _, other := range all[i+1:] {
			if other.choice.Pod.UID == w.choice.Pod.UID && !other.choice.Chosen {
				r.join(other.need, other.choice)
			}
		}
		return
	}
}

// updateQueue replaces the queue by the pods that are named now.
func (r *round) updateQueue(all []queuedCandidate) {
	r.result.Queue = Queue{}
	for _, w := range all {
		uid := w.choice.Pod.UID
		since, ok := r.state.Queue[uid]
		if !ok || since.After(r.now) {
			since = r.now
		}
		r.result.Queue[uid] = since
	}
}

// compare orders candidates of different soft findings, whose ranks measure different things: pods whose end was requested
// already first, reclaimed pods before others, lower priority before higher, then by the findings' order, rank and name.
func (r *round) compare(a, b queuedCandidate) int {
	return cmp.Or(
		r.unansweredFirst(*a.choice)-r.unansweredFirst(*b.choice),
		classOrder(a.choice.Pod)-classOrder(b.choice.Pod),
		cmp.Compare(priority(a.choice.Pod), priority(b.choice.Pod)),
		a.finding-b.finding,
		rule.Compare(a.choice.Candidate, b.choice.Candidate),
		strings.Compare(a.choice.Pod.UID, b.choice.Pod.UID),
	)
}

func classOrder(p *tick.Pod) int {
	if p.QoS == tick.QoSReclaimed {
		return 0
	}
	return 1
}

// priority orders a pod without a priority before all others.
func priority(p *tick.Pod) float64 {
	if p.Priority == nil {
		return math.Inf(-1)
	}
	return float64(*p.Priority)
}
