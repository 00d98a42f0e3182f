package live

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"polder/collect/fleet/agents"
	"polder/lib/customconfig"
	"polder/lib/kube"
	"polder/lib/tick"
)

// FleetOptions select the cluster and its objects.
type FleetOptions struct {
	// Kubeconfig is a file's path; empty means the service account of this process's pod.
	Kubeconfig string
	UserAgent  string
	Reading    agents.Reading
	// Nodes is a label selector; empty is all nodes.
	Nodes string
	Now   func() time.Time
	Log   *slog.Logger
}

// Fleet is one watch each of the nodes, of all their pods, of the CustomNodeResources, and of the configuration objects. Fields
// that are not needed are dropped as an object arrives. It is not safe for concurrent use.
type Fleet struct {
	registry
	nodes   *kube.Watch[*agents.Node]
	pods    *kube.Watch[*agents.Pod]
	records *kube.Watch[*agents.Record]
}

// boundPods are the pods that have a node and have not ended.
const boundPods = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

// OpenFleet begins to watch and does not wait. The watches end with ctx.
func OpenFleet(ctx context.Context, o FleetOptions) (*Fleet, error) {
	client, err := kube.Open(kube.Options{Kubeconfig: o.Kubeconfig, UserAgent: o.UserAgent})
	if err != nil {
		return nil, err
	}
	f := &Fleet{registry: openRegistry(ctx, client, o.Now)}
	f.log = o.Log
	f.nodes = kube.Start(ctx, client, kube.Selection{Resource: kube.Nodes, Labels: o.Nodes}, o.Now, agents.NodeOf)
	f.pods = kube.Start(ctx, client, kube.Selection{Resource: kube.Pods, Fields: boundPods}, o.Now, o.Reading.Pod)
	records := kube.Selection{Resource: kube.CustomNodeResources, RetryUnknown: retryInterval}
	f.records = kube.Start(ctx, client, records, o.Now, agents.RecordOf)
	return f, nil
}

// Client is the client of the same server.
func (f *Fleet) Client() *kube.Client { return f.client }

// Wait waits until everything was read once, or ctx ends.
func (f *Fleet) Wait(ctx context.Context) {
	if f.nodes.WaitSynced(ctx) == nil && f.pods.WaitSynced(ctx) == nil && f.records.WaitSynced(ctx) == nil {
		f.wait(ctx)
	}
}

// ConfigSource is the source of the errors about configuration objects.
const ConfigSource = "config"

// Seen is the observed state of the cluster now.
func (f *Fleet) Seen() agents.Seen {
	// The states come before the lists: a list that becomes current in between must not count as current with its older content.
	nodes, pods := f.listError("the list of nodes", f.nodes.State()), f.listError("the list of pods", f.pods.State())
	recordsState := f.records.State()
	records := f.listError("the list of CustomNodeResources", recordsState)
	s := agents.Seen{Nodes: f.nodes.List(), Pods: f.pods.List(), Records: f.records.List()}
	note := func(source string, err error) {
		if err != nil {
			s.Errors = append(s.Errors, tick.SourceError{Source: source, Error: err.Error()})
		}
	}
	note("nodes", nodes)
	note("pods", pods)
	note("customnoderesources", records)
	switch {
	case nodes != nil:
		s.Stale = nodes.Error()
	case pods != nil:
		s.Stale = pods.Error()
	case !recordsState.Synced: // after the first reading the records' contents are remembered
		s.Stale = records.Error()
	}
	f.follow()
	in := f.configs()
	for _, kind := range in.Absent {
		note(ConfigSource, fmt.Errorf("a KatalystCustomConfig is for %s, which the cluster does not have", kind.Resource))
	}
	for _, err := range f.configErrors() {
		note(ConfigSource, err)
	}
	if verdicts := f.verdicts(&in); f.targets.State().Synced && len(verdicts) > 0 {
		raw, err := tick.Marshal(map[string]any{"katalyst": map[string]any{customconfig.VerdictsKey: verdicts}})
		note(ConfigSource, err)
		s.Config = raw
	}
	return s
}
