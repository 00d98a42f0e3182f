package main

import (
	"context"
	"io"
	"slices"

	"polder/lib/stage"
	"polder/report/cluster"
	"polder/report/terminal"
)

// opener opens a target, which writes its own text, if it has any, to the writer.
type opener func(context.Context, *stage.Session, *options, io.Writer) (cluster.Target, error)

// metricsUnread are the fields of a tick that no metric needs: the containers' but one, and the advice for single cgroups.
var metricsUnread = []string{
	"Container.Name", "Container.ID", "Container.Cgroup", "Container.CPUSetCPUs", "Container.UsageMilliCPU",
	"Container.Load1", "Container.Load5",
	"Container.Threads", "Container.Memory", "Container.NUMAMemory", "Container.Requests", "Container.Limits",
	"Pod.Labels", "Pod.Annotations", "Pod.Cgroup", "Pod.Load5", "Pod.Threads", "Pod.MemoryEvents",
	"Pod.MemoryPressure", "Pod.IOPressure",
	"Memory.RSSBytes", "Memory.CacheBytes", "Memory.UsageBytes",
	"Advice.Cgroups", "Advice.Fallback",
}

// targets are all values of --to, in the order in which they get each tick.
var targets = []struct {
	name string
	view bool // it writes the output
	open opener
}{
	{"prometheus", false, openMetrics},
	{"cnr", false, ofCluster("cnr")},
	{"node", false, ofCluster("node")},
	{cluster.NodeTaints, false, ofCluster(cluster.NodeTaints)},
	{cluster.NodeMetric, false, ofCluster(cluster.NodeMetric)},
	{cluster.KCC, false, ofCluster(cluster.KCC)},
	{targetExplain, true, rejectAsTarget(targetExplain)},
	{targetLive, false, openLive},
	{targetHTML, true, rejectAsTarget(targetHTML)},
	{targetScore, true, rejectAsTarget(targetScore)},
	{"table", true, openTable},
	{"tty", true, openScreen},
}

func openScreen(ctx context.Context, s *stage.Session, o *options, out io.Writer) (cluster.Target, error) {
	return terminal.Open(ctx, s, o.screen(), out)
}

// ofCluster opens a target that writes objects of the cluster.
func ofCluster(name string) opener {
	return func(ctx context.Context, s *stage.Session, o *options, _ io.Writer) (cluster.Target, error) {
		return o.cluster.Open(ctx, s, name)
	}
}

// names are the targets of --to; tty is the table where there is no terminal.
func (o *options) names(s *stage.Session) ([]string, error) {
	names := slices.Clone(o.to)
	if len(names) == 0 {
		names = []string{"tty"}
	}
	for i, n := range names {
		if n == "tty" && !isTerminal(s) {
			names[i] = "table"
		}
	}
	if slices.Contains(names, "tty") && slices.Contains(names, "table") {
		return nil, stage.Usagef("--to tty and --to table want the same output: give one of them")
	}
	if slices.Contains(names, "prometheus") != (o.metricsFile != "") {
		return nil, stage.Usagef("--to prometheus and --metrics-file FILE need each other: give both")
	}
	if o.cluster.TaintNode {
		if !slices.Contains(names, "cnr") && !slices.Contains(names, "node") {
			return nil, stage.Usagef("--taint-node needs --to cnr or --to node")
		}
		names = append(names, cluster.NodeTaints)
	}
	if o.listen != "" {
		i := slices.Index(names, targetHTML)
		if i < 0 {
			return nil, stage.Usagef("--listen needs --to html")
		}
		names[i] = targetLive
	}
	if o.cluster.AllNodes && slices.Contains(names, cluster.NodeMetric) {
		return nil, stage.Usagef("--to nodemetric and --all-nodes exclude each other: half an hour of every node's samples is too much for one process; each node's own report writes its NodeMetric")
	}
	return names, nil
}

func targetNames() []string {
	var names []string
	for _, t := range targets {
		if t.name != cluster.NodeTaints && t.name != targetLive {
			names = append(names, t.name)
		}
	}
	slices.Sort(names)
	return names
}
