package fleet

import "polder/lib/stage"

// summary is the beginning of --help and of the manual.
const summary = `
Watches a cluster's nodes, pods and CustomNodeResources, and writes a tick for every node, all of
one time: whether a pod of the node's agent is ready and since when, how many agents of the cluster
are, and the node's reclaimed pods. It reads the API server alone, and changes nothing but its
lease. evict fleet and report fleet act on these ticks.`

// tasks begin the page in docs/; --help has the first five. Tests run them on a cluster.
var tasks = []stage.Task{
	{Want: "How is the agent of each node, and since when?", Command: `collect fleet --once --kubeconfig ~/.kube/config |
  jq -c '[.node, .sample.agent.state, .sample.agent.since]'`},
	{Want: "Which reclaimed pods are on nodes whose agent is away?", Command: `collect fleet --once --kubeconfig ~/.kube/config |
  jq -c 'select(.sample.agent.state != "ready") | [.node, .sample.pods[]?.name]'`},
	{Want: "What would be done about these nodes, with shorter times?", Command: `collect fleet --kubeconfig ~/.kube/config |
  evict fleet --taint-after 2m --evict-after 5m | report --to table`},
	{Want: "In a pod of the cluster, of which several run and one leads", Command: `collect fleet --in-cluster --lease polder-system/polder-centre |
  evict fleet --action evict | report fleet --no-flush > /dev/null`},
	{Want: "The agents are those of another installation", Command: `collect fleet --in-cluster --agent-namespace batch-system --agent-selector app=polder-agent |
  evict fleet | report fleet > /dev/null`},
}

// manual is the rest of the page in docs/ and of the manual page.
const manual = `
Section written: sample. Sections read: none. docs/fleet.md is about the fleet controller as a whole: what it does to a node, when, and how
it is installed.

TICKS
A round is one tick per node, every 10 s or --interval, all of one time. sample.agent has the state of the node's agent
(--agent-selector, --agent-namespace): ready, notReady or notFound, and since when; sample.fleet counts the nodes; sample.pods are the
node's reclaimed pods, as the cluster has them; sample.config has the verdicts on the configuration objects. A node that shows no sign of
an agent, now or before, is not counted.

Where the API server does not answer or refuses, the agent has no state, and sample.errors gives the reason: nothing is concluded from a
stale list. The time since when an agent is not ready outlives this process: report fleet writes it to the CustomNodeResource. Pods have
the classes that docs/collect.md describes.

LEADING (--lease)
With --lease only one of several processes writes ticks. The others watch, too, so that they know since when each agent has its state when
they become the leader. The leader ends with status 1 when it loses the lease, without the ticks that still wait; one that is stopped
releases the lease, and the next one leads at once. The Lease has the form of client-go's leader election.

WHAT IT REQUESTS OF THE CLUSTER
List and watch of all pods and nodes, of customnoderesources, katalystcustomconfigs, adminqosconfigurations and evictionconfigurations; get,
create and update of the lease.`
