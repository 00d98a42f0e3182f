package main

import "polder/lib/stage"

// summary is the beginning of --help and of the manual.
const summary = `
Reads ticks and reports them to each target of --to, by default tty on a terminal, else table:
  tty          a screen of the node now, or of a recording that it plays
  table        a line for each tick
  explain      why a pod or the node had its CPU and memory, in sentences, from a recording
  html         a recording as one page; with --listen the page is served and live
  score        figures that rate a policy over a recording
  prometheus   a file for node_exporter
  cnr          Katalyst's CustomNodeResource
  node         the resources of the Node that kube-scheduler counts
  nodemetric   Koordinator's NodeMetric
  kcc          the status of each KatalystCustomConfig`

// tasks begin the page in docs/; --help has the first five, which tests run.
var tasks = []stage.Task{
	{Want: "Watch this machine, and change nothing", Command: `collect | advise | isolate --dry-run | evict | report`},
	{Want: "Why was this pod throttled or evicted?", Command: `report --to explain --pod batch/spark-1 --at 12:03 < day.jsonl`},
	{Want: "Yesterday as one page for a colleague", Command: `report --to html < yesterday.jsonl > yesterday.html`},
	{Want: "See what would be written to the cluster", Command: `advise < yesterday.jsonl | report --to cnr,node --dry-run > /dev/null`},
	{
		Want:    "How would another policy have done?",
		Command: `advise --policy harvest < day.jsonl | evict --dry-run | report --to score --against day.jsonl`,
	},
	{Want: "Look at a recording, and play it from noon on, a minute a second", Command: `report --to table < yesterday.jsonl
report --speed 60 --from 12:00 < yesterday.jsonl`},
	{Want: "Why is so little offered?", Command: `advise --policy koordinator < day.jsonl | evict --dry-run | report --to explain --from 12:00 --until 13:00`},
	{Want: "This machine now, in a browser", Command: `collect | advise | isolate --dry-run | evict | report --to html --listen 8470 > /dev/null`},
	{Want: "Metrics for node_exporter (--collector.textfile.directory=/var/lib/node_exporter)", Command: `... | report --to prometheus --metrics-file /var/lib/node_exporter/polder.prom > /dev/null`},
	{
		Want: "Offer reclaimed CPU and memory to a cluster, from outside of it",
		Command: `collect --kubeconfig ~/.kube/config | advise | isolate --journal /run/polder.journal | ` +
			`report --to cnr,node --kubeconfig ~/.kube/config > /dev/null`,
	},
	{
		Want: "Offer batch resources as Koordinator does, and the NodeMetric beside them",
		Command: `collect --kubeconfig ~/.kube/config | advise --policy koordinator | isolate --journal /run/polder.journal | ` +
			`report --to node,nodemetric --kubeconfig ~/.kube/config > /dev/null`,
	},
	{Want: "For all nodes, of several such processes one leads", Command: `collect fleet --in-cluster --lease kube-system/polder | evict fleet --action evict | report fleet --no-flush > /dev/null`},
	{Want: "Withdraw what was offered", Command: `report --withdraw --node "$(hostname)" --kubeconfig ~/.kube/config`},
	{Want: "The metrics, and a line a tick in the log", Command: `... | report --to prometheus --metrics-file /run/polder.prom --to table`},
}

