package fleet

import "polder/lib/stage"

// summary is the first part of --help and of the manual.
const summary = `
Reads the ticks of collect fleet, and decides about nodes whose agent is not ready. First such a
node gets a taint and offers nothing (report fleet writes that), then its reclaimed pods are
evicted, one node at a time. While many agents are not ready at once, nothing new is done to any
node. Nothing is done to pods unless --action is set.`

// tasks are the first part of the page in docs/; --help shows the first five, which tests run.
var tasks = []stage.Task{
	{Want: "See the rule and its settings", Command: `evict fleet --list`},
	{Want: "See which pods would have been evicted on a recording, with shorter times", Command: `evict fleet --dry-run --taint-after 2m --evict-after 5m < fleet.jsonl |
  jq -c '.node as $node | .eviction.evictions[]? | [$node, .namespace, .name]'`},
	{Want: "See which nodes would have been tainted, and when", Command: `evict fleet --dry-run < fleet.jsonl | jq -c 'select(.eviction.taints != null) | [.time, .node]'`},
	{Want: "See what would be done in a cluster, from outside of it", Command: `collect fleet --kubeconfig ~/.kube/config | evict fleet | report --to table`},
	{Want: "Run in a pod of the cluster, as the chart does", Command: `collect fleet --in-cluster --lease polder-system/polder-centre |
  evict fleet --action evict | report fleet --no-flush > /dev/null`},
}

// decision describes the rule, for --list and the manual.
const decision = `
If a node's agent has not been ready for taint-after, or has no pod on the node, the node's CustomNodeResource should have
the taint node.kubernetes.io/unschedulable:NoScheduleForReclaimedTasks, until the agent is ready again. After evict-after
all reclaimed pods of the node are evicted, with their own grace periods, at most nodes-per-minute nodes a minute: first nodes
that had no turn yet, then those that have been without an agent for longest.
Nothing new is done to any node while the agents of more than 2 nodes and of over 20 % of them, or of all nodes, are not ready:
then the cause is the network or the fleet controller. Nor is anything new done to a node with an unknown state. Existing taints stay.
`

// manual is the rest of the page in docs/ and of the man page.
const manual = `
Sections read: sample. Section written: eviction. docs/fleet.md describes the whole fleet controller: what it does to a node, when,
and how to install it.

DECISION` + decision + `
The rule's name in the section is agent-health; its value is the number of seconds for which the agent has not been ready. The section
has the taint that should be on the node, the evictions, and in "fleet" whether the protection is active ("protection"), whether nothing
new is done to this node ("held"), and how many nodes wait for their turn. The log has one line when the protection begins and one when
it ends.

Never a system pod, a static, mirror or critical pod, one that has ended or is terminating, or one annotated polder/evict=false
(--opt-out). If a round of ticks takes longer than the pause between two nodes, the pods of several nodes are evicted in one
round.

ACTIONS (--action)
   log      nothing: the tick has wouldEvict, and the log has a line when it begins
   evict    the API server's eviction of that very pod (its UID is a precondition), which a disruption budget may refuse
   delete   the pod is deleted, past its disruption budgets

Actions run beside the stream: the state changes from requested to created, and to succeeded or failed in later ticks. Nothing is done
for ticks that are too old (--max-age). At the end of the input evict waits for evictions in progress, at most 5 seconds. The cluster's
role needs to create pods/eviction or delete pods, get pods, and create and patch events in events.k8s.io.

--state keeps the taints, the turns and the evictions in progress, so that no pod is evicted twice after a restart. An eviction
that was requested without an answer is decided on again then, and counts as accepted if its pod terminates.

THE CONFIGURATION FILE (--config)
The configuration file of --config has the flags' names as keys:

      taint-after: 12m
      nodes-per-minute: 2

evict reads it again when it changes. If the file is invalid, evict logs the line of the error and keeps the last settings. A flag
overrides the file.`
