package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"polder/lib/stage"
	"polder/report/cluster"
	"polder/report/terminal"
)

// options are the command line.
type options struct {
	to          []string
	metricsFile string
	header      int
	ascii       bool
	against     string
	listen      string
	speed       float64
	explain     explainOptions
	cluster     cluster.Options
}

func (o *options) flags(f *stage.Flags) {
	f.Category("Report")
	f.Choices(&o.to, "to", "report to this `TARGET`, see above (default tty or table)\nThe option may be repeated. The default is tty on a terminal, table elsewhere.",
		targetNames()...)
	f.Path(&o.metricsFile, "metrics-file", "", "prometheus: write metrics to `FILE`\nnode_exporter wants a name that ends in .prom.")
	f.Int(&o.header, "header", 25, "table: repeat the header every this many lines (0: never)\nIt is always first, and repeated only on a terminal.")
	f.Bool(&o.ascii, "ascii", "tty: draw with ASCII characters alone")
	f.Path(&o.against, "against", "", "score: also score the recording in `FILE`")
	f.String(&o.listen, "listen", "", "html: serve the page, which then follows the stream, at `HOST:PORT`\nThere is neither password nor encryption. A PORT alone is on the loopback address.")
	f.Float(&o.speed, "speed", 1, "tty: play a recording at this many times its own speed")
	o.explain.flags(f)
	o.cluster.Flags(f)
}

// recordingTarget is the target that reads the whole input, nil where each tick is reported when it is read.
func (o *options) recordingTarget(s *stage.Session, names []string) (recordingReport, error) {
	plays, err := o.screen().Plays(s, names)
	if err != nil {
		return nil, err
	}
	allowed := []string{}
	if plays {
		allowed = append(allowed, "from")
	}
	if flag := o.explain.given(allowed...); flag != "" && !slices.Contains(names, targetExplain) {
		return nil, stage.Usagef("%s needs --to explain", flag)
	}
	if o.against != "" && !slices.Contains(names, targetScore) {
		return nil, stage.Usagef("--against needs --to score")
	}
	if plays {
		return (*options).play, nil
	}
	if len(names) == 1 {
		return recordingReports[names[0]], nil
	}
	return nil, nil
}

func (o *options) screen() terminal.Options {
	return terminal.Options{ASCII: o.ascii, Speed: o.speed, From: o.explain.from, Ignores: ignoredFields}
}

// play plays a recording on the screen.
func (o *options) play(ctx context.Context, s *stage.Session, out io.Writer) error {
	return o.screen().Play(ctx, s, out)
}

func isTerminal(s *stage.Session) bool { return terminal.Of(s) != nil }

// ownsOutput reports whether a target writes its own text to --output.
func ownsOutput(name string) bool { return name == "table" || recordingReports[name] != nil }

// output opens --output for the table and for the targets that read the whole input. Where ticks are passed on, the stream opens it.
func output(s *stage.Session, names []string) (io.Writer, func(), error) {
	if s.Output == "-" || s.Output == "" || !slices.ContainsFunc(names, ownsOutput) {
		return s.Out, func() {}, nil
	}
	f, err := s.OpenText()
	if err != nil {
		return nil, nil, err
	}
	return f, func() {
		if err := f.Close(); err != nil {
			s.Log.Error("close --output", "error", fmt.Errorf("%s: %w", s.Output, err))
		}
	}, nil
}
