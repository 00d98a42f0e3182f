// Collect samples the machine: one line of JSON, a tick, an interval.
//
// Synopsis:
//
//	collect [options] | advise …
//	collect --once [--state FILE]
//
// Description: collect reads /proc, /sys and the control groups (version 1 and 2), and writes what it saw as the section
// sample of a tick. It changes nothing, and needs no privilege but that of reading. A value that it could not read is absent,
// and sample.errors names it; collect never ends because of that. Where the next stage is slow, the newest tick replaces the one
// that waits.
//
// A container's load is the number of its runnable threads, sampled every 5 s and averaged over 1 and 5 minutes as the
// kernel averages its own. It is absent for the first 5 s and begins with their mean, not at 0. Threads are found through
// the cgroup's tasks in the hierarchy that accounts for CPU time, so collect must run in the machine's pid namespace. Reading their
// states takes a twentieth of the interval at most; the remaining threads are read in the next rounds.
//
// With a cluster, collect watches the node's pods, the node object and Katalyst's configuration objects, and with --slo-config
// Koordinator's ConfigMap, and joins them with what it reads. A stale list stays in use, and sample.errors names the time since when it is
// stale. See collect --help.
//
// A pod's cgroup includes all cgroups below it: where a rule makes a cgroup below a pod's a pod too, its use counts in both.
//
// Options: see collect --help.
//
// Section out: sample. Sections in: none.
//
// Exit status: 0 end (--once, --count) or a clean stop on SIGTERM or SIGINT, 1 a failure while running, 2 unusable
// arguments or classification rules.
//
// Bugs: with cgroup version 1 a cgroup that is missing in the hierarchy of CPU accounting is not seen at all.
package main
