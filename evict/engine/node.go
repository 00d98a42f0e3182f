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
	Windows        map[string]rule.Window `json:"-"`
	EncodedWindows map[string]tick.Raw    `json:"rules,omitempty"` // the windows, encoded
	// TaintRequired has the time at which each taint, by "key:effect", was last required.
	TaintRequired map[string]time.Time `json:"taints,omitempty"`
	progress.Record
	settings.Node

	// explanation is the last tick's explanation, with --explain.
	explanation string
}

// record returns the record of a node's evictions.
func (e *engine) record(name string) *progress.Record { return &e.node(name).Record }

// node returns the state of a node.
func (e *engine) node(name string) *node {
	n := e.nodes[name]
	if n == nil {
		tick.DropOldest(e.nodes, func(n *node) time.Time { return n.LastTick() })
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
	if n.TaintRequired == nil {
		n.TaintRequired = map[string]time.Time{}
	}
	n.Record.Init(name)
}

// measure lets every selected rule measure the tick.
func (n *node) measure(s *settings.Settings, koordinator *sloconfig.Strategies, t *tick.Tick) ([]rule.Finding, []string) {
	rules, err := s.Selected()
	if err != nil {
		return nil, []string{err.Error()} // checked when the settings were read
	}
	ruleSettings := rule.Settings{Settings: s.Settings, Strategies: koordinator}
	var findings []rule.Finding
	var errs []string
	for _, r := range rules {
		m := n.window(r).Measure(&ruleSettings, t)
		for i := range m.Findings {
			m.Findings[i].DryRun = s.IsDryRun(r.Name)
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
		if raw := n.EncodedWindows[r.Name]; raw != nil && tick.Unmarshal(raw, w) != nil {
			w = r.New() // another version's: the window starts empty
		}
		n.Windows[r.Name] = w
	}
	return w
}

// taints returns the taints that the findings require, and those that were last required less than transitionPeriod ago.
func (n *node) taints(findings []rule.Finding, now time.Time, transitionPeriod time.Duration) []tick.Taint {
	for _, f := range findings {
		if f.Met && f.Taint != nil && !f.DryRun {
			n.TaintRequired[f.Taint.Key+":"+f.Taint.Effect] = now
		}
	}
	var taints []tick.Taint
	for _, k := range slices.Sorted(maps.Keys(n.TaintRequired)) {
		if now.Before(n.TaintRequired[k]) { // the clock was set back: the wait starts over
			n.TaintRequired[k] = now
		}
		if lastRequired := n.TaintRequired[k]; lastRequired != now && now.Sub(lastRequired) >= transitionPeriod {
			delete(n.TaintRequired, k)
			continue
		}
		i := strings.LastIndexByte(k, ':')
		if i < 0 { // a state file may contain anything
			delete(n.TaintRequired, k)
			continue
		}
		taints = append(taints, tick.Taint{Key: k[:i], Effect: k[i+1:]})
	}
	return taints
}
