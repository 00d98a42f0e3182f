package engine

import (
	"context"

	"polder/evict/act"
	"polder/evict/settings"
	"polder/lib/stage"
)

// options are the command line.
type options struct {
	settings.Options
	action string
	// checkConfig is the configuration file that is only checked.
	checkConfig string
	// kubeconfig is empty for the cluster of the pod in which evict runs.
	kubeconfig          string
	list, thaw, explain bool
}

// Command returns evict with its flags.
func Command() stage.Command {
	var o options
	return stage.Command{
		Name:     "evict",
		Synopsis: "measure pressure on a node, taint it, and evict pods that must leave it",
		// --help only names these options, because there are too many of them.
		Families: []string{
			"per-", "taint-", "cpu-", "load-", "memory-", "memory-numa-", "memory-psi-",
			"reclaimed-", "rss-overuse-", "service-io-", "service-memory-", "service-waiting-", "suppression-",
		},
		FamiliesTitle: "Limits and settings of the rules (evict --list has their values, evict --manual the meaning)",
		Kind:          stage.Kind{Reads: true, Writes: true, State: true, Acts: true},
		Flags:         o.flags,
		Run: func(ctx context.Context, s *stage.Session) error {
			switch {
			case o.list:
				return o.List(s)
			case o.checkConfig != "":
				return o.Check(s, o.checkConfig)
			case o.thaw:
				return thaw(s)
			}
			return run(ctx, s, &o)
		},
	}
}

func (o *options) flags(f *stage.Flags) {
	f.Category("Evict")
	f.Choice(&o.action, "action", act.Log, "what happens to a victim", act.Log, act.EvictPods, act.DeletePods, act.FreezePods, act.KillPods)
	f.Path(&o.kubeconfig, "kubeconfig", "", "the cluster of `FILE`, for --action evict and delete\nThe default is the cluster in which evict runs as a pod.")
	f.Path(&o.Config, "config", "", "read settings from the YAML `FILE`, again on every change\nIts keys are the names of the flags; or it has Katalyst's configuration objects or "+
		"Koordinator's ConfigMap, in kubectl's form. Flags on the command line override it.")
	f.Bool(&o.list, "list", "print every rule, its settings and their sources, and end")
	f.Path(&o.checkConfig, "check-config", "", "validate --config `FILE`, print the resulting settings, and end\nOr print its error. The status is 0 or 2.")
	f.Bool(&o.explain, "explain", "do nothing; print why pods would be evicted or not\nAt the end of the input it prints for each node's last tick every rule's value "+
		"against its threshold, and every candidate with its rank and why it is a victim or not.")
	f.Bool(&o.thaw, "thaw", "thaw all pods that --action freeze has frozen, and end\nIt reads their list in --state.")
	o.AddFlags(f)
}
