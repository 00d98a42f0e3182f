package main

import "polder/lib/stage"

// summary is the beginning of --help and of the manual.
const summary = `
Reads /proc, /sys and the control groups (version 1 and 2), and writes one line of JSON, a tick, an
interval: the machine's topology and use, and each container's CPU use, load, memory, throttling,
cpuset and threads. It changes nothing. A value that could not be read is absent, and sample.errors
gives the reason. Rules select the cgroups that are pods (--classify); with --kubeconfig or
--in-cluster their names and classes come from the cluster. collect fleet reads the cluster alone,
for all nodes.`

// tasks begin the page in docs/; --help has the first five, which tests run.
var tasks = []stage.Task{
	{Want: "What does each pod of this machine use?", Command: `collect --once | jq '.sample.pods[]? | {name, qos, usageMilliCPU}'`},
	{Want: "Watch this machine, and what could be reclaimed of it", Command: `collect | advise | report --to tty`},
	{Want: "Record it from cron, with rates since the last run", Command: `collect --once --state collect.json >> day.jsonl`},
	{Want: "Which cgroups are pods? Write rules, and check them", Command: `collect --print-classify > rules.yaml; collect --check-config rules.yaml`},
	{Want: "Take the pods from a file (kubectl get pods -A -o json) instead of a cluster", Command: `collect --once --node n1 --pods pods.json`},
	{Want: "Which containers are throttled now?", Command: `collect --count 2 | tail -n 1 | jq -c '.sample.pods[]? | .name as $pod | .containers[]? | select(.throttledPercent > 0) | [$pod, .name, .throttledPercent]'`},
	{Want: "On a node of a cluster, as the agent does", Command: `collect --in-cluster --state /var/lib/polder/collect.json | advise | report --to cnr`},
	{Want: "With Koordinator's settings", Command: `collect --in-cluster --slo-config koordinator-system/slo-controller-config | advise --policy koordinator`},
	{Want: "For all nodes, beside their agents", Command: `collect fleet --in-cluster --lease polder-system/polder-centre | evict fleet | report fleet --no-flush > /dev/null`},
	{Want: "Look at a copy of another machine's /proc and /sys", Command: `collect --once --root /var/crash/node7 --classify rules.yaml`},
}

