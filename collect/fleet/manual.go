package fleet

import "polder/lib/stage"

// summary is what --help and the manual begin with.
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

// manual is the rest, for the page in docs/ and for man.
const manual = `
Section written: sample. Sections read: none. docs/fleet.md is about the fleet controller as a whole: what it does to a node, when, and how
it is installed.

TICKS
A round is a tick a node, every 10 s unless --interval says otherwise, all of one time. sample.agent says whether a pod of the node's agent
(--agent-selector, --agent-namespace) is ready, notReady or notFound, and since when; sample.fleet counts the nodes; sample.pods are the
node's reclaimed pods, as the cluster has them; sample.config says of the configuration objects whether they are in order. A node that bears
no sign of an agent, now or before, is not counted.

Where the API server is away or refuses, the agent has no state, and sample.errors says why: nothing is concluded from an old list. Since
when an agent is not ready outlives this process: report fleet writes it down in the CustomNodeResource. A pod's class is that of
docs/collect.md.

LEADING (--lease)
With --lease only one of several processes writes ticks. The others watch, too, so that they know since when an agent is as it is when
their turn comes. The process that leads ends with status 1 when it loses the lease, without the ticks that still wait; one that is stopped
gives the lease up, and the next one leads at once. The Lease is that of client-go's leader election.

WHAT IT ASKS OF THE CLUSTER
List and watch of all pods and nodes, of customnoderesources, katalystcustomconfigs, adminqosconfigurations and evictionconfigurations; get,
create and update of the lease.`
