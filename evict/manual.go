package main

const manual = `
Reads ticks, measures every rule at every tick, and adds the section "eviction": the pressures with value and threshold,
the taints that should be on the node, and the pods that go. A rule sees only the tick, its settings and its own window of
ticks before. Time is the tick's, so a recording is decided as it would have been then.

Sections read: sample, advice. Section written: eviction.

WHO GOES
   For each rule at most one pod at a tick, --burst over all rules. Never a system pod, a static, mirror or critical pod,
   one that has ended or is terminating, or one annotated polder/evict=false (--opt-out). A pod on its way out counts as
   released, whoever ended it: no second one goes for the same need while it is still going. One that is still there after
   max(10s, 1.5 x its grace period) is reported as failed and left alone for 5 minutes, in which another may go.

WHAT HAPPENS TO IT (--action)
   log      nothing: the tick says wouldEvict, and so does the log when it begins
   evict    the API server's eviction of that very pod (its UID is a precondition), which a disruption budget may refuse:
            it is asked for three times, 5 seconds apart, and never forced. Then the pod rests for half a minute, in which
            another may go. A server that does not answer is asked for half a minute; then the need is measured anew
   delete   the pod is deleted, whatever disruption budgets say
   freeze   the pod's cgroup is frozen (freezer.state or cgroup.freeze) and stays so, also when evict ends, until
            evict --thaw --state FILE. A frozen pod keeps its memory, and counts as released
   kill     SIGTERM to every process of the pod's cgroup, and what is left after the grace period is killed (cgroup.kill,
            or signals to the standing cgroup). At the end of the input evict waits for what it has begun; after a
            signal, the next run with the same --state goes on with it

   It runs beside the stream: states go from requested over created to succeeded or failed in later ticks, and an error
   beside requested says what it waits for. Nothing is done for ticks that are too old or of another node (--max-age,
   --node), which get a section {"refused"}.

   evict and delete are for a cluster (--kubeconfig, or the pod's own service account, which needs to create
   pods/eviction or delete pods, get pods, and create and patch events in events.k8s.io), with collect --kubeconfig at the
   stream's head. They tell the pod's events: EvictCreated, EvictSucceeded, EvictFailed, EvictExceededGracePeriod, the same
   one within 6 minutes as a series of one object.

   freeze and kill are for machines without one. Cgroups that hold evict itself, a process that it runs under or process 1
   are refused.

EXAMPLES
   Who would go, and why?
      collect | advise | evict | jq -c '.eviction.evictions[]?'
   What would another threshold have done yesterday?
      evict --dry-run --reclaimed-threshold 2 < yesterday.jsonl | jq -c 'select(.eviction.evictions) | .time'
   Make room for the services on this machine
      collect | advise | isolate | evict --action kill --state /var/lib/polder/evict.json > /dev/null
   The same in a cluster
      collect --kubeconfig ~/.kube/config | advise | isolate | evict --action evict --kubeconfig ~/.kube/config > /dev/null
   Stop the batch work instead of ending it, and let it go on later
      ... | evict --action freeze --state /run/evict.json > /dev/null
      evict --thaw --state /run/evict.json
   Which rules are there, with which settings?
      evict --list

The configuration file of --config has the flags' names as keys:
      rules: [reclaimed-resource-pressure-eviction-plugin]
      reclaimed-threshold: 10
      load-sync-period: 15s
It is read again when it changes. A file that is no good is refused with its line, and the settings before stay.

EXIT STATUS
   0 end of input or a clean stop, 1 a failure while running, 2 unusable arguments or configuration.`
