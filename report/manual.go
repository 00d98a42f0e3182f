package main

const manual = `
Reads ticks and reports them to each target of --to:

   tty          a screen that is drawn anew in place: the node's use, a map of the cores with the pool of each, what may be
                reclaimed and how that moved, the pods, what was written to which cgroup, pressures and evictions. The last
                picture stays when report ends. Where the output is no terminal, it is the table
   table        a line for each tick
   prometheus   a file for node_exporter's textfile collector (--metrics-file), written whole and renamed. It is left alone
                while nothing in it would change but the tick's time, and written at least every 10 seconds

Without --to it is tty on a terminal, table elsewhere. With tty or table the output is for people; with prometheus alone the
ticks are passed on, with the section "report".

Sections read: sample, advice, isolation, eviction. Section written: report.

The screen's bar of CPU time has the services' part first, then the reclaimed pods', then the rest of the system. Pools are
told apart by letter as well as by colour: S share, R reclaim, D dedicated, V reserve. NO_COLOR is honoured; --ascii draws
with ASCII characters alone.

Ticks that are too old or of another node (--max-age, --node) are not written as metrics, and the section says so. The
screen and the table show every tick: they are for recordings, too.

EXAMPLES
   Watch this machine
      collect | advise | isolate --dry-run | evict | report
   Look at a recording
      report --to table < yesterday.jsonl
   Metrics for node_exporter (--collector.textfile.directory=/var/lib/node_exporter)
      ... | report --to prometheus --metrics-file /var/lib/node_exporter/polder.prom > /dev/null
   Both: the metrics, and a line a tick in the log
      ... | report --to prometheus --metrics-file /run/polder.prom --to table

EXIT STATUS
   0 end of input or a clean stop, 1 a failure while running, 2 unusable arguments or configuration.`
