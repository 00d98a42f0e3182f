package terminal

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"polder/lib/stage"
	"polder/lib/tick"
	why "polder/report/explain"
	"polder/report/replay"
	"polder/report/spool"
	"polder/report/view"
)

const (
	// frameEvery is how often a playing recording is drawn.
	frameEvery = 50 * time.Millisecond
	// rewound is how many ticks before the one that is shown the screen also gets: as many as its history shows.
	rewound = 240
)

// player plays a recording on a terminal.
type player struct {
	screen  *screen
	session *stage.Session
	spool   *spool.Spool

	mu      sync.Mutex // of the fields that the reader changes concurrently with the drawing
	clock   *replay.Player
	node    string // the node that is shown
	others  map[string]bool
	ticks   []int // the numbers of its ticks in the spool
	story   *why.Story
	from    *why.Moment
	failure error
	read    bool // to the end

	model  *view.Model
	shown  int // the tick that the model has
	search replay.Search
	help   bool
	note   string
}

// Plays reports whether the screen shall play a recording: the input is a file, or a speed or a time is given.
func (o Options) Plays(s *stage.Session, names []string) (bool, error) {
	requested := s.IsSet("speed") || o.From != ""
	if !slices.Contains(names, "tty") {
		if s.IsSet("speed") {
			return false, stage.Usagef("--speed needs --to tty, on a terminal")
		}
		return false, nil
	}
	if len(names) > 1 {
		if requested {
			return false, stage.Usagef("--speed and --from play a recording on the screen: they exclude other targets")
		}
		return false, nil
	}
	if requested {
		return true, nil
	}
	if s.Input != "" && s.Input != "-" {
		info, err := os.Stat(s.Input)
		return err == nil && info.Mode().IsRegular(), nil
	}
	f, ok := s.In.(*os.File)
	return ok && spool.IsSeekable(f), nil
}

