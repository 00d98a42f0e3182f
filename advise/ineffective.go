package main

import (
	"log/slog"

	"polder/advise/class"
	"polder/advise/guard"
	"polder/advise/harvest"
	"polder/advise/koordinator"
)

// ineffective is a setting that is given, but has no effect beside the others.
type ineffective struct{ name, why string }

// ineffective returns these settings, in the order of the table.
func (l *loaded) ineffective() []ineffective {
	var all []ineffective
	add := func(why string, names ...string) {
		for _, name := range names {
			if l.sources[name] != "" {
				all = append(all, ineffective{name, why})
			}
		}
	}
	if l.Class.Class == class.None {
		add("batch-class is none", "resched-on-wait", "resched-interval")
	}
	if l.Guard.Mode == guard.Off || l.Guard.Mode == "" && l.Policy != harvest.Policy.Name {
		names := []string{"guard-disk", "guard-target", "guard-margin"}
		if l.Guard.Disk != guard.On {
			names = names[1:]
		}
		add("the guard is off (guard: on enables it)", names...)
	}
	if !l.Network.Batch.Rate.IsSet() && l.Policy != koordinator.Policy.Name { // that policy has rates from the cluster, too
		add("batch-network-rate is not given", "batch-network-ceiling", "network-rate", "network-links")
	}
	return all
}

// warn logs the settings that have no effect.
func (l *loaded) warn(log *slog.Logger) {
	for _, x := range l.ineffective() {
		log.Warn("a setting has no effect", "setting", l.sources[x.name], "because", x.why)
	}
}
