package engine

import (
	"maps"
	"slices"
	"strings"
	"time"

	"polder/evict/progress"
	"polder/evict/rule"
	"polder/evict/settings"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// node is the state of one node. The state file contains the exported fields.
type node struct {
	Windows map[string]rule.Window `json:"-"`
	Rules   map[string]tick.Raw    `json:"rules,omitempty"` // the windows, encoded
	// Taints has the time at which each taint, by "key:effect", was last required.
	Taints map[string]time.Time `json:"taints,omitempty"`
	progress.Record
	settings.Node

	// explained is the last tick's explanation, with --explain.
	explained string
}

// record returns the record of a node's evictions.
func (e *engine) record(name string) *progress.Record { return &e.node(name).Record }

// node returns the state of a node.
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
	n.Windows = map[string]rule.Window{}
	if n.Taints == nil {
		n.Taints = map[string]time.Time{}
	}
	n.Record.Init(name)
}

// measure lets every selected rule measure the tick.
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
			w = r.New() // another version's: the window starts empty
		}
		n.Windows[r.Name] = w
	}
	return w
}

// taints returns the taints that the findings require, and those that were required less than keep ago.
func (n *node) taints(findings []rule.Finding, now time.Time, keep time.Duration) []tick.Taint {
	for _, f := range findings {
		if f.Met && f.Taint != nil && !f.DryRun {
			n.Taints[f.Taint.Key+":"+f.Taint.Effect] = now
		}
	}
	var taints []tick.Taint
	for _, k := range slices.Sorted(maps.Keys(n.Taints)) {
		if now.Before(n.Taints[k]) { // the clock was set back: the wait starts over
			n.Taints[k] = now
		}
		if seen := n.Taints[k]; seen != now && now.Sub(seen) >= keep {
			delete(n.Taints, k)
			continue
		}
		i := strings.LastIndexByte(k, ':')
		if i < 0 { // a state file may contain anything
			delete(n.Taints, k)
			continue
		}
		taints = append(taints, tick.Taint{Key: k[:i], Effect: k[i+1:]})
	}
	return taints
}
