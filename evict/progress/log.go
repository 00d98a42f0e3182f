package progress

import (
	"maps"

	"polder/evict/pick"
	"polder/lib/tick"
)

// logged is what was last logged about a node's pods, so that the log contains changes and not every tick.
type logged struct {
	states        map[string]string // of evictions, by UID and rule
	wouldEvict    map[string]bool   // pods that would be evicted, by UID and rule
	reachedLimits map[pick.ReachedLimit]bool
}

// LogChanges logs each eviction when its state changes.
func (w *Tracker) LogChanges(r *Record, now []tick.PodEviction) {
	if r.logged.states == nil {
		r.logged.states = map[string]string{}
	}
	for _, x := range now {
		key := x.UID + " " + x.Rule
		if r.logged.states[key] == x.State {
			continue
		}
		r.logged.states[key] = x.State
		attrs := []any{
			"state", x.State, "node", r.name, "pod", PodName(x.Namespace, x.Name), "uid", x.UID,
			"reason", x.Reason, "message", x.Message,
		}
		if x.Error != "" {
			w.session.Log.Warn("evict", append(attrs, "error", x.Error)...)
		} else {
			w.session.Log.Info("evict", attrs...)
		}
	}
}

// Forget drops the entries of pods that are no longer reported.
func (r *Record) Forget(now []tick.PodEviction) {
	reported := make(map[string]bool, len(now))
	for _, x := range now {
		reported[x.UID+" "+x.Rule] = true
	}
	for _, l := range r.InProgress {
		reported[l.Eviction.UID+" "+l.Eviction.Rule] = true
	}
	maps.DeleteFunc(r.logged.states, func(key, _ string) bool { return !reported[key] })
}

// logWouldEvict logs pods that would be evicted when that begins, not at every tick while it continues.
func (w *Tracker) logWouldEvict(r *Record, now []tick.PodEviction) {
	before := r.logged.wouldEvict
	r.logged.wouldEvict = map[string]bool{}
	for _, x := range now {
		key := x.UID + " " + x.Rule
		r.logged.wouldEvict[key] = true
		if !before[key] && !w.Quiet {
			w.session.Log.Info("would evict", "node", r.name, "pod", PodName(x.Namespace, x.Name), "uid", x.UID,
				"reason", x.Reason, "message", x.Message)
		}
	}
}

// LogLimits counts the limits that were reached, and logs when one begins to exclude pods. A rule's own limit is
// not logged: the remaining pods are evicted at the next ticks.
func (w *Tracker) LogLimits(r *Record, now []pick.ReachedLimit) {
	before := r.logged.reachedLimits
	r.logged.reachedLimits = map[pick.ReachedLimit]bool{}
	for _, x := range now {
		w.limitCounts.add(x)
		r.logged.reachedLimits[x] = true
		if !before[x] && !w.Quiet && x.Limit != pick.LimitPerRule {
			w.session.Log.Warn("more pods would be evicted than the limit allows", "node", r.name, "rule", x.Rule, "limit", "--"+x.Limit)
		}
	}
}

// PodName returns a pod's name with its namespace, if it has one.
func PodName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
