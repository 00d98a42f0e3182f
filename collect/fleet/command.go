// Package fleet is collect fleet, the first stage of the fleet controller: it reads only the cluster, and writes a tick for each node.
package fleet

import (
	"time"

	"polder/collect/kubernetes/live"
	"polder/lib/stage"
)

// options are the command line.
type options struct {
	interval  time.Duration
	once      bool
	count     int
	readyFile string

	kubeconfig                                  string
	inCluster                                   bool
	nodeSelector, agentSelector, agentNamespace string
	reading                                     live.ReadingFlags

	leaseName                             string
	leaseDuration, leaseRenew, leaseRetry time.Duration
}

// Command is the subcommand.
func Command() stage.Command {
	o := new(options)
	return stage.Command{
		Name:     "collect fleet",
		Synopsis: "one tick per node, from the cluster only: its agent, and its reclaimed pods",
		Summary:  summary,
		Tasks:    tasks,
		Manual:   manual,
		Kind:     stage.Kind{Writes: true},
		Flags:    o.flags,
		Run:      o.run,
	}
}

// interval is the default time between two rounds. Agents are away for minutes, and each round writes a tick of every node.
const interval = 10 * time.Second

func (o *options) flags(f *stage.Flags) {
	f.Category("Rounds")
	f.Duration(&o.interval, "interval", interval, "time between two rounds, each of which is a tick of every node")
	f.Bool(&o.once, "once", "write one round and end")
	f.Int(&o.count, "count", 0, "end after this many rounds (0 is never)\nAll of them are written, however slow the next stage is.")
	f.Path(&o.readyFile, "ready-file", "", "touch `FILE` while nodes, pods and CustomNodeResources are current\nIt is touched once an interval, with the lease or without, for a readiness check.")
	f.Category("Cluster")
	f.Path(&o.kubeconfig, "kubeconfig", "", "watch the cluster that `FILE` names")
	f.Bool(&o.inCluster, "in-cluster", "watch the cluster that it runs in\nIt takes the service account of its pod.")
	f.String(&o.nodeSelector, "node-selector", "", "watch only nodes with these `LABELS`, as kubectl get -l")
	f.String(&o.agentSelector, "agent-selector", "app.kubernetes.io/name=polder", "`LABELS` of the agent (default app.kubernetes.io/name=polder)")
	f.String(&o.agentNamespace, "agent-namespace", "", "the agent's pods are in this `NAMESPACE`\nWithout it pods of all namespaces count, so that anyone who may create a pod can imitate an agent.")
	o.reading.Add(f)
	f.Category("Lease")
	f.String(&o.leaseName, "lease", "", "write ticks only while holding the Lease `NAMESPACE/NAME`\nOf several processes with the same lease one holds it.")
	f.Duration(&o.leaseDuration, "lease-duration", 15*time.Second, "other instances take the lease this long after its last renewal")
	f.Duration(&o.leaseRenew, "lease-renew-deadline", 10*time.Second, "end when the lease could not be renewed for this long")
	f.Duration(&o.leaseRetry, "lease-retry-period", 2*time.Second, "time between two attempts to get or to renew the lease")
}
