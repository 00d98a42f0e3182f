package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"polder/lib/metrics"
	"polder/lib/tick"
)

// sink is the output of a tool's ticks.
type sink struct {
	stream  *stream
	pipe    pipe
	mailbox *tick.Mailbox // nil unless live
	value   []byte
	line    []byte
}

// countingWriter counts the lines that are written, each in one piece, alone or with others.
type countingWriter struct {
	io.Writer
	metrics *metrics.Set
}

func (c countingWriter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	if err == nil {
		for range bytes.Count(p, []byte{'\n'}) {
			c.metrics.Written()
		}
	}
	return n, err
}

func (s *Session) openOut(ctx context.Context, f Filter) (*sink, error) {
	if f.Terminal {
		return &sink{}, nil
	}
	return s.openSink(ctx, f.Live)
}

func (s *Session) openSink(ctx context.Context, live bool) (*sink, error) {
	out, err := openOutput(s.Output, s.Out)
	if err != nil {
		return nil, OpenError(err)
	}
	if out.isFIFO {
		timeout := drainTimeout
		context.AfterFunc(ctx, func() { _ = out.SetWriteDeadline(time.Now().Add(timeout)) })
	}
	k := &sink{stream: out, pipe: pipeOf(out.out)}
	if s.Metrics != nil {
		out.out = countingWriter{out.out, s.Metrics}
	}
	if live {
		k.mailbox = tick.NewMailbox(out.out)
	}
	return k, nil
}

func (k *sink) dropped() int64 {
	if k.mailbox == nil {
		return 0
	}
	return k.mailbox.Dropped()
}

// forward forwards a tick, with section spliced in unless it is nil.
func (k *sink) forward(l *tick.Line, name string, section any) error {
	if section == nil {
		k.line = append(append(k.line[:0], l.Bytes()...), '\n')
		return k.write()
	}
	var err error
	if k.value, err = tick.AppendMarshal(k.value[:0], section); err != nil {
		return fmt.Errorf("section %s: %w", name, err)
	}
	k.line = l.Splice(k.line[:0], name, k.value)
	return k.write()
}

func (k *sink) write() error {
	k.pipe.makeRoom(len(k.line))
	if k.mailbox != nil {
		return k.mailbox.Put(k.line)
	}
	if _, err := k.stream.out.Write(k.line); err != nil {
		return fmt.Errorf("write tick: %w", err)
	}
	return nil
}

// settleTimeout is how long a live tool waits for its output before it reads the next tick: much longer than a write takes, and less than
// any interval. Without it the ticks that waited while the tool was busy would replace one another before the first is written. Tests wait
// longer.
var settleTimeout = 100 * time.Millisecond

// waitWritten waits until everything is written to the output. A next stage that has not read it by then is slow, and will get the
// newest tick.
func (k *sink) waitWritten() {
	if k.mailbox != nil {
		k.mailbox.WaitWritten(settleTimeout)
	}
}

// end closes the output, and returns how many ticks were dropped, because no later tick's droppedTicks contains the last ones.
func (k *sink) end(log *slog.Logger) error {
	err := k.Close()
	if n := k.dropped(); n > 0 {
		log.Info("ticks were dropped: replaced by newer ones, or not read by the next stage", "droppedTicks", n)
	}
	return err
}

func (k *sink) Close() error {
	var err error
	if k.mailbox != nil {
		err = k.mailbox.Close()
	}
	if k.stream == nil {
		return err
	}
	return errors.Join(err, k.stream.Close())
}

// Source is the output of a tool that creates ticks.
type Source struct {
	sink      *sink
	s         *Session
	startedAt time.Time
}

// OpenSource opens the output. With live, the newest tick replaces the waiting one if the next stage is slow.
func (s *Session) OpenSource(ctx context.Context, live bool) (*Source, error) {
	if err := s.serveMetrics(); err != nil {
		return nil, err
	}
	k, err := s.openSink(ctx, live)
	if err != nil {
		return nil, err
	}
	s.notify.ready(ctx)
	return &Source{sink: k, s: s}, nil
}

// Begin records the beginning of the next tick, for the metrics.
func (o *Source) Begin() { o.startedAt = time.Now() }

// Put writes a tick.
func (o *Source) Put(t *tick.Tick) error {
	o.count(t)
	line, err := tick.AppendMarshal(o.sink.line[:0], t)
	if err != nil {
		return err
	}
	o.sink.line = append(line, '\n')
	o.s.notifyAlive()
	return o.sink.write()
}

// count adds a tick to the metrics.
func (o *Source) count(t *tick.Tick) {
	if o.s.Metrics == nil {
		return
	}
	duration := time.Duration(-1)
	if !o.startedAt.IsZero() {
		duration = time.Since(o.startedAt)
	}
	o.s.Metrics.Tick(&tick.Tick{V: t.V, Node: t.Node, Time: t.Time, Sample: t.Sample}, duration)
}

// PutAll writes the ticks of many nodes as one: if the next stage is slow, later ones replace all of them, and they
// count as one dropped tick.
func (o *Source) PutAll(ticks []*tick.Tick) error {
	all := o.sink.line[:0]
	for _, t := range ticks {
		o.count(t)
		o.startedAt = time.Time{} // the time included all of them
		var err error
		if all, err = tick.AppendMarshal(all, t); err != nil {
			return err
		}
		all = append(all, '\n')
	}
	o.sink.line = all
	if len(all) == 0 {
		return nil
	}
	o.s.notifyAlive()
	return o.sink.write()
}

// Dropped returns the number of ticks that were not written because the next stage was slow.
func (o *Source) Dropped() int64 { return o.sink.dropped() }

// Close writes the waiting tick.
func (o *Source) Close() error { return o.sink.end(o.s.Log) }
