package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"polder/lib/stage"
	"polder/lib/tick"
	why "polder/report/explain"
)

// explainOptions are the flags of --to explain.
type explainOptions struct {
	pod, at, from, until string
}

func (o *explainOptions) flags(f *stage.Flags) {
	f.Category("Explain")
	f.String(&o.pod, "pod", "", "explain: about this pod, `NAMESPACE/NAME` or NAME (default the node)")
	f.String(&o.at, "at", "", "explain: about this `TIME`, as 12:03 or in full (RFC 3339)\nHH:MM or HH:MM:SS is of the recording's day, in the time zone of its ticks.")
	f.String(&o.from, "from", "", "explain: about the time from `TIME` on; tty: play from there")
	f.String(&o.until, "until", "", "explain: about the time until `TIME`")
}

// given is a flag that was given, other than those in beside.
func (o *explainOptions) given(beside ...string) string {
	for _, f := range [...]struct{ name, value string }{{"pod", o.pod}, {"at", o.at}, {"from", o.from}, {"until", o.until}} {
		if f.value != "" && !slices.Contains(beside, f.name) {
			return "--" + f.name
		}
	}
	return ""
}

// question is the question that the flags ask.
func (o *explainOptions) question() (q why.Question, err error) {
	if o.at != "" && (o.from != "" || o.until != "") {
		return q, stage.Usagef("--at is one time, --from and --until are a period: give one or the other")
	}
	if strings.HasSuffix(o.pod, "/") { // otherwise the answer would be about the node
		return q, stage.Usagef("--pod %q has no name: want NAMESPACE/NAME or NAME", o.pod)
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
	if s.IsSet("node") {
		q.Node = s.Node
	}
	var r *why.Recording
	complete, err := readRecording(ctx, s, true, func(inserted []string) {
		q.Inserted = inserted
		r = why.New(q)
	}, func(t *tick.Tick) { r.Add(t) })
	if err != nil || !complete {
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
