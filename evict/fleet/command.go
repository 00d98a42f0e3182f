// Package fleet is evict fleet, the second stage of the fleet controller: for nodes whose agent is not ready it evicts the reclaimed
// pods. Package health decides.
package fleet

import (
	"context"
	"fmt"
	"os"

	"polder/evict/act"
	"polder/evict/fleet/health"
	"polder/evict/progress"
	"polder/lib/stage"
	"polder/lib/tick"
)

// options are the command line.
type options struct {
	settingsOptions
	action     string
	kubeconfig string // empty for the cluster of the pod in which it runs
	list       bool
}

// Command is the subcommand.
func Command() stage.Command {
	o := new(options)
	return stage.Command{
		Name:     "evict fleet",
		Synopsis: "taint nodes whose agent is not ready, and evict their reclaimed pods",
		Summary:  summary,
		Tasks:    tasks,
		Manual:   manual,
		Kind:     stage.Kind{Reads: true, Writes: true, State: true, Acts: true, AllNodes: true},
		Flags:    o.flags,
		Run:      o.run,
	}
}

func (o *options) flags(f *stage.Flags) {
	f.Category("Evict")
	f.Choice(&o.action, "action", act.Log, "what happens to a victim", act.Log, act.EvictPods, act.DeletePods)
	f.Path(&o.kubeconfig, "kubeconfig", "", "the cluster of `FILE`, for --action evict and delete\nThe default is the cluster in which evict runs as a pod.")
	f.Path(&o.config, "config", "", "read settings from the YAML `FILE`, again on every change\nIts keys are the names of the flags below. Flags on the command line override it.")
	f.Bool(&o.list, "list", "print the settings and their sources, and end")
	f.Category("Settings")
	o.addFlags(f)
}

// qps bounds the requests per second: the fleet controller waits for pods of several nodes at the same time.
const qps = 100

func (o *options) run(ctx context.Context, s *stage.Session) error {
	if o.list {
		inForce, err := o.resolve(s)
		if err != nil {
			return err
		}
		return inForce.list(s)
	}
	c := newController(s)
	if err := o.watch(ctx, s, &c.settings); err != nil {
		return err
	}
	if err := c.load(); err != nil {
		return err
	}
	var runner *act.Runner
	if o.action != act.Log && !s.DryRun {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("read the host name: %w", err)
		}
		if runner, err = c.Cluster(o.action, o.kubeconfig, host, qps); err != nil {
			return fmt.Errorf("--action %s: %w", o.action, err)
		}
	}
	c.Begin(ctx, runner)
	return c.Finish(c.processTicks(ctx))
}

const stateVersion = 1

// savedState is the state file's content.
type savedState struct {
	Nodes map[string]*progress.Record `json:"nodes"`
	Fleet *health.State               `json:"fleet,omitempty"`
}

// load reads --state. A reboot of the machine on which this process runs does not matter: it is none of the nodes.
func (c *controller) load() error {
	var s savedState
	found, err := c.session.LoadState(stateVersion, &s)
	if err != nil || !found {
		return err
	}
	if s.Fleet != nil {
		c.state = *s.Fleet
		c.state.Init()
	}
	for name, r := range s.Nodes {
		if r != nil {
			r.DropInvalid()
			c.nodes[name] = r
		}
	}
	return nil
}

// snapshot encodes the state, on the goroutine of the stream.
func (c *controller) snapshot() (tick.Raw, error) {
	return tick.Marshal(savedState{Nodes: c.nodes, Fleet: &c.state})
}
