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
	// maxPods bounds the pods of one node that are remembered, and maxIdentity the length of a name; the requests of others count
	// as those of new pods do.
	maxPods     = 1000
	maxIdentity = 400
	// peakTime is how long a peak counts at least; at most it is twice as long.
	peakTime = 30 * time.Minute
	// namedPods is how many pods the reasons name.
	namedPods = 3
)

// pods are what is remembered of the services' pods that are there: when each was seen first, and its peak.
type pods struct {
	// Of is by identity; a pod that has gone is forgotten with its first tick.
	Of map[string]*pod `json:"of,omitempty"`
	// Turned is when the peaks started over last.
	Turned time.Time `json:"turned,omitzero"`
	// Begun means that the node was seen before: pods that are new then are new.
	Begun bool `json:"begun,omitempty"`
}

type pod struct {
	First time.Time `json:"first"`
	// Peak is since the last turn, Before that of the time before it; in milli-CPU.
	Peak   float64 `json:"peak"`
	Before float64 `json:"before,omitempty"`

	key     string // namespace/name, for the reasons
	present bool
}

// round is one tick's look at the pods.
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
		if p == nil { // a state file's null
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

// see takes a pod's use and reports whether the pod is new, so that its request counts. What ran when the node was seen first was there
// before, unless its start time shows otherwise.
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

// end forgets the pods that have gone.
func (r *round) end() {
	r.Begun = true
	for id, p := range r.Of {
		if !p.present {
			delete(r.Of, id)
		}
	}
}

// reasons name the pods with the largest peaks.
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
