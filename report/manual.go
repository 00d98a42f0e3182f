package main

const manual = `
Reads ticks and reports them to each target of --to:

   tty          a screen that is drawn anew in place: the node's use, a map of the cores with the pool of each, what may be
                reclaimed and how that moved, the pods, what was written to which cgroup, pressures and evictions. The last
                picture stays when report ends. Where the output is no terminal, it is the table
   table        a line for each tick
   prometheus   a file for node_exporter's textfile collector (--metrics-file), written whole and renamed. It is left alone
                while nothing in it would change but the tick's time, and written at least every 10 seconds
   cnr          the node's CustomNodeResource (kubectl get kcnr), made if it is missing: what reclaimed pods may have, in all
                and by NUMA node with the pods that have some of it, and the taints that evict decided on
   node         the extended resources resource.katalyst.kubewharf.io/reclaimed_millicpu and .../reclaimed_memory in the node's
                status, which kube-scheduler counts

Without --to it is tty on a terminal, table elsewhere. With tty or table the output is for people; without them the ticks are
passed on, with the section "report".

Sections read: sample, advice, isolation, eviction. Section written: report.

The screen's bar of CPU time has the services' part first, then the reclaimed pods', then the rest of the system. Pools are
told apart by letter as well as by colour: S share, R reclaim, D dedicated, V reserve. NO_COLOR is honoured; --ascii draws
with ASCII characters alone.

Ticks that are too old or of another node (--max-age, --node) are not written as metrics or to the cluster, and the section
says so. The screen and the table show every tick: they are for recordings, too.

THE CLUSTER
   An amount is written at once when it has shrunk by 1 % or grown by --min-change (5 %), and so are pods and taints that come
   and go. A smaller loss, as of memory, which never stands still, is written when the last write is --min-interval ago (30 s);
   the rest waits for --resync (5 min). A tick without an advice is no offer of nothing: nothing is written, and what no tick
   has confirmed for --stale-after is withdrawn. So is what an earlier process left, but only while report runs: a report that
   was killed for good leaves its last figures. report --withdraw takes them away and ends; it serves as a preStop hook, for
   what somebody else takes away is put back only 2 seconds later, and ever later where it goes on.

   Calls run beside the stream, one at a time for each object, and the newest figures win. What became of them is in
   a later tick's section: written, unchanged, pending, or failed with an error that says what to do. A server that is away is
   asked again after half a second, then less often, every 8 seconds at last; after an error that somebody has to mend, every
   30. At the end of the input report waits for what is not written yet, and fails (status 1) where 5 seconds pass in vain.

   The CustomNodeResource goes with its node (an owner reference). Its status is written by server-side apply, as
   polder-report; a field that another manager holds is taken over, and the log names the manager. Taints are merged with
   what others have set, which stays; the annotation polder/taints names ours, and their timeAdded stays as long as they do. A
   pod that may run on several NUMA nodes counts by an equal part on each. In the node's status the two resources alone are
   written, so that kubelet's own are kubelet's.

   The role needs: nodes get, list, watch; nodes/status patch; customnoderesources get, list, watch, create, patch;
   customnoderesources/status patch. The CRDs are in deploy/kubernetes/crds. With --dry-run no cluster is asked, and the
   objects are in the log ("would be written").

EXAMPLES
   Watch this machine
      collect | advise | isolate --dry-run | evict | report
   Look at a recording
      report --to table < yesterday.jsonl
   Metrics for node_exporter (--collector.textfile.directory=/var/lib/node_exporter)
      ... | report --to prometheus --metrics-file /var/lib/node_exporter/polder.prom > /dev/null
   Offer reclaimed CPU and memory to a cluster, from outside of it
      collect --kubeconfig ~/.kube/config | advise | isolate | report --to cnr,node --kubeconfig ~/.kube/config > /dev/null
   See what would be written there, from a recording
      report --to cnr --to node --dry-run --input yesterday.jsonl > /dev/null
   Take it back
      report --withdraw --node "$(hostname)" --kubeconfig ~/.kube/config
   Both: the metrics, and a line a tick in the log
      ... | report --to prometheus --metrics-file /run/polder.prom --to table

EXIT STATUS
   0 end of input or a clean stop, 1 a failure while running, 2 unusable arguments or configuration.`
