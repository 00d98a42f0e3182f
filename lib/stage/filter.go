package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"polder/lib/metrics"
	"polder/lib/tick"
)

// drainTimeout is how long a stopping tool waits for the rest of a line that it has begun to read or write. Tests wait longer.
var drainTimeout = 2 * time.Second

// replayGCPercent is the garbage collector's target for recordings, unless GOGC is set. On a node a tool uses one or two
// megabytes and handles one tick per second: there the default is right, because memory is scarce. A recording runs as fast as
// possible, and would spend a fifth of its time on collecting a tiny heap.
const replayGCPercent = 400

// Filter is the loop of a tool that reads ticks: for each one, Handle is called and its section spliced in.
type Filter struct {
	// Section is the one that Handle returns.
	Section string
	// Reads names the sections that Handle needs; the others are not decoded.
	Reads []string
	// Ignores names fields of those sections that Handle does not read (see [tick.NewDecoder]).
	Ignores []string
	// Handle returns the section to splice in, or nil to forward the tick unchanged. An error ends the tool.
	Handle func(context.Context, Incoming) (any, error)
	// OnSilence is called when no tick has come for SilenceAfter, and every few seconds from then on until one comes, on the same
	// goroutine as Handle. SilenceAfter is called there too, after each tick, because it may depend on the ticks; 0 at the start is never.
	OnSilence    func(context.Context)
	SilenceAfter func() time.Duration
	// Live makes the newest tick replace the waiting one if the next stage is slow. Without it a slow next stage
	// slows this one down, and no tick is lost, as replaying a recording requires.
	Live bool
	// Terminal means that the tool's output is its own: ticks are not forwarded.
	Terminal bool
	// UsesRefused means that Handle uses refused ticks, too, so that an input of refused ticks alone is no reason for a warning.
	UsesRefused bool
}

// Incoming is one tick that a tool processes.
type Incoming struct {
	*tick.Tick
	// Line is the tick as it was read. It is valid until Handle returns.
	Line *tick.Line
	// Refused is why an acting tool must ignore the tick; empty if it may act.
	Refused string
	// Dropped is the number of ticks not forwarded so far (Filter.Live).
	Dropped int64
}

// inputLine is a line that passes from the reader to the decoder, and with its tick to the loop.
type inputLine struct {
	line       *tick.Line
	tick       *tick.Tick
	sectionErr error       // a section violates the schema
	err        error       // the end of the input
	counts     tick.Counts // the reader's counts, at the end
}

// Filter runs f until the input ends or ctx does. On SIGTERM a tool leaves a FIFO at the beginning of a line: it
// finishes the line that it has begun and reads no more.
func (s *Session) Filter(ctx context.Context, f Filter) error {
	if err := s.serveMetrics(); err != nil {
		return err
	}
	in, err := openInput(s.Input, s.In)
	if err != nil {
		return OpenError(err)
	}
	defer in.Close()
	if !f.Terminal {
		if err := s.checkOutput(in.info()); err != nil {
			return err
		}
	}
	in.drainTimeout = drainTimeout
	if in.isTerminal() {
		fmt.Fprintf(s.Err, "%s: waits for ticks from this terminal: give it a recording (--input FILE) or a pipe (collect | ...), or press Ctrl-D\n", s.Tool)
	}
	if in.isRecording() {
		s.SetGCPercent(replayGCPercent)
	} else {
		s.OneProcessor()
	}
	out, err := s.openOut(ctx, f)
	if err != nil {
		return err
	}

	// Reading, decoding and handling run concurrently, each on the next line. From a FIFO no line is read before the previous one
	// has been forwarded: lines that this process has read are lost when it is killed, those in the FIFO are not.
	lines, decoded := make(chan inputLine), make(chan inputLine)
	bufferedLines := 2 // a live stream needs no more, and each is as large as a line
	if in.isRecording() {
		bufferedLines = 4
	}
	if in.isFIFO {
		bufferedLines = 1
		if l, err := newLineReader(in.File); err != nil {
			s.Log.Warn("the FIFO is not read by lines (tee): if this process is killed, ticks that it has read are lost", "error", err)
		} else {
			defer l.Close()
			in.in, in.hasWholeLines = l, true
		}
	}
	free := make(chan *tick.Line, bufferedLines)
	for range cap(free) {
		free <- new(tick.Line)
	}
	done := make(chan struct{})
	defer close(done)
	s.notify.ready(ctx)
	dropped := &droppedLines{logger: s.Log, now: s.Now}
	go s.read(ctx, in, dropped, lines, free, done)
	decoder := tick.NewDecoder(f.Ignores...)
	go decode(decoder, f.Reads, lines, decoded, done)

	err = s.loop(ctx, f, in.isFIFO, out, dropped, decoded, free)
	if err == nil && s.acts && !f.UsesRefused {
		s.refusals.warnIfAll(s)
	}
	return errors.Join(err, out.end(s.Log))
}

