package fleet

import "polder/lib/stage"

// summary is what --help and the manual begin with.
const summary = `
Reads the ticks of collect fleet and evict fleet, and writes them to every node's objects: how the
node's agent is, the taint of a node whose agent is away, and that such a node offers nothing until
its agent is back. It writes to each KatalystCustomConfig whether its objects are in order. With
--dry-run it asks no cluster, and logs what it would write.`

// tasks begin the page in docs/; --help has the first five, which tests run.
var tasks = []stage.Task{
	{Want: "What would be written, by a recording?", Command: `report fleet --dry-run < fleet.jsonl > /dev/null`},
	{Want: "And what, with other times until a node is tainted?", Command: `evict fleet --max-age 0 --taint-after 2m < fleet.jsonl | report fleet --dry-run > /dev/null`},
	{Want: "In a cluster, from outside of it, without evicting", Command: `collect fleet --kubeconfig ~/.kube/config | evict fleet |
  report fleet --kubeconfig ~/.kube/config > /dev/null`},
	{Want: "In a pod of the cluster, as the chart does", Command: `collect fleet --in-cluster --lease polder-system/polder-centre |
  evict fleet --action evict | report fleet --no-flush > /dev/null`},
	{Want: "Take back what the fleet controller wrote, when it has ended for good", Command: `report fleet --withdraw --kubeconfig ~/.kube/config`},
}

// manual is the rest, for the page in docs/ and for man.
const manual = `
Sections read: sample, eviction. Section written: report, with the targets fleet and kcc. docs/fleet.md is about the fleet controller as a
whole: what it does to a node, when, and how it is installed.

WHAT IS WRITTEN
A node's CustomNodeResource, made if it is missing, gets the conditions AgentReady and AgentNotFound (AgentReady's lastTransitionTime is
since when; written at least every 5 minutes, so that a new fleet controller knows that somebody looked), and the taints that evict decided
on, beside all others (the annotation polder/fleet-taints names them). Where evict taints a node, what it offers is withdrawn from the
Node's status and from the CustomNodeResource, for no stock scheduler reads that taint; first the Node gets the annotation polder/withdrawn
with the reason, and while it is there the node's own report, which may be half alive, offers nothing. When the agent is ready, taint and
annotation go, and the node's own report offers again.

A tick in which evict holds back (its protection, or nobody knows how the agent is) leaves taints, annotation and offer as they are, and so
does silence. Nothing is written but what the objects lack. Of a dry run of evict only the conditions are written.

Each KatalystCustomConfig's status has whether its objects are in order, as report --to kcc does.

THE END
At the end of its input what waits is written, if it can be within seconds; with --no-flush it is dropped, and only the writes under way
end: for a live input, which ends where collect loses the lease, and what waits is what another leader knows better. --withdraw takes
taints, annotations and conditions away from all nodes.

WHAT IT ASKS OF THE CLUSTER
nodes get, list, watch, patch; nodes/status patch; customnoderesources get, list, watch, create, patch; customnoderesources/status patch;
katalystcustomconfigs get, katalystcustomconfigs/status patch. The CRDs are in deploy/kubernetes/crds.`
