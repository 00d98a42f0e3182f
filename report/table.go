package main

import (
	"context"
	"fmt"
	"io"

	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/age"
	"polder/report/cluster"
	"polder/report/view"
)

// table writes a line a tick.
type table struct {
	out     io.Writer
	session *stage.Session
	stream  *age.Stream
	bare    bool // without a header
	every   int  // lines between two headers, 0 for one header alone
	lines   int
}

func openTable(_ context.Context, s *stage.Session, o *options, out io.Writer) (cluster.Target, error) {
	t := &table{out: out, session: s, stream: age.New(s.Recording(), s.AgeLimit), bare: o.header == 0}
	if isTerminal(s) {
		t.every = o.header
	}
	return t, nil
}

func (t *table) Put(in stage.Incoming) (tick.Target, error) {
	text := ""
	if !t.bare && (t.lines == 0 || t.every > 0 && t.lines%t.every == 0) {
		text = view.TableHeader() + "\n"
	}
	t.lines++
	now := t.session.Now()
	t.stream.Read(in.Tick, now)
	note := t.stream.Mark(in.Tick, now)
	if _, err := io.WriteString(t.out, text+view.TableLine(in.Tick, note)+"\n"); err != nil {
		return tick.Target{}, fmt.Errorf("write the table: %w", err)
	}
	return tick.Target{Target: "table", State: tick.TargetWritten}, nil
}

func (t *table) Close() error { return nil }
