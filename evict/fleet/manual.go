package fleet

import "polder/lib/stage"

// summary is what --help and the manual begin with.
const summary = `
Reads the ticks of collect fleet, and decides about nodes whose agent is not ready. First such a
node should have a taint and offer nothing (report fleet sees to that), then its reclaimed pods are
evicted, a node at a time. While many agents are not ready at once, nothing new is done to any
node. Nothing is done to pods unless --action asks for it.`

// tasks begin the page in docs/; --help has the first five, which tests run.
var tasks = []stage.Task{
	{Want: "What is decided, with which settings?", Command: `evict fleet --list`},
	{Want: "Which pods would have been evicted that day, with shorter times?", Command: `evict fleet --dry-run --taint-after 2m --evict-after 5m < fleet.jsonl |
  jq -c '.node as $node | .eviction.evictions[]? | [$node, .namespace, .name]'`},
	{Want: "Which nodes would have been tainted, and when?", Command: `evict fleet --dry-run < fleet.jsonl | jq -c 'select(.eviction.taints != null) | [.time, .node]'`},
	{Want: "In a cluster, from outside of it, to see what would be done", Command: `collect fleet --kubeconfig ~/.kube/config | evict fleet | report --to table`},
	{Want: "In a pod of the cluster, as the chart does", Command: `collect fleet --in-cluster --lease polder-system/polder-centre |
  evict fleet --action evict | report fleet --no-flush > /dev/null`},
}

// decision is how it is decided, for --list and the manual.
const decision = `
Where a node's agent has not been ready for taint-after, or no pod of it is there, the node's CustomNodeResource should have
the taint node.kubernetes.io/unschedulable:NoScheduleForReclaimedTasks, until the agent is ready again. After evict-after
the node's reclaimed pods are evicted, all of them, with their own grace periods, at most nodes-per-minute nodes a minute: nodes that
had no turn yet before others, then those that have been without an agent for longest.
Nothing new is done to any node while the agents of more than 2 nodes and of over 20 % of them are not ready, or of all:
that is the network or the fleet controller. Nor to a node of which it is not known how it is. What holds then stays.
`

// manual is the rest, for the page in docs/ and for man.
const manual = `
Sections read: sample. Section written: eviction. docs/fleet.md is about the fleet controller as a whole: what it does to a node, when,
and how it is installed.

DECISION` + decision + `
The rule's name in the section is agent-health; its value is for how many seconds the agent has not been ready. The tick's section has
which taint should be on the node, which pods are evicted, and in "fleet" whether the protection holds ("protection"), whether nothing new
is done to this node ("held"), and how many nodes wait for their turn. The log has one line when the protection begins and one when it ends.

Never a system pod, a static, mirror or critical pod, one that has ended or is terminating, or one annotated polder/evict=false
(--opt-out). Where a round of ticks takes longer than the pause between two nodes, those of one round are evicted together.

WHAT HAPPENS TO PODS (--action)
   log      nothing: the tick has wouldEvict, and the log has a line when it begins
   evict    the API server's eviction of that very pod (its UID is a precondition), which a disruption budget may refuse
   delete   the pod is deleted, past its disruption budgets

It runs beside the stream: states go from requested over created to succeeded or failed in later ticks. Nothing is done for ticks that
are too old (--max-age). At the end of the input evict waits for 5 seconds at most for what was begun. The cluster's role needs to create
pods/eviction or delete pods, get pods, and create and patch events in events.k8s.io.

--state keeps the taints, the turns and the evictions in progress: a restart evicts nobody twice.

THE CONFIGURATION FILE (--config)
The configuration file of --config has the flags' names as keys:

      taint-after: 12m
      nodes-per-minute: 2

It is read again when it changes. A file that is invalid is refused with its line, and the settings before stay. A flag wins over the file.`
