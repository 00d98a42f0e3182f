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
	// ByIdentity is by identity; a pod that no longer exists is removed in the first tick without it.
	ByIdentity map[string]*pod `json:"of,omitempty"`
	// ResetAt is when the peaks were last reset.
	ResetAt time.Time `json:"turned,omitzero"`
	// WasSeen reports whether the node was seen before: only then pods without history are new.
	WasSeen bool `json:"begun,omitempty"`
}

type pod struct {
	FirstSeen time.Time `json:"first"`
	// Peak is the peak since the last reset, PreviousPeak that of the period before it; in milli-CPU.
	Peak         float64 `json:"peak"`
	PreviousPeak float64 `json:"before,omitempty"`

	key    string // namespace/name, for the reasons
	exists bool
}

// observation is the evaluation of the pods in one tick.
type observation struct {
	*pods
	now         time.Time
	resetsPeaks bool
}

func (ps *pods) begin(now time.Time) observation {
	if ps.ByIdentity == nil {
		ps.ByIdentity = map[string]*pod{}
	}
	r := observation{pods: ps, now: now, resetsPeaks: now.Sub(ps.ResetAt) >= peakTime || ps.ResetAt.After(now)}
	for id, p := range ps.ByIdentity {
		if p == nil { // null in a state file
			delete(ps.ByIdentity, id)
			continue
		}
		p.exists = false
		if p.FirstSeen.After(now) {
			p.FirstSeen = now
		}
		if r.resetsPeaks {
			p.PreviousPeak, p.Peak = p.Peak, 0
		}
	}
	if r.resetsPeaks {
		ps.ResetAt = now
	}
	return r
}

// addPod adds a pod's use and reports whether the pod is new, so that its request counts. Pods that run when the node is first seen are not
// new, unless their start time shows otherwise.
func (r *observation) addPod(p *tick.Pod, use, workingSet *float64, s Settings) bool {
	started, err := time.Parse(time.RFC3339Nano, p.StartTime)
	hasStartTime := err == nil && !started.After(r.now)
	id := policy.Identity(p)
	history := r.ByIdentity[id]
	if history == nil {
		history = &pod{FirstSeen: r.now}
		switch {
		case hasStartTime:
			history.FirstSeen = started
		case !r.WasSeen:
			history.FirstSeen = r.now.Add(-s.NewPod)
		}
		if len(id) > maxIdentity || len(r.ByIdentity) >= maxPods {
			return true
		}
		r.ByIdentity[strings.Clone(id)] = history
	}
	history.exists, history.key = true, policy.Key(p)
	history.Peak = max(history.Peak, policy.Amount(use))
	return use == nil || workingSet == nil && p.Missing != "" || r.now.Sub(history.FirstSeen) < s.NewPod
}

// end removes the pods that no longer exist.
func (r *observation) end() {
	r.WasSeen = true
	for id, p := range r.ByIdentity {
		if !p.exists {
			delete(r.ByIdentity, id)
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
	for _, p := range ps.ByIdentity {
		if highest := max(p.Peak, p.PreviousPeak); highest >= 0.5 {
			list = append(list, peak{p.key, highest})
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
