package stage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"polder/lib/tick"
)

// sink is where a tool's ticks go.
type sink struct {
	stream  *stream
	mailbox *tick.Mailbox // nil unless live
	value   []byte
	line    []byte
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
		return nil, &UsageError{err}
	}
	if out.fifo {
		context.AfterFunc(ctx, func() { _ = out.SetWriteDeadline(time.Now().Add(drainWithin)) })
	}
	k := &sink{stream: out}
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

// put passes a tick on, with section spliced in unless it is nil.
func (k *sink) put(l *tick.Line, name string, section any) error {
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
	if k.mailbox != nil {
		return k.mailbox.Put(k.line)
	}
	if _, err := k.stream.out.Write(k.line); err != nil {
		return fmt.Errorf("write tick: %w", err)
	}
	return nil
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

// Source is the output of a tool that makes ticks.
type Source struct {
	sink *sink
	s    *Session
}

// OpenSource opens the output. With live, the newest tick replaces the waiting one where the next stage is slow.
func (s *Session) OpenSource(ctx context.Context, live bool) (*Source, error) {
	k, err := s.openSink(ctx, live)
	if err != nil {
		return nil, err
	}
	s.notify.ready(ctx)
	return &Source{sink: k, s: s}, nil
}

// Put writes a tick.
func (o *Source) Put(t *tick.Tick) error {
	line, err := tick.AppendMarshal(o.sink.line[:0], t)
	if err != nil {
		return err
	}
	o.sink.line = append(line, '\n')
	o.s.beat()
	return o.sink.write()
}

// Dropped is the number of ticks that were not written because the next stage was slow.
func (o *Source) Dropped() int64 { return o.sink.dropped() }

// Close writes what waits.
func (o *Source) Close() error { return o.sink.Close() }