// manual is the rest of the page in docs/ and of the manual page.
const manual = `
Sections read: sample, advice, isolation, network, eviction. Section written: report.

TARGETS (--to)
   tty          a screen that is redrawn in place: the node's use, a map of the cores with the pool of each, what may be
                reclaimed and how that moved, the pods, what was written to which cgroup, pressures and evictions. The last
                picture stays when report ends. Where the output is no terminal, it is the table. A recording is played: see
                RECORDINGS below
   table        a line for each tick
   explain      no line a tick but one answer about a whole recording, in sentences: see WHY? below
   html         one page about a whole recording, that needs no other file and no network; with --listen the same page, live
   score        figures that rate a policy over a whole recording, and over another one beside it (--against)
   prometheus   a file for node_exporter's textfile collector (--metrics-file), written whole and renamed. It is left alone
                while nothing in it would change but the tick's time, and written at least every 10 seconds
   cnr          the node's CustomNodeResource (kubectl get kcnr), created if it is missing: the offer to reclaimed pods, in
                total and by NUMA node, with the pods that have a part of it, and the taints that evict decided on
   node         the extended resources of the node's status that kube-scheduler counts. Under the policy koordinator:
                kubernetes.io/batch-cpu and batch-memory, and mid-cpu and mid-memory where they are advised (--resource-prefix
                koordinator.sh has the names of v0.1); under any other: resource.katalyst.kubewharf.io/reclaimed_millicpu and
                .../reclaimed_memory
   nodemetric   Koordinator's NodeMetric (kubectl get nodemetrics), created if it is missing: what the node, its pods and the rest
                of its system use, averaged, with percentiles over several times
   kcc          the status of each KatalystCustomConfig (kubectl get kcc): condition Valid, with what is wrong with its objects and
                their names. One report in a cluster is enough, and report fleet writes it by itself

Without --to it is tty on a terminal, table elsewhere. With tty, table, explain, html or score the output is for people; without
them, and with html --listen, the ticks are passed on, with the section "report".

The screen's bar of CPU time has the services' part first, then the reclaimed pods', then that of everything outside all pods. What
cannot be attributed, because the use or the class of a pod is unknown, is drawn as "?". Pools are distinguished by letter as well as
by colour: S share, R reclaim, D dedicated, V reserve. NO_COLOR is respected; --ascii draws with ASCII characters alone. A stream of
several nodes counts a node for an hour after its last tick.

Its line on batch has the CPU time that batch got, of what services left idle, and what of it was beyond its requests; how long a quota
throttled it; the evictions; and for how much of the time it was held back, because steps of advise's guard were in force or because it
got less than its floor. The line on services has how long they waited for a CPU, on average over the services. Where a service's PSI
is known (cgroup v2) that is the part of the time in which at least one of its threads waited. Elsewhere (v1, or v2 without PSI) it is the
sum of its threads' run delays per second: not a part of the time, and large for many short waits, even if no request takes longer. Compare
it with that of the same services without batch. report logs both lines at its end.

Ticks that are too old or of another node (--max-age, --node) are not written as metrics or to the cluster, and the section
reports that. The screen and the table show every tick: they are for recordings, too. In a live stream they mark a tick that is too
old as stale, and one that is ahead of the clock as early. An input is a recording if it is a file, or if its first tick is more than
a minute away from the clock, until a tick comes that is not; the screen calls it "recorded", and marks nothing.

WHY?
   report --to explain --pod spark/etl --at 12:03 < day.jsonl shows what the pod was allowed at that time, what limited it, by which
   sum services had the rest and which service needed most of it, what was throttled and evicted and by which numbers, and what
   would have had to be different. Without --pod it is about the node, and why nothing is offered; with --from and --until, or no time
   at all, about a period, with its squeezes: when the amount for reclaimed pods fell by 5 % of the machine or more within 5 minutes.
   A time is RFC 3339, or HH:MM or HH:MM:SS of the recording's day (of the next, where that has passed when it begins), in the time
   zone in which its ticks write theirs: collect's is UTC. The tick is the last one at or before the time. --node chooses one of several
   nodes.
   Where the recording has samples and no advice, or no eviction, in any tick, the advise and the evict --dry-run that are in
   report's own directory decide, with their default settings: the answer names that. Decide by others in the pipe, as below. Memory
   does not grow with the recording.

RECORDINGS
   report < day.jsonl plays a recording on the screen, at --speed times its own speed, from --from on. Keys: space pauses and resumes, left
   and right are a tick, with shift (or < and >) a minute, e the next eviction or squeeze, / shows the pods with a text in their names,
   + and - change the speed, q ends, ? lists them. A gap of more than a minute is skipped. Input from a pipe counts as a recording if
   --speed or --from is given; report keeps it in a temporary file, which it deletes at once, so that the keys can go back.

   report --to html < day.jsonl > day.html makes one page: use by class over time, the offer and the free amounts, the pool of each CPU,
   squeezes, evictions and failures in sentences, advise's reasons at each time, a table of pods, zoom and search. It holds as much for a
   day as for a year: up to 8640 points, each the average of as many ticks as it takes, and names what it leaves out. Decisions that the
   recording lacks are inserted as for explain. Names in it are text and never markup; a policy in the page keeps all scripts but its own
   from running.
   With --listen the page is served, follows the stream, and has its last 24 hours. A PORT alone is on the loopback address. Only GET is
   answered, for at most 8 open pages. There is no password and no encryption: use another address only in networks in which everybody may
   know the pods.

   report --to score < day.jsonl adds up what a policy offered, how often that was more than was free, moves, squeezes, evictions, how many
   threads of services waited, and writes. What would another policy have done with the same day?
      advise --policy koordinator < day.jsonl | evict --dry-run | report --to score --against day.jsonl

THE CLUSTER
   An amount is written at once when it has shrunk by 1 %, and so are new and removed pods and taints. One that has grown by
   --min-change (5 %) is written when the object's amounts have not changed for --grow-interval (7 min), so that a loss is not
   reverted at once and a varying load does not cause a write at each change. Until then no amount exceeds the written one. A
   smaller loss, as of memory, which changes all the time, is written when the last write is --min-interval ago (10 min); other
   changes wait for --resync (10 min). A tick without an advice is not an offer of nothing: nothing is written, and an offer that
   no tick has confirmed for --stale-after is withdrawn. So is that of an earlier process, but only while report runs: a report
   that was killed for good leaves its last figures. report --withdraw removes them and ends; it serves as a preStop hook,
   because an external removal is reverted only 2 seconds later, and later each time that it happens again.

   Under the policy koordinator --to node follows Koordinator's rules: an amount is written at once when it differs from the
   written one by more than resourceDiffThreshold (10 %), up or down, or when it appears or disappears, and any change is written
   updateTimeThresholdSeconds (300) after the last write. Both are the ConfigMap's, from sample.config. Growth also waits for
   updateTimeThresholdSeconds after the last change. --min-change, --min-interval, --grow-interval and --resync take precedence
   where they are given. advice.withdrawn removes the resources at once, not to zero, and the note has the reason; resources that
   kubelet or another program has removed are restored as always. When the policy changes to koordinator, resources under
   Katalyst's names are removed with the first write under Koordinator's, whichever process wrote them; when it changes from
   koordinator, only those that this process has written are removed, because Koordinator's names may be its manager's. Those are
   otherwise removed only by --withdraw, by the fleet controller, and by a process that gets no policy for --stale-after: these
   remove Katalyst's names and Koordinator's of the --resource-prefix, the fleet controller those of either prefix.

   Calls run concurrently with the stream, one at a time for each object, and the newest figures win. Their outcome is in a later
   tick's section: written, unchanged, pending, or failed with an error that names what to do. A request to a server that does not
   answer is retried after half a second, then less often, in the end every 8 seconds; after an error that somebody must repair,
   every 30. At the end of the input report waits for the writes that are left, and fails (status 1) if none succeeds for 15 seconds.

   The CustomNodeResource is deleted with its node (an owner reference). Its status is written by server-side apply, as
   polder-report; it replaces a field of another manager, and the log names the manager. Taints are merged with those of other
   programs, which stay, however often they write; the annotation polder/taints names ours, and their timeAdded stays as long as
   they do. A pod that may run on several NUMA nodes counts by an equal part on each. In the node's status only the extended
   resources are written; kubelet's own stay as they are.

   No kube-scheduler reads a CustomNodeResource's taints. While evict has one under node.katalyst.kubewharf.io/ that keeps pods
   away (NoSchedule, NoExecute), --to node therefore offers no more than the reclaimed pods of the sample request, so that no new
   one fits; the CustomNodeResource keeps the true figures. Pods that are ending do not count. Where the sample does
   not have the pods, the Node's offer stays or becomes less. Such a loss is written at once, however small, and so is the
   offer when the taint is removed. The tick's target has the reason in its note, and the log has it once.

   --taint-node puts the taints on the Node's own list, too, where they hold for every pod; NoExecute there evicts those that do
   not tolerate it. Only keys under node.katalyst.kubewharf.io/ with the effects NoSchedule, PreferNoSchedule and NoExecute are
   written; the note names the others. They are removed with evict's, after --stale-after without a tick, and by --withdraw; a
   report that was killed for good leaves them, and so does one that is started again without the flag, which logs that. The
   outcome is in the section's target node-taints.

   The fleet controller (report fleet) withdraws the offer of a node whose agent is away, and marks the Node with the annotation
   polder/withdrawn. While that is set, --to node and --to cnr offer nothing, and the note has its reason.

   --to nodemetric writes the status as soon as there are two samples, and then every metricReportIntervalSeconds (60, at least
   30) of the ticks' time; while the node's CPU or memory use is unknown it does not change. Usages are averages over
   metricAggregateDurationSeconds (300, at least 60). The aggregates are avg, p50, p90, p95 and p99 over each of
   metricAggregatePolicy.durations (5m, 10m, 30m), and empty until the samples since report's start cover half of it. Memory is
   what is not available, and of a pod its anonymous memory; with metricMemoryCollectPolicy usageWithPageCache what is not free,
   and the pod's cache as well; usageWithHotPageCache counts as the first. The system's use is the node's without the pods', and
   unknown in a tick in which that of a running container is. The status has the pods, with namespace and name, of which both
   figures are known. The spec is left to Koordinator's manager; fields of others in the status, as prodReclaimableMetric, stay.
   A write that waits has the newest known figures, and their time. The object is deleted with its node; --withdraw leaves it,
   because its updateTime shows how old it is. Each node's own report writes it, so that it excludes --all-nodes.

   The role needs: nodes get, list, watch, and for --taint-node patch; nodes/status patch; customnoderesources get, list,
   watch, create, patch; customnoderesources/status patch; for nodemetric nodes get, nodemetrics create,
   nodemetrics/status patch; for kcc katalystcustomconfigs get, katalystcustomconfigs/status
   patch. The CRDs are in deploy/kubernetes/crds. With --dry-run no cluster is asked, and the objects are in the log ("would
   be written").`
