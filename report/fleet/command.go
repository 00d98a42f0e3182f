// Package fleet is report fleet, the last stage of the fleet controller: it writes the decisions of the others about every node to the
// node's objects, by package cluster.
package fleet

import (
	"context"

	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/cluster"
)

// Command is the subcommand.
func Command() stage.Command {
	o := new(cluster.FleetOptions)
	return stage.Command{
		Name:     "report fleet",
		Synopsis: "write each node's agent state to the cluster, taint nodes, and withdraw their offer",
		Summary:  summary,
		Tasks:    tasks,
		Manual:   manual,
		Kind:     stage.Kind{Reads: true, Writes: true, Acts: true, AllNodes: true},
		Flags:    o.Flags,
		Run: func(ctx context.Context, s *stage.Session) error {
			if o.Withdraw {
				return o.RunWithdraw(ctx, s)
			}
			return run(ctx, s, o)
		},
	}
}

func run(ctx context.Context, s *stage.Session, o *cluster.FleetOptions) (err error) {
	targets, err := o.Open(ctx, s)
	if err != nil {
		return err
	}
	defer func() {
		if e := targets.Close(); err == nil {
			err = e
		}
	}()
	return s.Filter(ctx, stage.Filter{
		Section: tick.SectionReport,
		Reads:   []string{tick.SectionSample, tick.SectionEviction},
		Handle:  func(_ context.Context, in stage.Incoming) (any, error) { return targets.Put(in) },
	})
}
