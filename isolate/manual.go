package main

import "polder/lib/stage"

// summary is the first part of --help and of the manual.
const summary = `
Reads ticks and applies advice.cgroups, in cgroups of version 1 and 2. No other tool writes limits
(evict writes cgroup.freeze or freezer.state, and cgroup.kill, of pods that it freezes or kills).
It reads first and writes only what differs, in an order in which the kernel accepts every write
and no cgroup is ever without CPUs, or above both its original and its desired value; it reads back
what it wrote. While nothing changes it writes nothing.
The journal keeps the original value of every changed file, from before the change; --restore
restores them. When advice stops, isolate applies its fallback.`

// tasks are the first part of the page in docs/; --help shows the first five, which tests run.
var tasks = []stage.Task{
	{Want: "See what would be written on this machine, and write nothing", Command: `collect --once | advise | isolate --dry-run | jq -c '.isolation.writes[]?'`},
	{Want: "Isolate services from batch on this machine", Command: `collect | advise | isolate --journal isolate.journal | report --to tty`},
	{Want: "Restore everything", Command: `isolate --restore --journal isolate.journal`},
	{Want: "See what yesterday's advice would write here", Command: `advise < yesterday.jsonl | isolate --dry-run | jq -c .isolation.writes`},
	{Want: "Limit a cgroup by hand", Command: `echo '{"v":1,"node":"n1","time":"2026-11-21T10:00:00Z","advice":{"policy":"by hand",
  "cgroups":[{"cgroup":"/batch","cpuMaxMilliCPU":500}]}}' | tr -d '\n' | isolate --dry-run`},
	{Want: "See which writes failed, and why", Command: `... | isolate --journal isolate.journal | jq -c '.isolation.errors[]?'`},
}

