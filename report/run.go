package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"polder/lib/series"
	"polder/lib/stage"
	"polder/lib/tick"
)

// options are the command line.
type options struct {
	to          []string
	metricsFile string
	header      int
	ascii       bool
	explain     explainOptions
	cluster     clusterOptions
	shared      *cluster // the targets' connection
}

func (o *options) flags(f *stage.Flags) {
	f.Category("Report")
	f.Strings(&o.to, "to", "report to this target (tty, table, explain, prometheus, cnr, node, nodemetric, kcc), can be given several times (default tty on a terminal, table elsewhere)")
	f.Path(&o.metricsFile, "metrics-file", "", "write metrics to `FILE`, for --to prometheus; node_exporter wants a name that ends in .prom")
	f.Int(&o.header, "header", 25, "table: name the columns first, and on a terminal again after this many lines (0: not at all)")
	f.Bool(&o.ascii, "ascii", "tty: draw with ASCII characters alone")
	o.explain.flags(f)
	o.cluster.flags(f)
}

// target is one place that ticks are reported to.
type target interface {
	// put reports a tick.
	put(stage.Incoming) (tick.Target, error)
	// close is called once, when no more ticks come.
	close() error
}

// targets are all that --to takes, in the order in which they are served.
var targets = []struct {
	name string
	view bool // the output is its own
	open func(context.Context, *stage.Session, *options, io.Writer) (target, error)
}{
	{"prometheus", false, openMetrics},
	{targetFleet, false, openFleet},
	{"cnr", false, openCNR},
	{"node", false, openNode},
	{nodeTaints, false, openNodeTaints},
	{targetNodeMetric, false, openNodeMetric},
	{targetKCC, false, openKCC},
	{targetExplain, true, openExplain},
	{"table", true, openTable},
	{"tty", true, openScreen},
}

func (o *options) run(ctx context.Context, s *stage.Session) (err error) {
	if err := o.cluster.check(s); err != nil {
		return err
	}
	if o.cluster.withdraw {
		if o.cluster.fleet {
			return o.withdrawFleet(ctx, s)
		}
		return o.withdraw(ctx, s)
	}
	names, err := o.names(s)
	if err != nil {
		return err
	}
	out, closeOut, err := output(s, names)
	if err != nil {
		return err
	}
	defer closeOut()
	if slices.Equal(names, []string{targetExplain}) {
		return o.explainAll(ctx, s, out)
	}
	if flag := o.explain.given(); flag != "" && !slices.Contains(names, targetExplain) {
		return stage.Usagef("%s goes with --to explain", flag)
	}

	var open []target
	terminal := false
	for _, t := range targets {
		if !slices.Contains(names, t.name) {
			continue
		}
		opened, failed := t.open(ctx, s, o, out)
		if failed != nil {
			return failed
		}
		defer func() {
			if e := opened.close(); e != nil && err == nil {
				err = e
			}
		}()
		open = append(open, opened)
		terminal = terminal || t.view
	}
	worth := worth{own: s.Node}
	defer func() {
		if text := worth.String(); terminal && text != "" {
			s.Log.Info(text)
		}
	}()
	return s.Filter(ctx, stage.Filter{
		Section:  tick.SectionReport,
		Reads:    []string{tick.SectionSample, tick.SectionAdvice, tick.SectionIsolation, tick.SectionEviction},
		Terminal: terminal,
		Handle: func(_ context.Context, in stage.Incoming) (any, error) {
			worth.add(in.Tick)
			section := &tick.Report{Refused: in.Refused, Targets: []tick.Target{}}
			for _, t := range open {
				said, err := t.put(in)
				if err != nil {
					return nil, err
				}
				section.Targets = append(section.Targets, said)
			}
			return section, nil
		},
	})
}

// worth is what batch got on this node, or on the first one of a stream of others.
type worth struct {
	own, node string
	ticks     int
	counted   *series.Node
}

func (w *worth) add(t *tick.Tick) {
	if w.counted == nil || t.Node == w.own && w.node != w.own {
		w.node, w.ticks, w.counted = t.Node, 0, series.NewNode("report")
	}
	if t.Node == w.node {
		w.ticks++
		w.counted.Add(t)
	}
}

func (w *worth) String() string {
	if w.ticks < 2 { // a line a minute from cron would be no sum
		return ""
	}
	return w.counted.Worth().String()
}

// names are the targets that were asked for; tty where there is no terminal is the table.
func (o *options) names(s *stage.Session) ([]string, error) {
	names := slices.Clone(o.to)
	if len(names) == 0 && !o.cluster.fleet {
		names = []string{"tty"}
	}
	for i, n := range names {
		if n == "tty" && !isTerminal(s) {
			names[i] = "table"
		}
		if !slices.ContainsFunc(targetNames(), func(known string) bool { return known == n }) {
			return nil, stage.Usagef("--to %q: want one of %s", n, strings.Join(targetNames(), ", "))
		}
	}
	if slices.Contains(names, "tty") && slices.Contains(names, "table") {
		return nil, stage.Usagef("--to tty and --to table want the same output: give one of them")
	}
	if slices.Contains(names, "prometheus") != (o.metricsFile != "") {
		return nil, stage.Usagef("--to prometheus and --metrics-file FILE go together: give both")
	}
	if o.cluster.taintNode {
		if !slices.Contains(names, "cnr") && !slices.Contains(names, "node") {
			return nil, stage.Usagef("--taint-node goes with --to cnr or --to node")
		}
		names = append(names, nodeTaints)
	}
	if o.cluster.fleet {
		return fleetNames(names)
	}
	if o.cluster.allNodes && slices.Contains(names, targetNodeMetric) {
		return nil, stage.Usagef("--to nodemetric and --all-nodes exclude each other: half an hour of every node's samples is too much for one process; each node's own report writes its NodeMetric")
	}
	return names, nil
}

// nodeTaints is the target of --taint-node.
const nodeTaints = "node-taints"

// wants reports whether --to names the target.
func (o *options) wants(name string) bool { return slices.Contains(o.to, name) }

func targetNames() []string {
	var names []string
	for _, t := range targets {
		if t.name != nodeTaints && t.name != targetFleet {
			names = append(names, t.name)
		}
	}
	slices.Sort(names)
	return names
}

// terminalOf is the terminal that the session writes to, nil where it is none.
func terminalOf(s *stage.Session) *os.File {
	f, ok := s.Out.(*os.File)
	if ok && (s.Output == "-" || s.Output == "") && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

func isTerminal(s *stage.Session) bool { return terminalOf(s) != nil }

// output opens --output for the table and the answer of explain; where ticks are passed on, the stream does that.
func output(s *stage.Session, names []string) (io.Writer, func(), error) {
	if s.Output == "-" || s.Output == "" || !slices.Contains(names, "table") && !slices.Contains(names, targetExplain) {
		return s.Out, func() {}, nil
	}
	f, err := os.OpenFile(s.Output, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, nil, stage.Usagef("open --output: %w", err)
	}
	return f, func() {
		if err := f.Close(); err != nil {
			s.Log.Error("close --output", "error", fmt.Errorf("%s: %w", s.Output, err))
		}
	}, nil
}
