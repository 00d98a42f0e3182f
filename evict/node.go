package main

import (
	"maps"
	"slices"
	"strings"
	"time"

	"polder/evict/act"
	"polder/evict/pick"
	"polder/evict/rule"
	"polder/lib/tick"
	"polder/lib/window"
)

// node is what is remembered of one node. The exported fields are kept in the state file.
type node struct {
	Windows   map[string]rule.Window      `json:"-"`
	Rules     map[string]tick.Raw         `json:"rules,omitempty"` // the windows, encoded
	Cooldowns map[string]*window.Cooldown `json:"cooldowns,omitempty"`
	// Taints says when each taint, by "key:effect", was last called for.
	Taints map[string]time.Time `json:"taints,omitempty"`
	Going  pick.Going           `json:"going,omitempty"`

	name   string
	last   time.Time          // of the newest tick; zero before the first one of this run
	news   []tick.PodEviction // to be said in the next tick
	logged map[string]string  // the state that was logged last, by UID and rule
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
	n.logged = map[string]string{}
	if n.Cooldowns == nil {
		n.Cooldowns = map[string]*window.Cooldown{}
	}
	if n.Taints == nil {
		n.Taints = map[string]time.Time{}
	}
	if n.Going == nil {
		n.Going = pick.Going{}
	}
}

// measure has every selected rule look at the tick.
func (n *node) measure(s *settings, t *tick.Tick) ([]rule.Finding, []string) {
	rules, err := rule.Select(s.Rules)
	if err != nil {
		return nil, []string{err.Error()} // checked when the settings were read
	}
	var findings []rule.Finding
	var errs []string
	for _, r := range rules {
		m := n.window(r).Measure(&s.Settings, t)
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

func (n *node) cooldown(rule string) *window.Cooldown {
	c := n.Cooldowns[rule]
	if c == nil {
		c = new(window.Cooldown)
		n.Cooldowns[rule] = c
	}
	return c
}

// taints are those that the findings call for, and those that were called for less than keep ago.
func (n *node) taints(findings []rule.Finding, now time.Time, keep time.Duration) []tick.Taint {
	for _, f := range findings {
		if f.Met && f.Taint != nil {
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
		n.Going.Fail(r.UID, r.Err.Error(), at, r.Again)
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
			if r.State == tick.StateCreated {
				l.Requested = at // its grace period begins now
			}
		}
	}
}

// say returns the news since the tick before.
func (n *node) say() []tick.PodEviction {
	news := n.news
	n.news = nil
	return news
}
