package harvest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"polder/advise/policy"
	"polder/lib/tick"
)

const (
	// maxPods bounds the pods of one node in the history, and maxIdentity the length of a name; the requests of other pods count like those of
	// new pods.
	maxPods     = 1000
	maxIdentity = 400
	// peakTime is how long a peak counts at least; at most it counts twice as long.
	peakTime = 30 * time.Minute
	// namedPods is how many pods the reasons name.
	namedPods = 3
)

// pods is the history of the services' pods that exist: when each was first seen, and its peak.
type pods struct {
	// Of is by identity; a pod that no longer exists is removed in the first tick without it.
	Of map[string]*pod `json:"of,omitempty"`
	// Turned is when the peaks were last reset.
	Turned time.Time `json:"turned,omitzero"`
	// Begun reports whether the node was seen before: only then pods without history are new.
	Begun bool `json:"begun,omitempty"`
}

type pod struct {
	First time.Time `json:"first"`
	// Peak is the peak since the last reset, Before that of the period before it; in milli-CPU.
	Peak   float64 `json:"peak"`
	Before float64 `json:"before,omitempty"`

	key     string // namespace/name, for the reasons
	present bool
}

// round is the evaluation of the pods in one tick.
type round struct {
	*pods
	now  time.Time
	turn bool
}

func (ps *pods) begin(now time.Time) round {
	if ps.Of == nil {
		ps.Of = map[string]*pod{}
	}
	r := round{pods: ps, now: now, turn: now.Sub(ps.Turned) >= peakTime || ps.Turned.After(now)}
	for id, p := range ps.Of {
		if p == nil { // null in a state file
			delete(ps.Of, id)
			continue
		}
		p.present = false
		if p.First.After(now) {
			p.First = now
		}
		if r.turn {
			p.Before, p.Peak = p.Peak, 0
		}
	}
	if r.turn {
		ps.Turned = now
	}
	return r
}

// see adds a pod's use and reports whether the pod is new, so that its request counts. Pods that run when the node is first seen are not
// new, unless their start time shows otherwise.
func (r *round) see(p *tick.Pod, use, set *float64, s Settings) bool {
	started, err := time.Parse(time.RFC3339Nano, p.StartTime)
	dated := err == nil && !started.After(r.now)
	id := policy.Identity(p)
	own := r.Of[id]
	if own == nil {
		own = &pod{First: r.now}
		switch {
		case dated:
			own.First = started
		case !r.Begun:
			own.First = r.now.Add(-s.NewPod)
		}
		if len(id) > maxIdentity || len(r.Of) >= maxPods {
			return true
		}
		r.Of[strings.Clone(id)] = own
	}
	own.present, own.key = true, policy.Key(p)
	own.Peak = max(own.Peak, policy.Amount(use))
	return use == nil || set == nil && p.Missing != "" || r.now.Sub(own.First) < s.NewPod
}

// end removes the pods that no longer exist.
func (r *round) end() {
	r.Begun = true
	for id, p := range r.Of {
		if !p.present {
			delete(r.Of, id)
		}
	}
}

// reasons names the pods with the largest peaks.
func (ps *pods) reasons() string {
	type peak struct {
		key      string
		milliCPU float64
	}
	var list []peak
	for _, p := range ps.Of {
		if most := max(p.Peak, p.Before); most >= 0.5 {
			list = append(list, peak{p.key, most})
		}
	}
	if len(list) == 0 {
		return ""
	}
	slices.SortFunc(list, func(a, b peak) int {
		return cmp.Or(cmp.Compare(b.milliCPU, a.milliCPU), strings.Compare(a.key, b.key))
	})
	var named []string
	for _, p := range list[:min(len(list), namedPods)] {
		named = append(named, fmt.Sprintf("%s %.0fm", policy.Quote(p.key), p.milliCPU))
	}
	return "largest peaks of the last hour: " + strings.Join(named, ", ")
}
