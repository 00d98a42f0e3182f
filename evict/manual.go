package main

import "polder/lib/stage"

// summary is what --help and the manual begin with.
const summary = `
Reads ticks, measures every rule at every tick, and adds the section "eviction": the pressures with
value and threshold, the taints that should be on the node, and the pods to evict. A rule sees only
the tick, its settings and its own window of ticks before. Time is the tick's, so a recording is
decided as it would have been then. Nothing is done to pods unless --action asks for it.`

// tasks begin the page in docs/; --help has the first five, which tests run.
var tasks = []stage.Task{
	{Want: "Who would be evicted, and why?", Command: `collect | advise | evict | jq -c '.eviction.evictions[]?'`},
	{Want: "Why this pod, and not that one?", Command: `collect --once | advise | evict --explain`},
	{Want: "What would another threshold have done that day?", Command: `advise < day.jsonl | evict --dry-run --reclaimed-threshold 2 | jq -c '.eviction.evictions[]?'`},
	{Want: "Which rules are there, with which settings?", Command: `evict --list`},
	{Want: "Make room for the services on this machine", Command: `collect | advise | isolate | evict --action kill --state evict.json > /dev/null`},
	{Want: "The same in a cluster", Command: `collect --kubeconfig ~/.kube/config | advise | isolate | evict --action evict --kubeconfig ~/.kube/config > /dev/null`},
	{Want: "Stop the batch work instead of ending it, and resume it later", Command: `... | evict --action freeze --state /run/evict.json > /dev/null
evict --thaw --state /run/evict.json`},
	{Want: "Nodes whose agent is away, with shorter times, to see what would be done", Command: `collect fleet --kubeconfig ~/.kube/config | evict fleet --taint-after 2m --evict-after 5m | report --to table`},
	{Want: "Is this file good, and what would be in force with it?", Command: `evict --check-config evict.yaml`},
	{Want: "Why this pod, by yesterday's last tick before noon?", Command: `jq -c 'select(.time < "2026-11-21T12:00:00Z")' yesterday.jsonl | evict --explain`},
	{Want: "Evict BE pods by the ConfigMap of a cluster of Koordinator's, without that cluster", Command: `kubectl get cm -n koordinator-system slo-controller-config -o yaml > slo.yaml
collect | advise --policy koordinator --config slo.yaml | isolate | evict --action kill --config slo.yaml --state /run/evict.json > /dev/null`},
	{Want: "Try a rule on this node before it acts", Command: `... | evict --action evict --dry-run-rules cpu-pressure-eviction-plugin > /dev/null`},
}

