package engine

import (
	"maps"
	"strings"

	"polder/evict/pick"
	"polder/evict/settings"
	"polder/lib/tick"
)

// said is what was logged of a node's pods last, so that the log tells changes and not every tick.
type said struct {
	states  map[string]string // of evictions, by UID and rule
	would   map[string]bool   // who would be evicted, by UID and rule
	limited map[pick.Limited]bool
}

// logChanges logs and counts each eviction when its state changes.
func (e *engine) logChanges(n *node, now []tick.PodEviction) {
	if n.said.states == nil {
		n.said.states = map[string]string{}
	}
	for _, x := range now {
		key := x.UID + " " + x.Rule
		if n.said.states[key] == x.State {
			continue
		}
		n.said.states[key] = x.State
		e.counts.eviction(x.Rule, x.State)
		attrs := []any{"state", x.State, "node", n.name, "pod", podName(x.Namespace, x.Name), "uid", x.UID,
			"reason", x.Reason, "message", x.Message}
		if x.Error != "" {
			e.session.Log.Warn("evict", append(attrs, "error", x.Error)...)
		} else {
			e.session.Log.Info("evict", attrs...)
		}
	}
}

// forget drops what was said of pods that are not spoken of any more.
func (n *node) forget(now []tick.PodEviction) {
	spoken := make(map[string]bool, len(now))
	for _, x := range now {
		spoken[x.UID+" "+x.Rule] = true
	}
	for _, l := range n.Going {
		spoken[l.Eviction.UID+" "+l.Eviction.Rule] = true
	}
	maps.DeleteFunc(n.said.states, func(key, _ string) bool { return !spoken[key] })
}

// logWould logs and counts who would be evicted when that begins, not at every tick for as long as it holds.
func (e *engine) logWould(n *node, now []tick.PodEviction) {
	before := n.said.would
	n.said.would = map[string]bool{}
	for _, x := range now {
		key := x.UID + " " + x.Rule
		n.said.would[key] = true
		if !before[key] && !e.explains {
			e.counts.eviction(x.Rule, x.State)
			e.session.Log.Info("would evict", "node", n.name, "pod", podName(x.Namespace, x.Name), "uid", x.UID,
				"reason", x.Reason, "message", x.Message)
		}
	}
}

// logLimits counts the limits that were reached, and logs when one begins to hold pods back. A rule's own limit is
// nothing to tell: the rest goes at the next ticks.
func (e *engine) logLimits(n *node, now []pick.Limited) {
	before := n.said.limited
	n.said.limited = map[pick.Limited]bool{}
	for _, x := range now {
		e.counts.limit(x.Rule, x.Limit)
		n.said.limited[x] = true
		if !before[x] && !e.explains && x.Limit != pick.LimitPerRule {
			e.session.Log.Warn("more pods would have to go than the limit allows", "node", n.name, "rule", x.Rule, "limit", "--"+x.Limit)
		}
	}
}

func podName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// logUnsupported says once what a ConfigMap of --config sets and nothing acts on.
func (e *engine) logUnsupported(s *settings.Settings) {
	if e.slo == s.SLO {
		return
	}
	if e.slo = s.SLO; e.slo != nil && len(e.slo.Unsupported) > 0 {
		e.session.Log.Info("settings of the ConfigMap that are not supported", "settings", strings.Join(e.slo.Unsupported, ", "))
	}
}
