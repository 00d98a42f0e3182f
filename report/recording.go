package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/cluster"
	"polder/report/page"
	"polder/report/score"
)

// Targets that read the whole input and then report on it once. Each is the only target that writes the output.
const (
	targetExplain = "explain"
	targetHTML    = "html"
	targetScore   = "score"
	// targetLive is html with --listen, which follows the stream.
	targetLive = "live"
)

// recordingReport reads the whole input, and reports on it.
type recordingReport func(*options, context.Context, *stage.Session, io.Writer) error

// recordingReports are the targets that report on a recording.
var recordingReports = map[string]recordingReport{
	targetExplain: (*options).explainAll,
	targetHTML:    (*options).htmlAll,
	targetScore:   (*options).scoreAll,
}

func rejectAsTarget(name string) opener {
	return func(context.Context, *stage.Session, *options, io.Writer) (cluster.Target, error) {
		return nil, stage.Usagef("--to %s reports on the whole input: it excludes other targets", name)
	}
}

// ignoredFields are the fields that no such target reads.
var ignoredFields = []string{
	"Sample.Config", "Sample.Labels", "Sample.Annotations", "Pod.Labels", "Pod.Annotations", "Container.NUMAMemory", "Container.ID",
	"Advice.Fallback", "Advice.Resctrl",
}

// readRecording passes each tick of the input to add. It inserts decisions that the recording lacks, and passes their sections to begin. It
// returns false where it was stopped, so that there is no answer.
func readRecording(ctx context.Context, s *stage.Session, insert bool, begin func(inserted []string), add func(*tick.Tick)) (
	complete bool, err error,
) {
	inserted := &insertion{stopped: func() {}}
	if insert {
		inserted, err = insertDecisions(ctx, s)
		defer inserted.stop()
		if ctx.Err() != nil { // it was stopped meanwhile
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	begin(inserted.sections)
	err = s.Filter(ctx, stage.Filter{
		Section: tick.SectionReport,
		Reads: []string{
			tick.SectionSample, tick.SectionAdvice, tick.SectionIsolation, tick.SectionEviction, tick.SectionReport,
			tick.SectionNetwork,
		},
		Ignores:  ignoredFields,
		Terminal: true,
		// What is read afterwards is always old, and shown as it was.
		UsesRefused: true,
		Handle: func(_ context.Context, in stage.Incoming) (any, error) {
			add(in.Tick)
			return nil, nil
		},
	})
	if err != nil || ctx.Err() != nil {
		return false, err
	}
	return true, inserted.end()
}

// htmlAll writes the page of a recording.
func (o *options) htmlAll(ctx context.Context, s *stage.Session, out io.Writer) error {
	if isTerminal(s) {
		return stage.Usagef("--to html writes a page: give it a file, as in: report --to html < day.jsonl > day.html")
	}
	var r page.Recording
	complete, err := readRecording(ctx, s, true, func(inserted []string) { r.Inserted = inserted }, func(t *tick.Tick) {
		if o.ofNode(s, t) {
			r.Add(t)
		}
	})
	if err != nil || !complete {
		return err
	}
	if r.Nodes() == 0 {
		return fmt.Errorf("no tick in the input: give a recording, as in: report --to html < day.jsonl > day.html")
	}
	return r.Write(out)
}

// ofNode reports whether a tick is of the node in --node, if that is set.
func (o *options) ofNode(s *stage.Session, t *tick.Tick) bool {
	return !s.IsSet("node") || t.Node == s.Node
}

// scoreAll writes the score of the input, and that of the recording of --against.
func (o *options) scoreAll(ctx context.Context, s *stage.Session, out io.Writer) error {
	streams := []*score.Stream{{Name: nameOf(s.Input)}}
	complete, err := readRecording(ctx, s, false, func([]string) {}, func(t *tick.Tick) {
		if o.ofNode(s, t) {
			streams[0].Add(t)
		}
	})
	if err != nil || !complete {
		return err
	}
	if o.against != "" {
		other, err := o.scoreOf(ctx, s, o.against)
		if err != nil {
			return err
		}
		streams = append(streams, other)
	}
	for _, x := range streams {
		if x.Empty() {
			return fmt.Errorf("no tick in %s: give a recording, as in: report --to score < day.jsonl", x.Name)
		}
	}
	if _, err := io.WriteString(out, score.Text(streams...)); err != nil {
		return fmt.Errorf("write the score: %w", err)
	}
	return nil
}

// nameOf is an input's name in the table's header.
func nameOf(input string) string {
	if input == "" || input == "-" {
		return "the input"
	}
	return input[strings.LastIndexByte(input, '/')+1:]
}

// scoreOf is the score of a recording in a file, which is read like the input.
func (o *options) scoreOf(ctx context.Context, s *stage.Session, path string) (*score.Stream, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, stage.Usagef("--against: %w", err)
	} else if !info.Mode().IsRegular() {
		return nil, stage.Usagef("--against %s: want a recording in a file", path)
	}
	other := *s
	other.Input, other.Metrics = path, nil
	stream := &score.Stream{Name: nameOf(path)}
	_, err := readRecording(ctx, &other, false, func([]string) {}, func(t *tick.Tick) {
		if o.ofNode(s, t) {
			stream.Add(t)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("--against %s: %w", path, err)
	}
	return stream, nil
}