// silenceInterval is the maximum time between two calls of OnSilence while the input is silent.
const silenceInterval = 5 * time.Second

func (s *Session) loop(ctx context.Context, f Filter, drainInput bool, out *sink, dropped *droppedLines, decoded <-chan inputLine,
	free chan<- *tick.Line,
) error {
	var silence <-chan time.Time
	var timer *time.Timer
	if f.OnSilence != nil {
		if after := f.SilenceAfter(); after > 0 {
			timer = time.NewTimer(after)
			defer timer.Stop()
			silence = timer.C
		}
	}
	idle, stopIdle := s.notify.watchdogTicks()
	defer stopIdle()
	stopped := ctx.Done()
	for {
		select {
		case a, ok := <-decoded:
			s.Metrics.Cut(a.counts.Cut)
			if !ok || errors.Is(a.err, io.EOF) {
				dropped.logTotals(a.counts)
				if ctx.Err() == nil {
					return dropped.checkStream(a.counts)
				}
				return nil
			}
			if a.err != nil {
				return a.err
			}
			if a.sectionErr != nil {
				s.Metrics.Invalid(metrics.InvalidSection)
				if err := dropped.logSection(a.line.Number, a.sectionErr, s.Strict); err != nil {
					return err
				}
				free <- a.line
				continue
			}
			s.processors.tick(time.Now())
			if err := s.handle(context.WithoutCancel(ctx), f, a, out); err != nil {
				return err
			}
			if timer != nil {
				timer.Reset(f.SilenceAfter())
			}
			out.waitWritten()
			free <- a.line
		case <-silence:
			f.OnSilence(ctx)
			timer.Reset(min(f.SilenceAfter(), silenceInterval)) // so that the state of silence is maintained
		case <-idle:
			s.notify.alive()
		case <-stopped:
			if !drainInput {
				return nil // standard input cannot be interrupted, and its writer ends with this process
			}
			stopped = nil // the reader stops at a line's end
		}
	}
}

func (s *Session) handle(ctx context.Context, f Filter, a inputLine, out *sink) error {
	refused, word := s.refusal(a.line)
	s.refusals.count(refused)
	started := time.Now()
	section, err := f.Handle(ctx, Incoming{Tick: a.tick, Line: a.line, Refused: refused, Dropped: out.dropped()})
	if err != nil {
		return err
	}
	s.measure(a.line, section, word, time.Since(started))
	s.notifyAlive()
	if f.Terminal {
		return nil
	}
	defer s.keepAlive(out)() // the write waits while the next stage is down, and this tool would be killed for it
	return out.forward(a.line, f.Section, section)
}

// read splits the input into lines; it closes the channel at the end.
func (s *Session) read(
	ctx context.Context, in *stream, dropped *droppedLines, lines chan<- inputLine, free <-chan *tick.Line, done <-chan struct{},
) {
	defer close(lines)
	r := tick.NewReader(in.in)
	r.Strict, r.MaxLine, r.Restarted, r.WholeLines = s.Strict, s.MaxLine, in.isFIFO, in.hasWholeLines
	r.OnInvalid = func(number int64, err error) {
		dropped.log(number, err)
		s.Metrics.Invalid(invalid(err))
	}

	if in.isFIFO {
		interrupted := context.AfterFunc(ctx, func() { _ = in.SetReadDeadline(time.Now()) })
		defer interrupted()
	}
	for {
		var a inputLine
		select {
		case a.line = <-free: // before the next line is read
		case <-done:
			return
		}
		line, err := r.Next()
		if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
			_ = in.SetReadDeadline(time.Now().Add(in.drainTimeout))
			r.Finish()
			if line, err = r.Next(); errors.Is(err, os.ErrDeadlineExceeded) {
				err = io.EOF
			}
		}
		a.err, a.counts = err, r.Counts()
		if err != nil && !errors.Is(err, io.EOF) {
			a.err = fmt.Errorf("read ticks: %w", err)
		}
		if err == nil {
			line.CopyTo(a.line)
		}
		select {
		case lines <- a:
		case <-done:
			return
		}
		if err != nil {
			return
		}
	}
}

// decode decodes the lines' sections; it closes decoded after the last line.
func decode(d *tick.Decoder, sections []string, lines <-chan inputLine, decoded chan<- inputLine, done <-chan struct{}) {
	defer close(decoded)
	for a := range lines {
		if a.err == nil {
			a.tick, a.sectionErr = d.Decode(a.line, sections...)
		}
		select {
		case decoded <- a:
		case <-done:
			return
		}
	}
}

// defaultMaxAge is used if a tick does not contain its interval.
const defaultMaxAge = 3 * time.Second

// AgeLimit returns the age up to which ticks of an interval may be acted on: --max-age, by default three intervals. 0 is any age.
func (s *Session) AgeLimit(interval time.Duration) time.Duration {
	if s.MaxAge != 0 || s.isSet != nil && s.IsSet("max-age") {
		return s.MaxAge
	}
	return IntervalLimit(interval, defaultMaxAge)
}

