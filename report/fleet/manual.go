package fleet

import "polder/lib/stage"

// summary is the beginning of --help and of the manual.
const summary = `
Reads the ticks of collect fleet and evict fleet, and writes them to every node's objects: the state
of the node's agent, the taint of a node whose agent is away, and that such a node offers nothing
until its agent is back. It writes to each KatalystCustomConfig whether its objects are valid. With
--dry-run it asks no cluster, and logs what it would write.`

// tasks begin the page in docs/; --help has the first five, which tests run.
var tasks = []stage.Task{
	{Want: "What would be written, by a recording?", Command: `report fleet --dry-run < fleet.jsonl > /dev/null`},
	{Want: "And what, with other times until a node is tainted?", Command: `evict fleet --max-age 0 --taint-after 2m < fleet.jsonl | report fleet --dry-run > /dev/null`},
	{Want: "In a cluster, from outside of it, without evicting", Command: `collect fleet --kubeconfig ~/.kube/config | evict fleet |
  report fleet --kubeconfig ~/.kube/config > /dev/null`},
	{Want: "In a pod of the cluster, as the chart does", Command: `collect fleet --in-cluster --lease polder-system/polder-centre |
  evict fleet --action evict | report fleet --no-flush > /dev/null`},
	{Want: "Remove what the fleet controller wrote, when it has ended for good", Command: `report fleet --withdraw --kubeconfig ~/.kube/config`},
}

// manual is the rest of the page in docs/ and of the manual page.
const manual = `
Sections read: sample, eviction. Section written: report, with the targets fleet and kcc. docs/fleet.md is about the fleet controller as a
whole: what it does to a node, when, and how it is installed.

WHAT IS WRITTEN
A node's CustomNodeResource, created if it is missing, gets the conditions AgentReady and AgentNotFound (AgentReady's lastTransitionTime is
since when; they are written at least every 5 minutes, so that a new fleet controller knows that the agent was observed), and the taints
that evict decided on, besides all others (the annotation polder/fleet-taints names them). Where evict taints a node, its offer is
withdrawn from the Node's status and from the CustomNodeResource, because no stock scheduler reads that taint; first the Node gets the
annotation polder/withdrawn with the reason. While that is set, the node's own report offers nothing, even if the rest of its agent does
not work. When the agent is ready, taint and annotation are removed, and the node's own report offers again.

A tick in which evict acts on no node (its protection, or an unknown state of the agent) leaves taints, annotation and offer as they are,
and so does a missing tick. Only what the objects lack is written. Of a dry run of evict only the conditions are written.

Each KatalystCustomConfig's status gets whether its objects are valid, as by report --to kcc.

THE END
At the end of its input the waiting writes are carried out, within some seconds; with --no-flush they are dropped, and only the writes in
progress end. That is for a live input, which ends when collect loses the lease, because another leader then has newer decisions.
--withdraw removes taints, annotations and conditions from all nodes.

WHAT IT ASKS OF THE CLUSTER
nodes get, list, watch, patch; nodes/status patch; customnoderesources get, list, watch, create, patch; customnoderesources/status patch;
katalystcustomconfigs get, katalystcustomconfigs/status patch. The CRDs are in deploy/kubernetes/crds.`
