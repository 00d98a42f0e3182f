package main

import "polder/lib/stage"

// summary is what --help and the manual begin with.
const summary = `
Reads ticks, decides from each sample what may be reclaimed and which CPUs or quotas the pods get,
and adds the section "advice". It touches nothing: isolate applies the advice, report publishes
it, and "advice.reasons" names what bound the result.`

// tasks begin the page in docs/; --help has the first five, which tests run.
var tasks = []stage.Task{
	{Want: "What is free on this machine right now?", Command: `collect --once | advise | jq .advice.reclaimed`},
	{Want: "Why is so much or so little offered?", Command: `collect --once | advise | jq -r '.advice.reasons[]'`},
	{Want: "What would a smaller reserve have given yesterday?", Command: `advise --reserve-cpu 2 < yesterday.jsonl | jq .advice.reclaimed.milliCPU`},
	{Want: "What would another policy offer, while this one decides?", Command: `advise --shadow koordinator < yesterday.jsonl | jq -c .advice.shadow.reclaimed`},
	{Want: "Is this file good, and what would be in force with it?", Command: `advise --check-config advise.yaml`},
	{Want: "Which pods have which CPUs?", Command: `collect --once | advise | jq -c '.advice.cgroups[] | [.cgroup, .cpusetCPUs, .cpusetMems]'`},
	{Want: "What would Koordinator's formulas offer here, term by term?", Command: `collect --count 2 | advise --policy koordinator | tail -n 1 | jq -r '.advice.reasons[]'`},
	{Want: "And with another ConfigMap, over yesterday's recording?", Command: `advise --policy koordinator --config slo-controller-config.yaml < yesterday.jsonl | jq .advice.reclaimed`},
	{Want: "What will services need here, and how sure is that?", Command: `collect --interval 1m | advise --policy harvest --state h.json | jq -r '.advice.reasons[0]'`},
	{Want: "Once a minute from cron, with the hold-down kept between runs", Command: `collect --once --state c.json | advise --state a.json | isolate --journal j`},
}

// manual is the rest, for the page in docs/ and for man.
const manual = `
Sections read: sample. Section written: advice.

THE CONFIGURATION FILE (--config)
The configuration file of --config has the flags' names as keys, and is read again when it changes; the policy alone takes a
restart:

      policy: katalyst
      reserve-cpu: 2
      hold: 1m

Flags given on the command line (or by environment variables) win over the file, the file over what the cluster has in
"sample.config" (Katalyst's AdminQoSConfiguration), and that over the defaults; "advice.reasons" names the source of each
value that bound the result. A changed file that is invalid is refused with its line.

The file may as well have Katalyst's objects, as kubectl takes them: the AdminQoSConfiguration among them that is meant for the
tick's node stands in the place of the cluster's. docs/configuration.md has the fields.

Or Koordinator's ConfigMap slo-controller-config, likewise: it stands in the place of the one in "sample.config" and is resolved
with the node's labels and annotations there. A document that is invalid is refused with its line.

POLICY KATALYST, PODS OF A CLUSTER
   Shared pods whose annotation katalyst.kubewharf.io/cpu_enhancement names a cpuset_pool have a pool of that name; a new
   one runs on all CPUs but the dedicated and reserved ones for 30s. A dedicated pod has CPUs of its own; with numa_binding
   in katalyst.kubewharf.io/memory_enhancement they and its memory are of one NUMA node, with numa_exclusive it has whole
   nodes. CPUs that kubelet gave to containers are in no pool. Kubelet's cgroup of the BestEffort pods is confined to the reclaim
   pool as well, where that is safe. docs/policy-katalyst.md has the rules.

POLICY KOORDINATOR
   What high-priority pods and the system leave of the node, beside a safety margin, is offered as batch-cpu and
   batch-memory, and what prod pods have asked for and will not use to mid pods: "advice.reclaimed" and "advice.mid". Batch
   pods are limited to the CPUs, or to a quota, that the services' use leaves ("advice.cgroups"); CPU burst, memory QoS and
   resctrl follow where their strategies are enabled. All of it is set by the ConfigMap slo-controller-config, which collect
   --slo-config puts in "sample.config"; where nobody reads one, Koordinator's shipped values hold: colocation and
   suppression on, all else off. Where a ConfigMap cannot be read the last one stays in force. While the node's use is
   unknown the last offer stays for degradeTimeMinutes (15); then "advice.withdrawn" has why nothing is offered any more,
   and report takes it back. Other policies' settings are refused. docs/policy-koordinator.md has the formulas.

POLICY HARVEST
   What services will need is predicted from their largest use of the last 10 minutes and of the hour, and from how much it grew
   from there before, on this machine; the rest is offered, and stays promised: the offer rises late and by steps, and falls by
   steps while the services have room. New pods count with their requests for 10m. Memory likewise, without page cache that can be dropped.
   Batch runs on all CPUs but whole cores for what services use and a buffer of idle ones for their bursts; services are confined to
   nothing. Machines with fewer than 8 CPUs have no buffer: there the scheduling class holds batch. While the services' use is
   unknown nothing new is offered, and after 15m "advice.withdrawn" has why there is no offer. --state has the history.
   docs/policy-harvest.md has the rules and the figures.

SERVICES THAT WAIT
   Under policy harvest, and under the others with --guard on, batch loses CPUs, then quota, then memory, in steps, while a service
   waits longer for a CPU, memory or I/O than it does without batch; it gets them back slowly. "advice.reasons" has each step and its
   cause. Where batch uses next to nothing, or taking changes nothing, batch is not the cause and is left alone. docs/guard.md has the
   rules.

MEMORY
   A reclaimed pod's limits of reclaimed CPU are the quota of its cgroup, and those of reclaimed memory limit its containers
   where batch's memory is capped (policies katalyst and harvest; Koordinator's policy has its own). --batch-memory cap holds all of
   batch to what is offered and free, and --service-memory protect gives services memory.low up to their working set: both on
   under policy harvest. Limits fall in steps and never under what is in use at that moment by more than a tenth.
--batch-reclaim cold takes a part of what batch pods hold back every 6 s, for as long as their own waiting for memory and what they
need again bear it ("advice.memoryReclaim", which isolate does once). docs/memory.md has the rules.

NETWORK
   --batch-network-rate guarantees batch a part of each uplink ("advice.network"), lets it take what is idle, and lets services come first.
   The uplinks are the links with a default route, or --network-links, and always among those of "sample.links". isolate --only
   network applies it. docs/network.md has the rules.`