// IntervalLimit returns the time after which a tick is old, or a stream of ticks silent: three intervals, and at least the minimum, which
// also applies if the interval is unknown (0).
func IntervalLimit(interval, minimum time.Duration) time.Duration { return max(3*interval, minimum) }

// refusal returns why this tick must not be acted on, as a sentence and as a word for the metrics. A tool that does not act uses every
// tick: none of them counts as refused.
func (s *Session) refusal(l *tick.Line) (sentence, word string) {
	if s.DryRun || !s.acts {
		return "", ""
	}
	if s.Node != "" && l.Node != s.Node {
		return fmt.Sprintf("tick of node %s, this is %s (--node)", l.Node, s.Node), metrics.RefusedNode
	}
	limit := s.AgeLimit(l.Interval())
	if limit == 0 {
		return "", ""
	}
	switch age := s.Now().Sub(l.Time); {
	case age > limit:
		return fmt.Sprintf("tick is %s old, the limit is %s (--max-age)", age.Round(time.Millisecond), limit), metrics.RefusedOld
	case age < -limit:
		return fmt.Sprintf("tick is %s ahead of this node's clock, the limit is %s (--max-age)", (-age).Round(time.Millisecond), limit), metrics.RefusedEarly
	}
	return "", ""
}

// notifyAlive touches the heartbeat file and notifies the service manager's watchdog.
func (s *Session) notifyAlive() {
	s.notify.alive()
	s.touchHeartbeat()
}

// heartbeatInterval is how often the heartbeat is touched while a write waits: less than the limit of any check. Tests wait less.
var heartbeatInterval = 5 * time.Second

// keepAlive keeps the watchdog and the heartbeat informed until stop is called, because a tool whose write waits for the next stage is
// healthy. If its heartbeat stopped once the FIFO was full, a next stage that hangs would never be far behind it, and would not be
// restarted. The heartbeat of a tool without a FIFO after it says that ticks pass the whole pipe, and is not touched.
func (s *Session) keepAlive(out *sink) (stop func()) {
	stopNotifying := s.notify.keepAlive()
	if s.HeartbeatFile == "" || !out.stream.isFIFO || out.mailbox != nil {
		return stopNotifying
	}
	stopTouching := repeat(heartbeatInterval, s.touchHeartbeat)
	return func() {
		stopTouching()
		stopNotifying()
	}
}

func (s *Session) touchHeartbeat() {
	if s.HeartbeatFile == "" {
		return
	}
	now := s.Now()
	if os.Chtimes(s.HeartbeatFile, now, now) == nil {
		return
	}
	if err := os.WriteFile(s.HeartbeatFile, nil, 0o644); err != nil {
		s.Log.Warn("touch --heartbeat", "error", err)
	}
}

// logInterval is the minimum time between two log lines about dropped lines.
const logInterval = 10 * time.Second

// droppedLines counts the lines that are no ticks, and logs the first at once and then at most one every logInterval, with the number of
// those that were not logged.
type droppedLines struct {
	logger *slog.Logger
	now    func() time.Time

	mu              sync.Mutex
	last            time.Time
	notLogged       int64
	droppedSections int64
	first           error // why the first line was dropped
}

func (d *droppedLines) log(number int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.first == nil {
		d.first = fmt.Errorf("line %d: %w", number, err)
	}
	if now := d.now(); d.last.IsZero() || now.Sub(d.last) >= logInterval || now.Before(d.last) {
		d.logger.Warn("dropped a line", "line", number, "error", err, "notLogged", d.notLogged)
		d.last, d.notLogged = now, 0
		return
	}
	d.notLogged++
}

// logSection counts and logs a line with a section that could not be decoded; with strict it returns an error.
func (d *droppedLines) logSection(number int64, err error, strict bool) error {
	if strict {
		return fmt.Errorf("read ticks: line %d: %w", number, err)
	}
	d.mu.Lock()
	d.droppedSections++
	d.mu.Unlock()
	d.log(number, err)
	return nil
}

// checkStream returns the error of an input that has ended without any tick: it is probably the wrong file. An input without lines, or
// with only a line that was cut off, is no error: its writer ended early.
func (d *droppedLines) checkStream(c tick.Counts) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if bad := c.Invalid + d.droppedSections; bad > 0 && c.Lines == d.droppedSections {
		return fmt.Errorf("no line of the input is a tick (%d dropped; the first: %w): want collect's output", bad, d.first)
	}
	return nil
}

func (d *droppedLines) logTotals(c tick.Counts) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.Invalid+d.droppedSections > 0 || c.Cut > 0 {
		d.logger.Info("end of input", "ticks", c.Lines-d.droppedSections, "dropped", c.Invalid+d.droppedSections, "tooLong", c.TooLong, "cut",
			c.Cut)
	}
}
