package main

import "polder/lib/stage"

// summary is the first part of --help and of the manual.
const summary = `
Reads ticks, measures every rule at every tick, and adds the section "eviction": the pressures with
value and threshold, the taints that should be on the node, and the pods to evict. A rule sees only
the tick, its settings and its own window of earlier ticks. Time is the tick's, so replaying a
recording gives the same decisions. Nothing is done to pods unless --action is set.`

// tasks are the first part of the page in docs/; --help shows the first five, which tests run.
var tasks = []stage.Task{
	{Want: "See which pods would be evicted, and why", Command: `collect | advise | evict | jq -c '.eviction.evictions[]?'`},
	{Want: "See why one pod is evicted, and another one is not", Command: `collect --once | advise | evict --explain`},
	{Want: "Try another threshold on a recording", Command: `advise < day.jsonl | evict --dry-run --reclaimed-threshold 2 | jq -c '.eviction.evictions[]?'`},
	{Want: "List the rules and their settings", Command: `evict --list`},
	{Want: "Evict on this machine", Command: `collect | advise | isolate --journal /run/polder.journal |
  evict --action kill --state evict.json > /dev/null`},
	{
		Want: "Evict in a cluster",
		Command: `collect --kubeconfig ~/.kube/config | advise | isolate --journal /run/polder.journal | ` +
			`evict --action evict --kubeconfig ~/.kube/config > /dev/null`,
	},
	{Want: "Freeze batch work instead of killing it, and resume it later", Command: `... | evict --action freeze --state /run/evict.json > /dev/null
evict --thaw --state /run/evict.json`},
	{Want: "See what would be done about nodes whose agent is away, with shorter times", Command: `collect fleet --kubeconfig ~/.kube/config | evict fleet --taint-after 2m --evict-after 5m | report --to table`},
	{Want: "Validate a configuration file, and see the resulting settings", Command: `evict --check-config evict.yaml`},
	{Want: "See why a pod was evicted, at yesterday's last tick before noon", Command: `jq -c 'select(.time < "2026-11-21T12:00:00Z")' yesterday.jsonl | evict --explain`},
	{Want: "Evict BE pods by the ConfigMap of a cluster with Koordinator, without that cluster", Command: `kubectl get cm -n koordinator-system slo-controller-config -o yaml > slo.yaml
collect | advise --policy koordinator --config slo.yaml | isolate --journal /run/polder.journal | ` +
		`evict --action kill --config slo.yaml --state /run/evict.json > /dev/null`},
	{Want: "Try a rule on this node before it acts", Command: `... | evict --action evict --dry-run-rules cpu-pressure-eviction-plugin > /dev/null`},
}