// manual is the rest of the page in docs/ and of the man page.
const manual = `
isolate does not use the classes of pods; it applies advice.cgroups of any program.

Sections: reads advice; writes isolation, or with --only network, network.

  isolation.applied      values written
  isolation.unchanged    values that were already as desired
  isolation.missing      cgroups that do not exist
  isolation.writes[]     {cgroup, key, old, new}
  isolation.errors[]     {cgroup, key, error}
  isolation.fallback     the fallback was applied since the last tick
  isolation.refused      why the tick was not acted on
  isolation.reclaims[]   results of requests to reclaim memory:
                         {bootSeconds, cgroup, bytes, reclaimedBytes,
                         seconds, state, why}
  isolation.reschedOnWait           CPUs are rescheduled when a task waits behind batch
  isolation.reschedIntervalSeconds  how often CPUs are rescheduled
  isolation.unavailable  desired keys that this machine has no file or mount for

WHAT IS WRITTEN
A cgroup of version 1 that is not in the advice is adapted to its parent if the kernel would otherwise refuse a write (its CPUs
and its quota must be within its parent's); such writes are listed as well. If one of them was not made, because isolate was killed or
the kernel refused it, the next tick that names a cgroup above makes it.

JOURNAL AND FALLBACK
The journal (--journal) keeps the original value of every changed file, from before the change. It survives kill -9, and
'isolate --restore --journal FILE' restores everything. Without a journal nothing can be restored.
If another program sets a value while isolate holds nothing in that file, or only follows the original value (a factor, or a limit that
is never wider), then that value is the original one from then on. Lists of CPUs and memory nodes keep their first one.
With --dry-run an existing journal is only read, even while another isolate uses it: values that depend on the original one, such as
cpuWeightFactor and an ioWeight of -1, are predicted from it. Without --journal they are predicted from the present value, and
cpuWeightFactor is refused, as it is without --dry-run.
A value that changed between its reading and its recording, as when a cgroup is created again, is not written before the next tick.
isolate never waits until the journal is on the disk. A crash of the machine or a reboot may damage the file; its entries do not
count any more, because the cgroups are gone as well, and the next isolate continues with the file.

After --stale-after without a tick with an advice isolate applies the last advice's fallback, and every 5 seconds again until an
advice arrives: what failed is retried, what kubelet or another program changed is written again by the rules below (external changes),
and cgroups that appear are confined. It applies the fallback at once when the input ends or the output is closed, because then another
tool of the pipe has died. At a signal (SIGTERM, SIGINT, SIGHUP) all values stay, for --restore or the next isolate. Use --at-end keep for
single ticks, as from cron, and --stale-after 0 for no fallback. Ticks that are too old or of another node (--max-age, --node) are
passed on and do not count. An advice that is only a fallback replaces the fallback, and does not count either.

BESIDE A KUBELET
isolate reads the state of kubelet's CPU manager whenever it has changed (--kubelet-root), and writes no cpuset that would conflict
with it; each refusal is in isolation.errors:

  - CPUs that kubelet has assigned exclusively are removed from every other list, and those containers' lists are not written.
  - On cgroup v1, under any policy but "none", only the lists of containers are written: under a narrowed tier or pod
    kubelet's next container would not start. A list that was narrowed before is restored.
  - On cgroup v2, and under "none", tiers and pods are written too, but not those above exclusive CPUs.
  - While the state cannot be read, no cpuset of kubelet's is written. Everything else is written.

OTHER KEYS
The root of a CPU partition (cgroup v2: cpuset.cpus.partition) keeps its list, and its CPUs are removed from the list of every cgroup
outside it, in a restore too; each is in isolation.errors. A restore that finds another list there than the original one changes
nothing, counts it as failed, also with --force, and keeps the original value in the journal until the cgroup is a member again.

advice.resctrl has groups of /sys/fs/resctrl (L3 cache and memory bandwidth): isolate creates a missing group, checks its schemata
against the machine's masks before it writes a line that differs, and moves the tasks of the listed cgroups to it; forked tasks
are in their parent's group. Writes and errors name it as the cgroup "resctrl/GROUP", with the keys group, schemata and tasks.
Other groups and lines are not changed. Its journal is FILE.resctrl; --restore removes the groups that isolate created, which
moves their tasks to the root group, and restores the lines of existing groups: each domain that an advice named gets its value from
before the first such advice, except one that another program changed.

A burst (cpuBurstMilliCPU) is limited to its cgroup's quota, as the kernel requires, and a burst that is not in the advice is
reduced when the quota falls below it; quotas and bursts are written in an order in which no burst is over its quota. memory.min and
memory.low fall from the bottom up and rise from the top down, so that no cgroup protects more below it than it has itself.

A key without a file or mount on this machine (resctrl, cpu.cfs_burst_us before Linux 5.14, memory.min on cgroup v1, the memory.wmark_*
of Anolis' and Alibaba Cloud Linux' kernels) is skipped: it is in isolation.errors and in the log once, when it is first desired, and
from then on in isolation.unavailable. isolate checks for the file again every 100 ticks.

advice.memoryReclaim requests that memory is reclaimed once (memory.reclaim of version 2). isolate does it beside the ticks, one request
at a time, for a second at most, and never twice: the kernel's boot ID and time since boot identify a request, and the time must be later
than that of the last request and than isolate's own start.

advice.reschedOnWait makes the kernel reschedule a CPU (choose again what it runs) when it begins to run a task of the idle class while
another task waits for it, so that a service that was interrupted does not wait behind batch until the next timer interrupt. A BPF
program in the kernel notices that, and wakes one of isolate's threads, of which there is one for each online CPU that isolate may use;
it needs Linux 5.15 with CONFIG_DEBUG_INFO_BTF, CAP_BPF and CAP_PERFMON. Where that is not possible isolation.unavailable names the key,
and with advice.reschedIntervalSeconds the threads wake at that interval and sleep again; a wake costs 12 µs of CPU on a virtual machine
with slow timers. The threads end with the advice, with the fallback and with isolate. They are those of a child process,
isolate-resched, which isolate moves to the root cgroup; where the machine's root cgroup is not visible, as in a container with its own
part of the hierarchy, there is none, and isolation.unavailable names both keys.

isolate does not write a memory.max of version 2 that the kernel could enforce only by killing. Nor does --restore without --force:
it counts such a limit as failed, and keeps it in the journal for another --restore, when the cgroup uses less.

NETWORK
isolate --only network is a second instance, with only CAP_NET_ADMIN, that applies advice.network: HTB at the root of each listed link,
a class for each class of packets, and nftables that mark the packets of the listed cgroups. Its section is network, with counters of
each class; its journal is a separate file. It does not change a link whose root qdisc another program has set, and reports that once.
A link that is in no advice for a minute is restored; when advice stops all values stay. docs/network.md has the rest.

EXTERNAL CHANGES
A value that another program changes is reported and written again; after --contest such changes it is left to the other program,
with an error, until there was no change for 100 rounds. A container that kubelet resets to its own list is always written again, and so
are weight and quota of kubelet's cgroups above the pods if they are reset as kubelet does: about once a minute, and with each new pod.

RESTORE (--restore)
Run it where isolate ran: a journal that was written in another cgroup namespace (or network namespace) is refused, because its cgroups
cannot be seen from here. The groups of resctrl need its mount.
While it runs no isolate can start with the same journal, and it refuses to run beside one. With --dry-run it changes no file.
The exit status is 1 if a value could not be restored, or was skipped because another program changed it. So it is if the journal has
entries that a newer version wrote for files that this one does not know; they stay in the journal for that version.`
