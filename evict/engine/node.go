package engine

import (
	"maps"
	"slices"
	"strings"
	"time"

	"polder/evict/act"
	"polder/evict/pick"
	"polder/evict/rule"
	"polder/evict/settings"
	"polder/lib/kube"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// node is what is remembered of one node. The exported fields are kept in the state file.
type node struct {
	Windows map[string]rule.Window `json:"-"`
	Rules   map[string]tick.Raw    `json:"rules,omitempty"` // the windows, encoded
	// Taints says when each taint, by "key:effect", was last called for.
	Taints map[string]time.Time `json:"taints,omitempty"`
	pick.Memory
	settings.Node

	name string
	last time.Time          // of the newest tick; zero before the first one of this run
	news []tick.PodEviction // to be said in the next tick
	said said
	// explained is the last tick's explanation, with --explain.
	explained string
}

// node returns what is remembered of a node.
func (e *engine) node(name string) *node {
	n := e.nodes[name]
	if n == nil {
		n = &node{}
		e.nodes[name] = n
	}
	if n.Windows == nil {
		n.init(name)
	}
	return n
}

func (n *node) init(name string) {
	n.name = name
	n.Windows = map[string]rule.Window{}
	if n.Taints == nil {
		n.Taints = map[string]time.Time{}
	}
	n.Memory.Init()
}

// measure has every selected rule look at the tick.
func (n *node) measure(s *settings.Settings, koordinator *sloconfig.Strategies, t *tick.Tick) ([]rule.Finding, []string) {
	rules, err := s.Selected()
	if err != nil {
		return nil, []string{err.Error()} // checked when the settings were read
	}
	with := rule.Settings{Settings: s.Settings, Strategies: koordinator}
	var findings []rule.Finding
	var errs []string
	for _, r := range rules {
		m := n.window(r).Measure(&with, t)
		for i := range m.Findings {
			m.Findings[i].DryRun = s.DryRunOf(r.Name)
		}
		findings = append(findings, m.Findings...)
		errs = append(errs, m.Errors...)
	}
	return findings, errs
}

func (n *node) window(r *rule.Rule) rule.Window {
	w := n.Windows[r.Name]
	if w == nil {
		w = r.New()
		if raw := n.Rules[r.Name]; raw != nil && tick.Unmarshal(raw, w) != nil {
			w = r.New() // another version's: the window fills anew
		}
		n.Windows[r.Name] = w
	}
	return w
}

// taints are those that the findings call for, and those that were called for less than keep ago.
func (n *node) taints(findings []rule.Finding, now time.Time, keep time.Duration) []tick.Taint {
	for _, f := range findings {
		if f.Met && f.Taint != nil && !f.DryRun {
			n.Taints[f.Taint.Key+":"+f.Taint.Effect] = now
		}
	}
	var taints []tick.Taint
	for _, k := range slices.Sorted(maps.Keys(n.Taints)) {
		if now.Before(n.Taints[k]) { // the clock was set back: the wait begins anew
			n.Taints[k] = now
		}
		if seen := n.Taints[k]; seen != now && now.Sub(seen) >= keep {
			delete(n.Taints, k)
			continue
		}
		i := strings.LastIndexByte(k, ':')
		if i < 0 { // of a state file, it may be anything
			delete(n.Taints, k)
			continue
		}
		taints = append(taints, tick.Taint{Key: k[:i], Effect: k[i+1:]})
	}
	return taints
}

// result notes what came of an order.
func (n *node) result(r act.Result, at time.Time, action string) {
	l := n.Going[r.UID]
	if l == nil {
		return // gone from the sample already, and said so
	}
	switch r.State {
	case tick.StateFailed:
		n.failed(r, l, at)
		n.news = append(n.news, l.Eviction)
	case tick.StateSucceeded:
		if action == act.FreezePods {
			l.Held = true
			l.Eviction.State = tick.StateSucceeded
			l.Eviction.Message += " (frozen until evict --thaw)"
			return // said for as long as it is frozen
		}
		if x, ok := n.Going.End(r.UID, at); ok {
			n.news = append(n.news, x)
		}
	default:
		if l.Spared.IsZero() {
			l.Eviction.State, l.Eviction.Error = r.State, ""
			if r.Err != nil { // not yet, and why
				l.Eviction.Error = r.Err.Error()
			}
			switch {
			case r.OwnGrace > 0:
				l.OwnGrace = r.OwnGrace
			case r.State == tick.StateCreated:
				l.Requested = at // its grace period begins now
			}
		}
	}
}

// failed notes an order that came to nothing: before the pod was asked, which leaves everything as it was; without anybody
// knowing whether it was; or after it, as it did not go.
func (n *node) failed(r act.Result, l *pick.Leaving, at time.Time) {
	switch asked := l.Eviction.State != tick.StateRequested; {
	case asked:
		n.Going.Fail(r.UID, r.Err.Error(), at, r.Again)
	case kube.IsServerError(r.Err) && !kube.IsUnreachable(r.Err) && !kube.IsDisruptionBudget(r.Err):
		n.ServerError(r.UID, r.Err.Error(), at)
	case unanswered(r.Err):
		n.Going.NoAnswer(r.UID, r.Err.Error(), at)
	default:
		n.Refuse(r.UID, r.Err.Error(), at, r.Again)
	}
}

// unanswered reports whether an error leaves open what the API server has done.
func unanswered(err error) bool {
	return kube.IsUnreachable(err) || kube.IsTooManyRequests(err) && !kube.IsDisruptionBudget(err)
}

// takeNews returns the news since the tick before.
func (n *node) takeNews() []tick.PodEviction {
	news := n.news
	n.news = nil
	return news
}
