// Package terminal is the screen of report --to tty: the stream as it comes, or a recording that is played with a clock and keys.
package terminal

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/age"
	"polder/report/cluster"
	"polder/report/view"
)

// Control sequences (ECMA-48; the alternate screen and synchronized output are xterm's private modes, which a terminal
// without them ignores).
const (
	enter      = "\x1b[?1049h\x1b[?25l\x1b[2J"
	leave      = "\x1b[?25h\x1b[?1049l"
	home       = "\x1b[H"
	eraseLine  = "\x1b[K"
	eraseBelow = "\x1b[J"
	beginFrame = "\x1b[?2026h"
	endFrame   = "\x1b[?2026l"
)

// redrawEvery is how often the screen is drawn without a tick, so that the age grows while none comes.
const redrawEvery = time.Second

// Options are the command line's options.
type Options struct {
	ASCII bool
	// Speed is how fast a recording is played, From the time at which that begins; Ignores are the fields that are not read.
	Speed   float64
	From    string
	Ignores []string
}

// Of is the terminal that the session writes to, nil where it is none.
func Of(s *stage.Session) *os.File {
	f, ok := s.Out.(*os.File)
	if ok && (s.Output == "-" || s.Output == "") && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// screen draws on a terminal: at a tick, by a clock and when the size changes, one at a time.
type screen struct {
	out     io.Writer
	file    *os.File
	session *stage.Session
	stream  *age.Stream
	look    view.Look
	stop    context.CancelFunc
	drawing sync.WaitGroup

	mu    sync.Mutex
	nodes view.Nodes
	shown string      // the node that is shown
	model *view.Model // of that node, nil before the first tick
}

func newScreen(s *stage.Session, o Options, out io.Writer) *screen {
	return &screen{
		out: out, file: Of(s), session: s,
		look:   view.Look{Color: s.Getenv("NO_COLOR") == "" && s.Getenv("TERM") != "dumb", ASCII: o.ASCII || plainLocale(s.Getenv)},
		stream: age.New(s.Recording(), s.AgeLimit),
	}
}

func (x *screen) enter() error {
	_, err := io.WriteString(x.out, enter)
	return describe(err)
}

// leave restores the terminal, with the last frame on it.
func (x *screen) leave(last []string) error {
	_, err := io.WriteString(x.out, leave+strings.Join(append(last, ""), "\n"))
	return describe(err)
}

// Open opens the screen, which draws each tick.
func Open(ctx context.Context, s *stage.Session, o Options, out io.Writer) (cluster.Target, error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	x := newScreen(s, o, out)
	x.stop = stop
	if err := x.enter(); err != nil {
		stop()
		return nil, err
	}
	x.mu.Lock()
	_ = x.draw()
	x.mu.Unlock()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	x.drawing.Go(func() {
		defer signal.Stop(resized)
		x.keepDrawing(ctx, resized)
	})
	return x, nil
}

// plainLocale reports whether the environment sets a character set without the block characters. It is false where nothing is
// set, as mostly in containers.
func plainLocale(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := getenv(name); v != "" {
			v = strings.ToLower(v)
			return !strings.Contains(v, "utf-8") && !strings.Contains(v, "utf8") && v != "c" && v != "posix"
		}
	}
	return getenv("TERM") == "linux"
}

// Put draws a tick of the node that is shown.
func (x *screen) Put(in stage.Incoming) (tick.Target, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stream.Read(in.Tick, x.session.Now())
	x.nodes.Add(in.Node, in.Time)
	// This node is shown if the stream has it, otherwise the first one, until it is forgotten.
	if in.Node != x.shown && (in.Node == x.session.Node || !x.nodes.Has(x.shown)) {
		x.shown, x.model = in.Node, &view.Model{Stream: x.stream}
	}
	if in.Node != x.shown {
		return tick.Target{Target: "tty", State: tick.TargetUnchanged}, nil
	}
	x.model.Add(in.Tick)
	return tick.Target{Target: "tty", State: tick.TargetWritten}, x.draw()
}

func (x *screen) keepDrawing(ctx context.Context, resized <-chan os.Signal) {
	clock := time.NewTicker(redrawEvery)
	defer clock.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
		case <-resized:
		}
		x.mu.Lock()
		_ = x.draw() // the next tick reports the error of a closed terminal
		x.mu.Unlock()
	}
}

// size is the look with the terminal's size.
func (x *screen) size() view.Look {
	look := x.look
	look.Width, look.Height = 80, 24
	if x.file != nil {
		if w, h, err := term.GetSize(int(x.file.Fd())); err == nil && w > 0 && h > 0 {
			look.Width, look.Height = w, h
		}
	}
	return look
}

func (x *screen) frame() []string {
	look := x.size()
	if x.model == nil {
		return view.Waiting(look)
	}
	x.model.OtherNodes = x.nodes.Others(x.shown)
	return view.Frame(x.model, look, x.session.Now())
}

func (x *screen) draw() error { return x.show(x.frame()) }

// show writes a frame at once: each line and then the rest of its old content, never an erased screen, so that nothing
// flickers. The last line has no newline, which would scroll.
func (x *screen) show(frame []string) error {
	_, err := io.WriteString(x.out, beginFrame+home+strings.Join(frame, eraseLine+"\r\n")+eraseLine+eraseBelow+endFrame)
	return describe(err)
}

// describe is an error of drawing.
func describe(err error) error {
	if err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}

// Close restores the terminal, with the last frame on it.
func (x *screen) Close() error {
	x.stop()
	x.drawing.Wait()
	if x.model == nil {
		return x.leave(nil)
	}
	return x.leave(x.frame())
}