// Play plays a recording with a clock and, where there is a keyboard, with keys.
func (o Options) Play(ctx context.Context, s *stage.Session, out io.Writer) (err error) {
	if o.Speed < replay.Slowest || o.Speed > replay.Fastest {
		return stage.Usagef("--speed %v: want %v to %d", o.Speed, replay.Slowest, replay.Fastest)
	}
	p := &player{session: s, clock: replay.New(o.Speed), others: map[string]bool{}, story: why.NewStory(), shown: -1}
	if o.From != "" {
		if p.from, err = why.ParseMoment(o.From); err != nil {
			return stage.Usagef("--from %w", err)
		}
	}
	if s.Input != "" && s.Input != "-" {
		f, err := os.Open(s.Input)
		if err != nil {
			return stage.Usagef("open --input: %w", err)
		}
		defer f.Close()
		s.In, s.Input = f, "-"
	}
	if p.spool, err = spool.Open(s.In); err != nil {
		return err
	}
	defer p.spool.Close()
	p.screen = newScreen(s, o, out)
	keys, restore := openKeyboard()
	defer restore()
	if err := p.screen.enter(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		p.readAll(ctx, o.Ignores)
	}()
	err = p.play(ctx, keys)
	stop()
	restore()
	last := p.frame()
	if e := p.screen.leave(last); err == nil {
		err = e
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.read {
		err = p.failure
	}
	return err
}

// readAll reads the recording concurrently with the playing, which begins with its first tick.
func (p *player) readAll(ctx context.Context, ignores []string) {
	err := p.session.Filter(ctx, stage.Filter{
		Section:  tick.SectionReport,
		Reads:    []string{tick.SectionSample, tick.SectionAdvice, tick.SectionIsolation, tick.SectionEviction, tick.SectionNetwork},
		Ignores:  ignores,
		Terminal: true,
		// A recording is always old, and shown as it was.
		UsesRefused: true,
		Handle: func(_ context.Context, in stage.Incoming) (any, error) {
			return nil, p.take(in)
		},
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure, p.read = err, true
	p.clock.Complete()
}

func (p *player) take(in stage.Incoming) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.session.IsSet("node") && in.Node != p.session.Node, p.node != "" && in.Node != p.node:
		if len(p.others) < 1000 {
			p.others[strings.Clone(in.Node)] = true
		}
		return nil
	case p.node == "":
		p.node = strings.Clone(in.Node)
		if p.from != nil {
			p.clock.Seek(p.from.From(in.Tick.Time))
		}
	}
	number, err := p.spool.Add(in.Line)
	if err != nil {
		return err
	}
	p.ticks = append(p.ticks, number)
	p.story.Add(in.Tick)
	p.clock.Add(in.Tick.Time)
	return nil
}

// play draws until the user ends it; without a keyboard, until the recording ends.
func (p *player) play(ctx context.Context, keys <-chan []byte) error {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	frames := time.NewTicker(frameEvery)
	defer frames.Stop()
	before := time.Now()
	drawn := ""
	for {
		ended := false
		select {
		case <-ctx.Done():
			return nil
		case sent := <-keys:
			if slices.ContainsFunc(replay.Keys(sent), p.press) {
				return nil
			}
		case <-resized:
			drawn = ""
		case <-frames.C:
			now := time.Now()
			p.mu.Lock()
			p.clock.Pass(now.Sub(before))
			ended = p.clock.AtEnd() || p.read && p.clock.At() < 0
			p.mu.Unlock()
			before = now
		}
		if err := p.load(); err != nil {
			return err
		}
		frame := p.frame()
		if text := strings.Join(frame, "\n"); text != drawn {
			if err := p.screen.show(frame); err != nil {
				return err
			}
			drawn = text
		}
		if ended && keys == nil {
			return nil
		}
	}
}

// press handles a key; it reports whether that ends the playing.
func (p *player) press(k replay.Key) (end bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note = ""
	switch {
	case k == replay.KeyInterrupt:
		return true
	case p.search.Open:
		p.search.Press(k)
		return false
	case p.help:
		p.help = false
		return false
	}
	switch k {
	case "q":
		return true
	case " ":
		p.clock.Toggle()
	case replay.KeyLeft:
		p.clock.Step(-1)
	case replay.KeyRight:
		p.clock.Step(1)
	case replay.KeyShiftLeft, "<":
		p.clock.Skip(-time.Minute)
	case replay.KeyShiftRight, ">":
		p.clock.Skip(time.Minute)
	case "+":
		p.clock.Faster(2)
	case "-":
		p.clock.Faster(0.5)
	case "/":
		p.search = replay.Search{Open: true}
	case replay.KeyEscape:
		p.search = replay.Search{}
	case "e":
		p.nextEvent()
	case "?":
		p.help = true
	}
	return false
}

// nextEvent stops at the next eviction or squeeze.
func (p *player) nextEvent() {
	events, _ := p.story.Events()
	for _, e := range events {
		if (e.Kind == why.EventEviction || e.Kind == why.EventSqueeze) && e.From.After(p.clock.Time()) {
			p.clock.Step(0)
			p.clock.Seek(e.From)
			p.note = e.Text
			return
		}
	}
	p.note = "No eviction and no squeeze from here on."
	if !p.read {
		p.note = "No eviction and no squeeze in the ticks read so far."
	}
}

// load adds the tick to show to the model.
func (p *player) load() error {
	p.mu.Lock()
	at := p.clock.At()
	p.mu.Unlock()
	if at == p.shown || at < 0 {
		return nil
	}
	first := p.shown + 1
	if p.model == nil || at < p.shown || at-p.shown > rewound {
		first = max(0, at-rewound)
		p.model = view.Resumed()
		if first == 0 {
			p.model = &view.Model{}
		}
	}
	for i := first; i <= at; i++ {
		p.mu.Lock()
		number := p.ticks[i]
		p.mu.Unlock()
		t, err := p.spool.Tick(number)
		if err != nil {
			return err
		}
		p.model.Add(t)
	}
	p.shown = at
	return nil
}

// frame is the screen as it is now.
func (p *player) frame() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	look := p.screen.size()
	switch {
	case p.help:
		return view.Help(look)
	case p.model == nil:
		return view.Waiting(look)
	}
	line := ""
	switch {
	case p.search.Open:
		line = "/" + p.search.Text + "_"
	case p.note != "":
		line = p.note
	}
	if line != "" {
		look.Height--
	}
	m := p.model
	m.Playback, m.OtherNodes = p.clock.Status(), len(p.others)
	m.Pods, m.Searched = nil, p.search.Text
	if p.search.Text != "" {
		m.Pods = p.search.Matches
	}
	frame := view.Frame(m, look, m.Tick.Time)
	if line == "" {
		return frame
	}
	for len(frame) < look.Height {
		frame = append(frame, "")
	}
	return append(frame, view.Prompt(line, look))
}

// openKeyboard reads keys from the terminal, whatever standard input is; nil where there is none. The function that it returns restores the
// terminal.
func openKeyboard() (<-chan []byte, func()) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY, 0)
	if err != nil {
		return nil, func() {}
	}
	fd := int(tty.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		_ = tty.Close()
		return nil, func() {}
	}
	keys := make(chan []byte)
	go func() {
		buffer := make([]byte, 256)
		for {
			n, err := tty.Read(buffer)
			if n > 0 {
				keys <- slices.Clone(buffer[:n])
			}
			if err != nil && !errors.Is(err, unix.EINTR) {
				return // the terminal was closed; signals end the playing
			}
		}
	}()
	return keys, sync.OnceFunc(func() { _ = term.Restore(fd, before) })
}
