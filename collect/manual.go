package main

// manual is the text of --help.
const manual = `
Reads /proc, /sys and the control groups (version 1 and 2), and writes one line of JSON, a tick, an interval: the
machine's shape and use, and each container's CPU use, load, memory, throttling, cpuset and threads. It changes nothing.
A value that could not be read is absent, and sample.errors says why.

Section written: sample. Sections read: none.

Without a cluster, rules say which cgroups are pods (--classify; --print-classify prints the rules in force without it:
kubepods by QoS tier, *.slice otherwise). The first rule whose glob matches a cgroup's path wins:

   rules:
     - cgroup: /kubepods/burstable/pod*
       class: shared            # dedicated, shared, reclaimed, system; none = no pod, look inside
       containers: children     # the pod's containers are its child cgroups; the default is self
     - cgroup: /batch.slice/*
       class: reclaimed
       namespace: batch
       requests: {reclaimedMilliCPU: 2000, reclaimedMemoryBytes: 1Gi}

A container's load is the number of its runnable threads, sampled every 5 s and averaged over 1 and 5 minutes as the
kernel averages its own; it is absent for the first 5 s and begins with their mean (so --once has none without --state).
Rates cover sample.intervalSeconds; the first tick has none.

Examples:

   collect | advise --policy katalyst | report --to tty
   collect --once | jq '.sample.pods[] | {name, qos, usageMilliCPU}'
   collect --once --state /var/lib/polder/collect.json >> /var/log/polder.jsonl    # from cron: rates since the last run
   collect --once --root /var/crash/node7 --classify rules.yaml                    # a copy of /proc and /sys`
