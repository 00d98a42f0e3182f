package main

import "polder/lib/stage"

// summary is the start of --help and of the manual.
const summary = `
Reads ticks, decides from each sample what may be reclaimed and which CPUs or quotas the pods get,
and adds the section "advice". It changes nothing: isolate applies the advice, report publishes
it, and "advice.reasons" explains the result.`

// tasks begin the page in docs/; --help shows the first five, which tests run.
var tasks = []stage.Task{
	{Want: "See how much could be offered on this machine now", Command: `collect --once | advise | jq .advice.reclaimed`},
	{Want: "Find out why it is that much", Command: `collect --once | advise | jq -r '.advice.reasons[]'`},
	{Want: "Compute what a smaller reserve would have offered yesterday", Command: `advise --reserve-cpu 2 < yesterday.jsonl | jq .advice.reclaimed.milliCPU`},
	{Want: "Compare with the offer of another policy", Command: `advise --shadow koordinator < yesterday.jsonl | jq -c .advice.shadow.reclaimed`},
	{Want: "Validate a configuration file, and see the resulting settings", Command: `advise --check-config advise.yaml`},
	{
		Want:    "See which pods have which CPUs",
		Command: `collect --once | advise | jq -c '.advice.cgroups[]? | [.cgroup, .cpusetCPUs, .cpusetMems]'`,
	},
	{Want: "See the offer by Koordinator's formulas, term by term", Command: `collect --count 2 | advise --policy koordinator | tail -n 1 | jq -r '.advice.reasons[]'`},
	{Want: "Try another ConfigMap on yesterday's recording", Command: `advise --policy koordinator --config slo-controller-config.yaml < yesterday.jsonl | jq .advice.reclaimed`},
	{Want: "See the predicted need of the services on this machine", Command: `collect --interval 1m | advise --policy harvest --state h.json | jq -r '.advice.reasons[0]'`},
	{
		Want:    "Run once a minute from cron, with hold-downs kept between runs",
		Command: `collect --once --state c.json | advise --state a.json | isolate --at-end keep --journal j`,
	},
}

// manual is the rest of the page in docs/ and of the manual page.
const manual = `
Sections read: sample. Section written: advice.

THE CONFIGURATION FILE (--config)
The keys of the configuration file are the flags' names. advise reads the file again when it changes; only a change of the policy
needs a restart:

      policy: katalyst
      reserve-cpu: 2
      hold: 1m

Flags on the command line (or environment variables) override the file, the file overrides the cluster's configuration in
"sample.config" (Katalyst's AdminQoSConfiguration), and that overrides the defaults; "advice.reasons" names the source of each
value that bounded the result. If a changed file is invalid, advise logs the line of the error and keeps the last settings.

The file may also contain Katalyst's objects, in kubectl's form: the AdminQoSConfiguration that selects the tick's node replaces
the cluster's. docs/configuration.md has the fields.

Or Koordinator's ConfigMap slo-controller-config: it replaces the one in "sample.config" and is resolved with the tick's labels
and annotations of the node. An invalid document is refused, with the line of the error.

POLICY KATALYST, PODS OF A CLUSTER
   Shared pods whose annotation katalyst.kubewharf.io/cpu_enhancement names a cpuset_pool have a pool of that name; a new
   pod runs on all CPUs except the dedicated and reserved ones for 30s. A dedicated pod has CPUs of its own; with numa_binding
   in katalyst.kubewharf.io/memory_enhancement they and its memory are of one NUMA node, with numa_exclusive it has whole
   nodes. CPUs that kubelet has assigned exclusively are in no pool. Kubelet's cgroup of the BestEffort pods is limited to the
   reclaim pool as well, if that is safe. docs/policy-katalyst.md has the rules.

POLICY KOORDINATOR
   Resources that high-priority pods and the system do not use, less a safety margin, are offered as batch-cpu and
   batch-memory, and resources that prod pods request but will not use are offered to mid pods: "advice.reclaimed" and "advice.mid".
   Batch pods are limited to the CPUs, or to a quota, that the services' use leaves ("advice.cgroups"); CPU burst, memory QoS and
   resctrl are set if their strategies are enabled. The ConfigMap slo-controller-config configures all of this; collect
   --slo-config writes it to "sample.config". Without it Koordinator's shipped values are in force: colocation and suppression on,
   all else off. If the ConfigMap cannot be read the last one stays in force. While the node's use is unknown the last offer stays
   for degradeTimeMinutes (15); then "advice.withdrawn" has the reason, and report withdraws the offer. Other policies'
   settings are refused. docs/policy-koordinator.md has the formulas.

POLICY HARVEST
   The services' need is predicted from their largest use of the last 10 minutes and of the hour, and from earlier growth
   on this machine; the rest is offered, with few changes: the offer rises late and in steps, and falls in steps while the
   services have enough CPUs. New pods count with their requests for 10m. Memory is offered likewise; page cache that can be
   reclaimed is not counted. Batch leaves as many whole cores as it takes for a buffer of CPUs to be idle for the services' bursts;
   services are not limited. Machines with fewer than 16 CPUs have no buffer: there the scheduling class limits batch. While
   the services' use is unknown the last offer is repeated; after 15m "advice.withdrawn" has the reason. --state has the history.
   docs/policy-harvest.md has the rules and the figures.

SERVICES THAT WAIT
   Under policy harvest, and under the others with --guard on, batch loses CPUs, then quota, then memory, in steps, while a service
   waits longer for a CPU, memory or I/O than without batch; the steps are reverted slowly. "advice.reasons" has each step and its
   cause. If batch uses almost nothing, or the steps have no effect, batch is not the cause and is not limited. docs/guard.md has the
   rules.

MEMORY
   A reclaimed pod's limits of reclaimed CPU are the quota of its cgroup, and those of reclaimed memory limit its containers
   if batch's memory is capped (policies katalyst and harvest; Koordinator's policy has its own). --batch-memory cap limits batch's
   memory to what is offered and free, and --service-memory protect sets services' memory.low to their working set: both are on
   under policy harvest. Limits fall in steps, and are never more than a tenth below the current use.
   --batch-reclaim cold reclaims a part of the memory of batch pods every 6 s, as long as their waiting for memory and their
   refaults stay low ("advice.memoryReclaim", which isolate does once). docs/memory.md has the rules.

NETWORK
   --batch-network-rate guarantees batch a part of each uplink ("advice.network"); batch may use idle bandwidth, and services have
   priority. The uplinks are the links with a default route, or --network-links, and always among those of "sample.links". isolate --only
   network applies it. docs/network.md has the rules.`