// manual is the rest, for the page in docs/ and for man.
const manual = `
Sections read: sample, advice. Section written: eviction.

VICTIMS
   Never a system pod, a static, mirror or critical pod, one that has ended or is terminating, or one annotated
   polder/evict=false (--opt-out).

   A finding is hard (its pods have to be evicted) or soft (they are when there is room; or it calls for a taint alone). It calls for
   pods while it is met, has been so without a break for its rule's tolerance, its rule has rested for its cooldown since its
   last eviction in that scope, and its value, less the pods whose eviction is in progress, is past the threshold. A silence of more than 90
   seconds (or than three samples, where they are further apart) is a break. A pod that is ending counts as released, whoever
   ended it and whatever its class: no second one is evicted for the same need. It does so until it has ended, or has not ended in its
   time; with a grace period of its own, or deleted by somebody else, for 5 minutes at most.

   At each tick the hard findings are served first, in the order of --list, each by its own ranking; equal pods are in the order of their
   names. Then one pod is evicted for all soft findings: a reclaimed pod before others, lower priority before higher, then by ranking and
   name. A waiting candidate that is not named at the next tick is withdrawn. How many:
      --per-rule       pods for one rule at one tick, each only while those before it release too little. Koordinator's rules take as
                       many as they need at one tick, unless it is given
      --burst          pods at one tick, over all rules
      --per-hour       pods of the node within an hour; --per-namespace those of one namespace
   The hour is one of the ticks' time, kept with --state, and not shortened by a clock that is set. A refused eviction is not
   counted. A limit that holds pods back is logged when it begins to, and in the metrics.

   A pod that is still there after max(10s, 1.5 x its grace period) is reported as failed and left alone for 5 minutes, and
   while it terminates; another may be evicted. So may one where the API server has failed at a pod twice, for 30 s each.

TRYING RULES
   --dry-run is for all: nothing is done, on any tick. --dry-run-rules names rules that are measured while the others act: their
   findings have "dryRun":true, who would be evicted has the state wouldEvict, and there is neither a taint nor an eviction, and
   nothing of the limits but the rule's own is used.

KOORDINATOR'S RULES
   BEMemoryEvict, BECPUEvict, MemoryAllocatableEvict, CPUAllocatableEvict, MemoryEvict and CPUEvict have no settings here. A rule is on
   where resource-threshold-config of the node has "enable": true and the rule's thresholds (--list names them), which the
   ticks bring (sample.config.koordinator, by collect --slo-config), or --config with the ConfigMap itself. Where neither sets
   anything, they are off; while the ticks cannot tell (sample.errors, source config), what was in force stays. Thresholds that
   do not go together turn their rule off, with the key and the reason in eviction.errors and in the log.

   They are served in that order. What is evicted for one counts for all, by what it is to each; after an eviction all of memory have a
   cooldown of 4 seconds, all of CPU of 20, and CPU's begin 20 seconds after the node is first seen. A BE pod is one with the label
   koordinator.sh/qosClass: BE, without any label one that requests batch resources or that Katalyst's annotation or collect's
   rules classify as reclaimed. koordinator.sh/eviction-policy, an annotation with a JSON list of rules, lets a pod be evicted for those
   alone. The grace period is the pod's own.

WHAT HAPPENS TO IT (--action)
   log      nothing: the tick has wouldEvict, and the log has a line when it begins
   evict    the API server's eviction of that very pod (its UID is a precondition), which a disruption budget may refuse:
            it is asked for three times, 5 seconds apart, and never forced. Then the pod is spared for half a minute, in which
            the next one is tried. A server that does not answer is asked for half a minute; then the need is measured again,
            and while it lasts the same pod is asked for again before all others, for the server may have acted
   delete   the pod is deleted, past its disruption budgets
   freeze   the pod's cgroup is frozen (freezer.state or cgroup.freeze) and stays so, also when evict ends, until
            evict --thaw --state FILE. A frozen pod keeps its memory, and counts as released
   kill     SIGTERM to every process of the pod's cgroup, and what is left after the grace period is killed (cgroup.kill,
            or signals to the standing cgroup). At the end of the input evict waits for what it has begun; after a
            signal, the next run with the same --state continues it

   It runs beside the stream: states go from requested over created to succeeded or failed in later ticks, and an error
   beside requested names what it waits for. Nothing is done for ticks that are too old or of another node (--max-age,
   --node), which get a section {"refused"}.

   evict and delete are for a cluster (--kubeconfig, or the pod's own service account, which needs to create
   pods/eviction or delete pods, get pods, and create and patch events in events.k8s.io), with collect --kubeconfig at the
   stream's head. They write the pod's events: EvictCreated, EvictSucceeded, EvictFailed, EvictExceededGracePeriod, the same
   one within 6 minutes as a series of one object. For Koordinator's rules the events are that dialect's, warnings both:
   evictPodSuccess when the API server has granted the eviction, evictPodFail when it has not, with its reason at the end.

   freeze and kill are for machines without one. Cgroups that hold evict itself, a process that it runs under or process 1
   are refused.

THE CONFIGURATION FILE (--config)
The configuration file of --config has the flags' names as keys:

      rules: [reclaimed-resource-pressure-eviction-plugin]
      reclaimed-threshold: 10
      load-sync-period: 15s

It is read again when it changes. A file that is invalid is refused with its line, and the settings before stay.

The file may as well have Katalyst's objects, as kubectl takes them (KatalystCustomConfig with EvictionConfiguration or
AdminQoSConfiguration, --- between them); those that are meant for the tick's node count. Without a file it is the cluster's
objects, from sample.config, whose changes hold from that tick on. A flag wins over the file, the file over the tick, the tick over
the defaults; an AdminQoSConfiguration over an EvictionConfiguration. An object that cannot be used is named in eviction.errors, and
the last good one of the node stays. While it is not known yet which objects the cluster has, for a minute at most, every rule is
in dry run, and eviction.errors names that. docs/configuration.md has the fields.

Koordinator's ConfigMap slo-controller-config, as kubectl takes it, may stand there too, by itself or beside them: it stands in the
place of the tick's strategies. Flags keep their defaults with it.`
