package main

import (
	"context"
	"fmt"
	"io"

	"polder/lib/stage"
	"polder/lib/tick"
	why "polder/report/explain"
)

// targetExplain answers a question about the whole input instead of reporting each tick.
const targetExplain = "explain"

// explainOptions are the flags of --to explain.
type explainOptions struct {
	pod, at, from, until string
}

func (o *explainOptions) flags(f *stage.Flags) {
	f.Category("Explain")
	f.String(&o.pod, "pod", "", "explain: ask about this pod, `NAMESPACE/NAME` or NAME (default: about the node)")
	f.String(&o.at, "at", "", "explain: ask about this `TIME`: RFC 3339, or HH:MM or HH:MM:SS of the recording's day, in the time zone of its ticks")
	f.String(&o.from, "from", "", "explain: ask about the time from `TIME` on")
	f.String(&o.until, "until", "", "explain: ask about the time until `TIME`")
}

func (o *explainOptions) given() string {
	for _, f := range [...]struct{ name, value string }{{"pod", o.pod}, {"at", o.at}, {"from", o.from}, {"until", o.until}} {
		if f.value != "" {
			return "--" + f.name
		}
	}
	return ""
}

// question is what the flags ask.
func (o *explainOptions) question() (q why.Question, err error) {
	if o.at != "" && (o.from != "" || o.until != "") {
		return q, stage.Usagef("--at is one time, --from and --until are a period: give one or the other")
	}
	q.Pod = o.pod
	for _, f := range [...]struct {
		name, value string
		into        **why.Moment
	}{{"at", o.at, &q.At}, {"from", o.from, &q.From}, {"until", o.until, &q.Until}} {
		if f.value == "" {
			continue
		}
		if *f.into, err = why.ParseMoment(f.value); err != nil {
			return q, stage.Usagef("--%s %w", f.name, err)
		}
	}
	return q, nil
}

// explainAll reads all ticks and then answers.
func (o *options) explainAll(ctx context.Context, s *stage.Session, out io.Writer) error {
	q, err := o.explain.question()
	if err != nil {
		return err
	}
	inserted, err := insertDecisions(ctx, s)
	if err != nil {
		return err
	}
	defer inserted.stop()
	q.Inserted = inserted.sections
	if s.IsSet("node") {
		q.Node = s.Node
	}
	r := why.New(q)
	err = s.Filter(ctx, stage.Filter{
		Section: tick.SectionReport,
		Reads:   []string{tick.SectionSample, tick.SectionAdvice, tick.SectionIsolation, tick.SectionEviction, tick.SectionReport},
		Ignores: []string{
			"Sample.Config", "Sample.Labels", "Sample.Annotations", "Pod.Labels", "Pod.Annotations", "Container.NUMAMemory", "Container.ID",
			"Advice.Fallback", "Advice.Resctrl",
		},
		Terminal: true,
		Handle: func(_ context.Context, in stage.Incoming) (any, error) {
			r.Add(in.Tick)
			return nil, nil
		},
	})
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil // stopped: what was read is no answer
	}
	if err := inserted.end(); err != nil {
		return err
	}
	text, err := r.Answer()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

func openExplain(context.Context, *stage.Session, *options, io.Writer) (target, error) {
	return nil, stage.Usagef("--to explain answers one question about the whole input, and goes with no other target")
}
