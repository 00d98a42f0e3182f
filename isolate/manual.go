package main

import "polder/lib/stage"

// summary is what --help and the manual begin with.
const summary = `
Reads ticks and applies advice.cgroups. It is the only tool that writes cgroups, of version 1 and
2. It reads first and writes only what differs, in an order in which the kernel accepts every write
and no cgroup is without CPUs, or has more than it had or shall have, at any moment; it reads back
what it wrote. While nothing changes it writes nothing.
The journal keeps the first value of every file that is changed, on the disk before the change;
--restore puts everything back. Where the advice ends, its fallback is applied.`

// tasks begin the page in docs/; --help has the first five, which tests run.
var tasks = []stage.Task{
	{Want: "See what would be written on this machine, and write nothing", Command: `collect --once | advise | isolate --dry-run | jq -c '.isolation.writes[]?'`},
	{Want: "Isolate services from batch on this machine", Command: `collect | advise | isolate --journal isolate.journal | report --to tty`},
	{Want: "Put everything back", Command: `isolate --restore --journal isolate.journal`},
	{Want: "What would yesterday's advice write here?", Command: `advise < yesterday.jsonl | isolate --dry-run | jq -c .isolation.writes`},
	{Want: "Limit a cgroup by hand", Command: `echo '{"v":1,"node":"n1","time":"2026-11-21T10:00:00Z","advice":{"policy":"by hand",
  "cgroups":[{"cgroup":"/batch","cpuMaxMilliCPU":500}]}}' | tr -d '\n' | isolate --dry-run`},
	{Want: "Which writes failed, and why?", Command: `... | isolate --journal isolate.journal | jq -c '.isolation.errors[]?'`},
}

// manual is the rest, for the page in docs/ and for man.
const manual = `
It knows nothing of classes of pods, and acts on advice.cgroups, whoever wrote it.

Sections: reads advice; writes isolation, or with --only network, network.

  isolation.applied      values written
  isolation.unchanged    values that were as desired
  isolation.missing      cgroups that do not exist
  isolation.writes[]     {cgroup, key, old, new}
  isolation.errors[]     {cgroup, key, error}
  isolation.fallback     the fallback was applied since the last tick
  isolation.refused      why the tick was not acted on
  isolation.reclaims[]   what became of memory that was to be taken back:
                         {bootSeconds, cgroup, bytes, reclaimedBytes,
                         seconds, state, why}
  isolation.unavailable  desired keys that this machine has no file or mount for

WHAT IS WRITTEN
A cgroup of version 1 that the advice does not name follows the one above it where the kernel would otherwise refuse
(its CPUs must be within its parent's, and its quota too); such writes are listed as well.

JOURNAL AND FALLBACK
The journal (--journal) keeps the first value of every file that is changed, on the disk before the change. It outlives
kill -9, and 'isolate --restore --journal FILE' puts everything back. Without it nothing can be put back.

When no tick with an advice has come for --stale-after, the last advice's fallback is applied, and again every 5 seconds until
all of it holds. So it is at once where the input ends or the output is closed: in a plain pipe a neighbour has died. At a signal
(SIGTERM, SIGINT) all stays as it is, for --restore or the next isolate. --at-end keep is for single ticks, as from cron, whose
end is no death; --stale-after 0 is for no fallback at all. Ticks that are too old or
of another node (--max-age, --node) are passed on and do not count.

BESIDE A KUBELET
Beside a kubelet its CPU manager's state is read whenever it has changed (--kubelet-root), and no cpuset is written that would
be in its way; each is in isolation.errors:

  - CPUs that it gave to containers exclusively are left out of every other list, and those containers' lists are left alone.
  - On cgroup v1, under any policy but "none", only the lists of containers are written: under a narrowed tier or pod
    kubelet's next container would not start. What was narrowed before is widened to its first value.
  - On cgroup v2, and under "none", tiers and pods are written too, but not those above exclusive CPUs.
  - While the state cannot be read, no cpuset of kubelet's is written. Everything else is done.

OTHER KEYS
The root of a CPU partition (cgroup v2: cpuset.cpus.partition) keeps its list, and its CPUs are left out of the list of every cgroup
outside it, in a restore too; each is in isolation.errors.

advice.resctrl are groups of /sys/fs/resctrl (L3 cache and memory bandwidth): a missing one is made, its schemata are compared with
the machine's own masks before a line that differs is written, and the tasks of the named cgroups that are not in it are moved,
what they fork is in it too. Writes and errors name it as the cgroup "resctrl/GROUP", with the keys group, schemata and tasks.
Other groups, and lines that are not named, are left alone. Its journal is FILE.resctrl; --restore removes the groups that isolate
made, which gives their tasks to the root group, and puts back the lines of those that were there.

A burst (cpuBurstMilliCPU) is limited to its cgroup's quota, as the kernel demands, and a burst that the advice does not name
gives way to a quota that falls; quotas and bursts are written in an order in which no burst is over its quota. memory.min and
memory.low fall from the bottom up and rise from the top down, so that no cgroup promises more below it than it has.

What this machine has no file or mount for (resctrl, cpu.cfs_burst_us before Linux 5.14, memory.min on cgroup v1, the memory.wmark_*
of other vendors' kernels) is left alone: it is in isolation.errors and in the log once, when it is first desired, and from then on its
key is in isolation.unavailable. The file is looked for again every 100 ticks.

advice.memoryReclaim is memory to be taken back once (memory.reclaim of version 2). It is done beside the ticks, one at a time, for a second
at most, and never twice: its name is the run of the kernel and the time in it, which must be later than the last one's and than isolate's
own start.

A memory.max of version 2 that the kernel could only enforce by killing is not written.

NETWORK
isolate --only network is a second instance, with CAP_NET_ADMIN and nothing else, that applies advice.network: HTB at the root of
each named link, a class for each class of packets, and nftables that mark the packets of the named cgroups. Its section is network,
with counters of each class; its journal is a file of its own. It leaves alone a link whose root qdisc another program has set,
and reports that once. A link that no advice has named for a minute is given back; in a silence all stays. docs/network.md has the rest.

EXTERNAL CHANGES
A value that someone else changes is reported and written again; after --contest rounds it is left alone with an error, until
it has been quiet for 100 rounds. A container that kubelet sets back to its own list is written again however often, and so are
weight and quota of kubelet's cgroups above the pods where they are reset as kubelet does: about once a minute, and with each new pod.

RESTORE (--restore)
The exit status is 1, too, where something could not be put back, or was left because another program changed it.`