// manual is the rest of the page in docs/ and of the manual page.
const manual = `
Section written: sample. Sections read: none.

PODS WITHOUT A CLUSTER
Without a cluster, rules select the cgroups that are pods (--classify; --print-classify prints the rules in force without it:
kubepods by QoS tier, *.slice otherwise). The first rule whose glob matches a cgroup's path decides:

   rules:
     - cgroup: /kubepods/burstable/pod*
       class: shared            # dedicated, shared, reclaimed, system; none = no pod, look inside
       containers: children     # the pod's containers are its child cgroups; the default is self
     - cgroup: /batch.slice/*
       class: reclaimed
       namespace: batch
       requests: {reclaimedMilliCPU: 2000, reclaimedMemoryBytes: 1Gi}

Each cgroup that matches is a pod, also one within another (** matches both): its use then counts twice in sums over pods, so a rule
should match either the outer or the inner ones. On cgroup version 1 only the cgroups in the hierarchy that accounts for CPU time are
found. A cgroup whose name is not UTF-8, or has control characters, is no pod; sample.errors names it, and a cgroup that contains only
such ones and reclaimed pods is batch's.

PODS OF A CLUSTER
With a cluster (--kubeconfig or --in-cluster; --pods for the pods alone) the rules still find the cgroups of pods, and the
cluster's pods are matched with them by the UID and the container ids in the cgroups' names (cgroupfs and systemd
driver; containerd, CRI-O, Docker; kubelet's cgroupRoot by --cgroup-root). A pod without a cgroup has missing "cgroup", unless
it has ended. A pod's cgroup without a pod object has missing "cluster", and the last known data of the pod apply while the cgroup
exists; a pod of which nothing was known does not count as reclaimed. The sandbox's cgroup (the pause container's) is in no list.
A new container's cgroup can exist before the pod's status has the container's ID. If exactly one container of the pod and one cgroup
are unmatched, collect uses that container's name; otherwise it uses the cgroup's name. Under CRI-O most pods have no sandbox cgroup.
There, while a container's ID is missing, collect counts each unmatched cgroup as a container. The containers of a virtual machine
(runtimeClassName, as with Kata) have one cgroup, which is listed as the container, or under its own name if there are several.
gVisor's containers have cgroups of their own, but their use is in the sandbox's: its memory counts as the pod's, its CPU time does not.

While a pod is resized in place, its requests are what the scheduler counts: the largest of the desired, allocated and actual sums,
without the desired one if kubelet has found that infeasible. Its limits are the smaller ones of the desired and the actual limits.

CLASSES OF PODS
A pod's class is that of the first of these:

   annotation katalyst.kubewharf.io/qos_level    dedicated_cores, shared_cores, reclaimed_cores, system_cores
   label koordinator.sh/qosClass                 LSE and LSR: dedicated; LS: shared; BE: reclaimed; SYSTEM: system
   a request for batch-cpu or batch-memory       reclaimed
   the Kubernetes class                          shared; BestEffort: the value of --best-effort

Another value there makes the pod shared, and so does the system class outside the namespaces that --system-namespace names
(kube-system): system pods are neither confined nor evicted, and anybody can write the label or annotation. A pod is static where its
Node owns it; a static pod's annotations alone do not make a pod static. The pod's errors name such a value, an invalid quantity and the
like. Requests are summed as the scheduler does; if one container has no limit, the pod has none. Reclaimed resources have the names
resource.katalyst.kubewharf.io/reclaimed_millicpu, katalyst.kubewharf.io/reclaimed_millicpu, kubernetes.io/batch-cpu and
koordinator.sh/batch-cpu, and those of memory. Labels and annotations are passed on under the dialects' prefixes (nodes':
kubernetes.io/ too) up to 4 KiB each and 16 KiB a pod in all, as JSON. Annotations that protect a pod from eviction are passed on first
(koordinator.sh/eviction-policy, polder/evict and those of --keep-annotation), with an empty value where theirs is too long, and then those
that advise and evict read, so that no other label or annotation can displace them. Those of all pods of a tick, and the pods' errors,
have 4 MiB together: beyond it the pods with the most of them lose first those that no tool decides by, then those that advise and evict
read, but not those that protect them; these pods' errors report that.

SETTINGS FROM THE CLUSTER
sample.config is what Katalyst's configuration objects put in force for the node: of AdminQoSConfigurations and
EvictionConfigurations, each if a KatalystCustomConfig names the kind, the one that names the node and has not expired, else
that with the highest priority whose nodeLabelSelector matches, else the one for all nodes. Where an object is invalid, two
contradict each other, or the selected one is paused or a canary, the last good result stays (with --state over a restart too)
and sample.errors gives the reason. An object is also invalid where advise or evict cannot use one of its values. The verdict on each
KatalystCustomConfig's objects is in sample.config.katalyst.customConfigs, and in the log when it changes. docs/configuration.md
lists the fields.

With --slo-config sample.config has in "koordinator", beside "katalyst", what Koordinator's ConfigMap sets for the node: of the keys
colocation-config, resource-threshold-config, resource-qos-config, cpu-burst-config and system-config the defaults, over them the
cluster's strategy, over that the first node entry whose nodeSelector matches, and for colocation the node's annotation
node.koordinator.sh/colocation-strategy and its labels node.koordinator.sh/cpu-reclaim-ratio, memory-reclaim-ratio and
mid-static-cpu-reserved-ratio, mid-static-memory-reserved-ratio; its annotation node.koordinator.sh/network-bandwidth replaces
totalNetworkBandwidth of system-config. In place of an invalid document the last good one of its key stays
in force (with --state over a restart too), in place of an invalid node entry the cluster's strategy; sample.errors names both with key
and reason, and a second entry that matches as well. Without such a ConfigMap the defaults are in force, which enable nothing;
until it was read there is no "koordinator". The log names settings that are not supported at the start, and when they change.

WHEN THE API SERVER DOES NOT ANSWER, AND WHAT IS REQUESTED OF IT
When the API server does not answer, ticks continue with the last lists, and sample.errors has the time since when. A dead connection
is noticed after some 45 s, and so is a request to which no response begins. Behind a live connection, that is the first request after a
watch has ended, as each does after 5 to 10 minutes. collect requests list and watch of pods, nodes, katalystcustomconfigs,
adminqosconfigurations and evictionconfigurations; with --slo-config also of configmaps of that name in that namespace.

SECTIONS OF A SAMPLE
sample.capacity and sample.allocatable are the node object's CPU and memory, and what it has published under Koordinator's names
(kubernetes.io/batch-cpu, batch-memory, mid-cpu, mid-memory; koordinator.sh/batch-cpu and batch-memory of the first version).

sample.kubelet has the policy of kubelet's CPU manager and the CPUs that it gave to containers exclusively, from the file
cpu_manager_state in --kubelet-root. It is absent where there is no kubelet, and where the file cannot be read, which is then in
sample.errors.

sample.partitions are the roots of CPU partitions (cgroup v2: cpuset.cpus.partition is root or isolated) with their CPUs.

sample.batchCgroups are the cgroups above reclaimed pods that contain nothing else (no other pod, no process of their own, no cgroup that
the rules do not name), outermost first; never the root, never kubelet's.

sample.tiers are kubelet's cgroups above the pods' (kubepods, burstable, besteffort; of either driver, below --cgroup-root): the CPU
list in force, the quota and the use of all in it, and whether cpu.idle is 1, which keeps kubelet from starting.

LOAD AND RATES
A container's load is the number of its runnable threads, sampled every 5 s and averaged over 1 and 5 minutes as the
kernel averages its own; it is absent for the first 5 s and begins with their mean (so --once has none without --state).
Where it used less than a hundredth of a CPU since the last sample and had no runnable thread then, its use is the sample, twice in a row at
most. Reading threads' states takes a twentieth of the interval at most, and 250 ms: those that were not reached are read in the next
rounds, and sample.errors reports that. Until then the container keeps its load, for a minute after its last sample; after that it has
none. The number of threads, where the pids controller is not enabled, is counted in as much time, by the same rules.

HOW OLD A VALUE IS
The node's values, a container's CPU use and the amount of its memory (usageBytes) are read for each tick. The other values are read again
after the time below, or at once where what is read for each tick shows that they may have changed; the first two ticks of a cgroup have
all of them fresh:

   cpusetCPUs               2 s
   threads                  2 s; each tick while there are none
   throttledPercent         2 s on version 1, but each tick once a quota has counted periods; each tick on version 2
   rssBytes                 5 s, but each tick where usageBytes is another amount, or pages are needed again after they had been reclaimed
   cacheBytes               as rssBytes, and so are numaMemory and refaultBytesPerSecond
   workingSetBytes          usageBytes of this tick, less inactive file pages that are as old as rssBytes
   cpuPressure              2 s, as often as the kernel makes its averages; memoryPressure and ioPressure likewise
   cpuWaitPermille          2 s; without cpuPressure 4 s for pods that hardly ran and waited, up to 30 s where services have many threads
   io                       5 s, and so are memoryEvents
   load1                    5 s, as above, and so is load5

The kernel counts what each CPU holds in reserve for a cgroup in usageBytes, up to 64 pages a CPU: so much may change its
use unseen for the 5 s.

The memory of a pod's own cgroup is read every 5 s: where it is more than the sum over the pod's containers, the pod's memory is up to 5 s
old.

Rates cover sample.intervalSeconds; the first tick has none. Those of the values above cover the time between their last two readings.
sample.periodSeconds is --interval, however late the tick is.

A tick comes early, a fifth of a second or more after the last one, if a cgroup of batch was created and no cgroup above it has batch's
scheduling class: none of them contains only batch. The next tick comes an interval later and is not early. kubelet's cgroups do not cause
such ticks, and with --count there are none.`