// manual is the rest of the page in docs/ and of the man page.
const manual = `
Sections read: sample, advice. Section written: eviction.

VICTIMS
   Never a system pod, a static, mirror or critical pod, one that has ended or is terminating, or one annotated
   polder/evict=false (--opt-out).

   A finding is hard (pods must be evicted) or soft (one pod may be evicted if the limits allow it; or only a taint is set). A finding
   requires victims while all of this is true: its condition is met, without interruption for the rule's tolerance; the rule's cooldown
   since its last eviction in that scope has passed; and its value, less the pods whose eviction is in progress, is over the threshold.
   A gap of more than 90 seconds (or than three samples, if they are further apart) is an interruption. A terminating pod counts as
   released, regardless of who deleted it (by force, too) and of its class, so no second pod is evicted for the same need. It counts until
   it has ended, or has not ended in its time; with a grace period of its own, or deleted by another program, for 5 minutes at most. While
   the list of pods is stale (sample.errors, source pods), the requests of a pod without a cgroup do not count: it may have ended.

   At each tick the hard findings come first, in the order of --list, each by its own ranking; equal pods are in the order of their
   names. Then one pod is evicted for all soft findings: a reclaimed pod before others, lower priority before higher, then by ranking and
   name. A waiting candidate that the next tick does not select is dropped. The limits:
      --per-rule       pods for one rule at one tick, each only while those before it release too little. Koordinator's rules evict as
                       many as they need at one tick, unless it is given
      --burst          pods at one tick, over all rules
      --per-hour       pods of the node within an hour; --per-namespace those of one namespace. A soft finding may not use the second
                       half of either: pods' own annotations lower the thresholds of some
   The hour is measured in the ticks' time and kept with --state. Setting the clock back does not shorten it; setting it forward does,
   as if that time had passed. A refused eviction is not counted. When a limit begins to prevent evictions, the log and the metrics
   report it.

   An eviction fails if the pod still exists after max(10s, 1.5 x its grace period); the pod is then no candidate for 5 minutes,
   and while it terminates, and another pod may be evicted. The same applies for 30 s after the API server has answered with a
   failure (429, 503) twice, for 30 s each: a webhook may refuse that pod alone. Such a pod does not count towards the limits.

DRY RUN
   With --dry-run nothing is done, on any tick. --dry-run-rules lists rules that are only measured while the others act: their
   findings have "dryRun":true, their victims have the state wouldEvict, they cause neither taints nor evictions, and they use up
   only the rule's own limit.

KOORDINATOR'S RULES
   BEMemoryEvict, BECPUEvict, MemoryAllocatableEvict, CPUAllocatableEvict, MemoryEvict and CPUEvict have no flags. A rule is enabled
   if resource-threshold-config of the node has "enable": true and the rule's thresholds (--list names them), in the
   ticks (sample.config.koordinator, by collect --slo-config) or in the ConfigMap of --config. Without both they are
   off; while the ticks do not have it because of an error (sample.errors, source config), the last strategy stays in force. Thresholds
   that contradict each other disable their rule, with the key and the reason in eviction.errors and in the log.

   They are evaluated in that order. A pod that is evicted for one rule counts as released for all, by each rule's own measure. After an
   eviction all memory rules have a cooldown of 4 seconds, all CPU rules of 20, and CPU rules start 20 seconds after the node's first
   tick. A BE pod is one with the label
   koordinator.sh/qosClass: BE, without any label one that requests batch resources or that Katalyst's annotation or collect's
   rules classify as reclaimed. koordinator.sh/eviction-policy, an annotation with a JSON list of rules, allows eviction of a pod
   only by those rules. The grace period is the pod's own.

ACTIONS (--action)
   log      nothing: the tick has wouldEvict, and the log has a line when it begins
   evict    the API server's eviction of that very pod (its UID is a precondition), which a disruption budget may refuse:
            evict requests it three times, 5 seconds apart, and never forces it. Then the pod is no candidate for half a minute, and the
            next one is tried. If the server does not answer, evict retries for half a minute; then the need is measured again,
            and while it lasts evict requests the same pod again before all others, because the server may have acted. After a
            restart the same applies to an eviction that was requested without an answer. When the pod terminates, it was accepted
   delete   the pod is deleted, past its disruption budgets
   freeze   the pod's cgroup is frozen (freezer.state or cgroup.freeze) and stays so, also when evict ends, until
            evict --thaw --state FILE. A frozen pod keeps its memory, and counts as released
   kill     SIGTERM to every process of the pod's cgroup, and the remaining processes are killed after the grace period (cgroup.kill,
            or signals to the frozen cgroup). At the end of the input evict waits for kills in progress; after a
            signal, the next run with the same --state continues them

   Actions run beside the stream: the state changes from requested to created, and to succeeded or failed in later ticks, and an error
   beside requested names what evict waits for. Nothing is done for ticks that are too old or of another node (--max-age,
   --node), which get a section {"refused"}.

   evict and delete are for a cluster (--kubeconfig, or the pod's own service account, which needs to create
   pods/eviction or delete pods, get pods, and create and patch events in events.k8s.io), with collect --kubeconfig at the
   stream's head. They write the pod's events: EvictCreated, EvictSucceeded, EvictFailed, EvictExceededGracePeriod, the same
   one within 6 minutes as a series of one object. For Koordinator's rules the events are that dialect's, warnings both:
   evictPodSuccess when the API server has granted the eviction, evictPodFail when it has not, with its reason at the end.

   freeze and kill are for machines without a cluster. Cgroups that contain evict itself, one of its parent processes or process 1
   are refused.

THE CONFIGURATION FILE (--config)
The configuration file of --config has the flags' names as keys:

      rules: [reclaimed-resource-pressure-eviction-plugin]
      reclaimed-threshold: 10
      load-sync-period: 15s

evict reads it again when it changes. If the file is invalid, evict logs the line of the error and keeps the last settings.

The file may also contain Katalyst's objects, in kubectl's form (KatalystCustomConfig with EvictionConfiguration or
AdminQoSConfiguration, --- between them); those that select the tick's node are used. Without a file evict uses the cluster's
objects, from sample.config; a change applies from that tick on. A flag overrides the file, the file the tick, the tick
the defaults; an AdminQoSConfiguration overrides an EvictionConfiguration. eviction.errors names an invalid object, and
the last valid one of the node stays in force. While the cluster's objects are not known yet, for a minute at most, every rule is
in dry run, and eviction.errors reports that. docs/configuration.md has the fields.

The file may also contain Koordinator's ConfigMap slo-controller-config, in kubectl's form, alone or with those objects: it replaces the
tick's strategies. Flags keep their defaults with it.`
