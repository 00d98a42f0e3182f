package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"polder/lib/tick"
	"polder/tests/need"
)

var now = time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)

// line returns a tick of a node, seconds before now.
func line(node string, seconds float64) string {
	return fmt.Sprintf(`{"v":1,"node":%q,"time":%q,"sample":{"intervalSeconds":1}}`, node, now.Add(-time.Duration(seconds*float64(time.Second))).Format(time.RFC3339Nano))
}

// patiently lengthens a time limit for a test: on a busy machine the other side, which is there, takes longer.
func patiently(t *testing.T, limit *time.Duration) {
	t.Helper()
	before := *limit
	*limit = time.Minute
	t.Cleanup(func() { *limit = before })
}

// harness runs a command with an injected environment.
type harness struct {
	in       io.Reader
	out, err bytes.Buffer
	seen     []string
}

// echo is a tool that writes each tick's node, or why it refuses it, to the section "advice".
func (h *harness) echo(kind Kind, change func(*Filter)) Command {
	return Command{
		Name: "echo", Synopsis: "test", Kind: kind,
		Run: func(ctx context.Context, s *Session) error {
			f := Filter{Section: tick.SectionAdvice, Handle: func(_ context.Context, in Incoming) (any, error) {
				text := in.Node
				if in.Refused != "" {
					text = "refused: " + in.Refused
				}
				h.seen = append(h.seen, text)
				return tick.Advice{Policy: text}, nil
			}}
			if change != nil {
				change(&f)
			}
			return s.Filter(ctx, f)
		},
	}
}

func (h *harness) run(t *testing.T, c Command, args ...string) int {
	t.Helper()
	return c.Execute(t.Context(), Env{
		Args: append([]string{c.Name}, args...), In: h.in, Out: &h.out, Err: &h.err,
		Getenv: os.Getenv, Now: func() time.Time { return now },
	})
}

var filterKind = Kind{Reads: true, Writes: true}

func TestExitStatus(t *testing.T) {
	fails := func(err error) Command {
		return Command{Name: "echo", Kind: filterKind, Run: func(context.Context, *Session) error { return err }}
	}
	h := &harness{}
	for _, c := range []struct {
		name    string
		command Command
		args    []string
		in      string
		want    int
		stderr  string
	}{
		{"end of input", h.echo(filterKind, nil), nil, line("a", 0) + "\n", 0, ""},
		{"a failure", fails(errors.New("read x: no such thing")), nil, "", 1, "echo: read x: no such thing\n"},
		{"the next stage is gone", fails(fmt.Errorf("write tick: %w", syscall.EPIPE)), nil, "", 0, ""},
		{
			"the next stage is gone, and the state cannot be saved",
			fails(errors.Join(errors.Join(fmt.Errorf("write tick: %w", syscall.EPIPE), errors.New("write --state: no room")), syscall.EPIPE)),
			nil, "", 1, "echo: write --state: no room\n",
		},
		{"bad configuration", fails(Usagef("--x: bad")), nil, "", 2, "echo: --x: bad\necho: see 'echo --help'\n"},
		{"an unknown flag", fails(nil), []string{"--nonsense"}, "", 2, "unknown flag --nonsense"},
		{"an argument", fails(nil), []string{"file"}, "", 2, `unexpected argument "file"`},
		{"no such input", h.echo(filterKind, nil), []string{"--input", "/nonexistent/x"}, "", 2, "open --input: open /nonexistent/x: no such file"},
		{"a bad word", fails(nil), []string{"--log-level", "loud"}, "", 2, "want one of debug, info, warn, error"},
		{"no room for a line", h.echo(filterKind, nil), []string{"--max-line", "0"}, "", 2, "--max-line 0: want a positive number"},
		{"a bad memory limit", fails(nil), []string{"--memory-limit", "lots"}, "", 2, "want a number with KiB"},
		{"strict", h.echo(filterKind, nil), []string{"--strict"}, "{}\n", 1, "line 1: not a valid tick"},
		{"not strict", h.echo(filterKind, nil), nil, "{}\n" + line("a", 0) + "\n", 0, "dropped a line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.in, h.err = strings.NewReader(c.in), bytes.Buffer{}
			if got := h.run(t, c.command, c.args...); got != c.want || !strings.Contains(h.err.String(), c.stderr) || c.stderr == "" && h.err.Len() > 0 {
				t.Errorf("exit status = %d, stderr %q; want %d and %q", got, h.err.String(), c.want, c.stderr)
			}
		})
	}
}

// A disk that is full or read-only is no error of the command line: after exit status 1 a supervisor starts the tool again.
func TestDiskThatCannotBeWritten(t *testing.T) {
	need.Root(t)
	for name, options := range map[string]struct {
		flags uintptr
		data  string
		want  string
	}{"read-only": {unix.MS_RDONLY, "", "read-only file system"}, "full": {0, "nr_inodes=1", "no space left on device"}} {
		dir := t.TempDir()
		if err := unix.Mount("none", dir, "tmpfs", options.flags, options.data); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		h := &harness{in: strings.NewReader("")}
		for _, args := range [][]string{{"--input", filepath.Join(dir, "in.fifo")}, {"--output", filepath.Join(dir, "out")}} {
			if got := h.run(t, h.echo(filterKind, nil), args...); got != 1 || !strings.Contains(h.err.String(), options.want) {
				t.Errorf("%s, %s: exit status %d, stderr %q; want 1 and %q", name, args, got, h.err.String(), options.want)
			}
		}
	}
}

func TestFlagsFromTheEnvironment(t *testing.T) {
	t.Setenv("POLDER_ECHO_WORD", "env")
	for _, c := range []struct {
		args []string
		want string
	}{{nil, "env"}, {[]string{"--word", "line"}, "line"}} {
		var word string
		set := false
		h := &harness{}
		h.run(t, Command{
			Name: "echo", Kind: filterKind, Flags: func(f *Flags) { f.String(&word, "word", "default", "") },
			Run: func(_ context.Context, s *Session) error { set = s.IsSet("word"); return nil },
		}, c.args...)
		if word != c.want || !set {
			t.Errorf("with %v: word = %q, set %t; want %q", c.args, word, set, c.want)
		}
	}
}

func TestFilterSplicesAndForwards(t *testing.T) {
	h := &harness{in: strings.NewReader(line("a", 0) + "\n\n{bad\n" + `{"mine":1.50,` + line("b", 0)[1:] + "\n" + line("cut", 0)[:30])}
	if got := h.run(t, h.echo(filterKind, nil)); got != 0 {
		t.Fatalf("exit status %d: %s", got, &h.err)
	}
	want := strings.TrimSuffix(line("a", 0), "}") + `,"advice":{"policy":"a"}}` + "\n" +
		`{"mine":1.50,` + strings.TrimSuffix(line("b", 0)[1:], "}") + `,"advice":{"policy":"b"}}` + "\n"
	if diff := cmp.Diff(want, h.out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if !strings.Contains(h.err.String(), "dropped=1") || !strings.Contains(h.err.String(), "cut=1") {
		t.Errorf("log = %s; want the dropped and the cut-off line counted", &h.err)
	}
}

// Ticks that waited while a live tool was busy, for example because the kernel delayed a write, are all forwarded if the next stage
// reads: the first of them contains what was written.
func TestLiveToolCatchesUp(t *testing.T) {
	patiently(t, &settleTimeout)
	h := harness{in: strings.NewReader(strings.Repeat(line("n1", 1)+"\n", 500))}
	if status := h.run(t, h.echo(Kind{Reads: true}, func(f *Filter) { f.Live = true })); status != 0 {
		t.Fatalf("status %d: %s", status, &h.err)
	}
	if got := strings.Count(h.out.String(), "\n"); got != 500 {
		t.Errorf("%d of 500 ticks come out: %s", got, &h.err)
	}
}

func TestActingToolsRefuse(t *testing.T) {
	acts := Kind{Reads: true, Writes: true, Acts: true}
	stream := line("me", 0) + "\n" + line("me", 2.9) + "\n" + line("me", 4) + "\n" + line("me", -4) + "\n" + line("you", 0) + "\n"
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"three intervals", []string{"--node", "me"}, []string{"me", "me", "refused: tick is 4s old, the limit is 3s (--max-age)", "refused: tick is 4s ahead of this node's clock, the limit is 3s (--max-age)", "refused: tick of node you, this is me (--node)"}},
		{"--max-age", []string{"--node", "me", "--max-age", "5s"}, []string{"me", "me", "me", "me", "refused: tick of node you, this is me (--node)"}},
		{"--max-age 0 is any age", []string{"--node", "you", "--max-age", "0"}, []string{"refused: tick of node me, this is you (--node)", "refused: tick of node me, this is you (--node)", "refused: tick of node me, this is you (--node)", "refused: tick of node me, this is you (--node)", "you"}},
		{"--dry-run", []string{"--node", "me", "--dry-run"}, []string{"me", "me", "me", "me", "you"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &harness{in: strings.NewReader(stream)}
			if got := h.run(t, h.echo(acts, nil), c.args...); got != 0 {
				t.Fatalf("exit status %d: %s", got, &h.err)
			}
			if diff := cmp.Diff(c.want, h.seen); diff != "" {
				t.Errorf("seen (-want +got):\n%s", diff)
			}
		})
	}
}

// A tool that does not act uses ticks of any age and node, and counts none of them as refused.
func TestOtherToolsRefuseNothing(t *testing.T) {
	old := line("a", 100) + "\n" + line("b", -100) + "\n"
	h := harness{in: strings.NewReader(old)}
	if status := h.run(t, h.echo(filterKind, nil)); status != 0 {
		t.Fatalf("status %d: %s", status, &h.err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, h.seen); diff != "" {
		t.Errorf("ticks (-want +got):\n%s", diff)
	}
}

// A tool warns once, at its end, if it has acted on no tick of its input. It does not if it has acted on one, decides on any tick, uses
// refused ticks, or never acts.
func TestEveryTickRefused(t *testing.T) {
	acts := Kind{Reads: true, Writes: true, Acts: true}
	allNodes := acts
	allNodes.AllNodes = true
	old, other := line("me", 60)+"\n", line("you", 0)+"\n"
	const text = `msg="every tick was refused, so none was acted on: for a recording give `
	for _, c := range []struct {
		name   string
		kind   Kind
		change func(*Filter)
		in     string
		args   []string
		want   string
	}{
		{
			"old", acts, nil, old + old, nil,
			text + `--node NODE --max-age 0, or --dry-run" tool=echo ticks=2 lastReason="tick is 1m0s old, the limit is 3s (--max-age)"`,
		},
		{"of another node", acts, nil, old + other, nil, `ticks=2 lastReason="tick of node you, this is me (--node)"`},
		{"a tool for all nodes", allNodes, nil, old, nil, text + `--max-age 0, or --dry-run" tool=echo ticks=1 `},
		{"one that is not", acts, nil, old + line("me", 0) + "\n" + other, nil, ""},
		{"no tick", acts, nil, "", nil, ""},
		{"--max-age 0", acts, nil, old, []string{"--max-age", "0"}, ""},
		{"--dry-run", acts, nil, old + other, []string{"--dry-run"}, ""},
		{"refused ticks are used", acts, func(f *Filter) { f.UsesRefused = true }, old, nil, ""},
		{"a tool that never acts", filterKind, nil, old, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &harness{in: strings.NewReader(c.in)}
			args := c.args
			if c.kind.Acts && !c.kind.AllNodes {
				args = append(args, "--node", "me")
			}
			if got := h.run(t, h.echo(c.kind, c.change), args...); got != 0 {
				t.Fatalf("exit status %d: %s", got, &h.err)
			}
			got := h.err.String()
			if c.want == "" && got != "" || c.want != "" && (!strings.Contains(got, c.want) || strings.Count(got, "\n") != 1) {
				t.Errorf("stderr %q; want %q", got, c.want)
			}
		})
	}
}

// A late tick covers a longer time, but that does not make it newer.
func TestMaxAgeDoesNotGrowWhenCollectIsLate(t *testing.T) {
	late := strings.Replace(line("me", 10), `"sample":{"intervalSeconds":1}`, `"sample":{"periodSeconds":1,"intervalSeconds":20}`, 1)
	h := &harness{in: strings.NewReader(late + "\n" + line("me", 0) + "\n")}
	if got := h.run(t, h.echo(Kind{Reads: true, Writes: true, Acts: true}, nil), "--node", "me"); got != 0 {
		t.Fatalf("exit status %d: %s", got, &h.err)
	}
	if diff := cmp.Diff([]string{"refused: tick is 10s old, the limit is 3s (--max-age)", "me"}, h.seen); diff != "" {
		t.Errorf("seen (-want +got):\n%s", diff)
	}
}

func TestSilence(t *testing.T) { synctest.Test(t, silence) }

func silence(t *testing.T) {
	in, write := io.Pipe()
	h := &harness{in: in}
	silent := make(chan struct{}, 10)
	after := time.Second // until the first tick
	done := make(chan int)
	go func() {
		done <- h.run(t, h.echo(filterKind, func(f *Filter) {
			f.SilenceAfter = func() time.Duration { return after }
			f.OnSilence = func(context.Context) { silent <- struct{}{} }
			handle := f.Handle
			f.Handle = func(ctx context.Context, in Incoming) (any, error) {
				after = time.Minute
				return handle(ctx, in)
			}
		}))
	}()
	<-silent // no tick has come at all
	began := time.Now()
	fmt.Fprintln(write, line("a", 0))
	<-silent // no further tick has come
	if got := time.Since(began); got != time.Minute {
		t.Errorf("silent %s after the tick; want what SilenceAfter returns after it", got)
	}
	write.Close()
	if got := <-done; got != 0 || len(silent) > 0 {
		t.Errorf("exit status %d, %d more calls; want one call a silence", got, len(silent))
	}
}

func TestHeartbeat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "beat")
	h := &harness{in: strings.NewReader(line("a", 0) + "\n" + line("a", 0) + "\n")}
	h.run(t, h.echo(filterKind, nil), "--heartbeat", path)
	info, err := os.Stat(path)
	if err != nil || !info.ModTime().Equal(now) {
		t.Errorf("heartbeat: %v, %v; want it touched at the session's time", info, err)
	}
}

func TestState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	var log bytes.Buffer
	logger, err := newLogger(&log, "text", "info", "tool")
	if err != nil {
		t.Fatal(err)
	}
	s := &Session{Tool: "tool", State: path, Log: logger}
	load := func(version int) (got map[string]int, ok bool) {
		t.Helper()
		ok, err := s.LoadState(version, &got)
		if err != nil {
			t.Fatal(err)
		}
		return got, ok
	}
	if _, ok := load(1); ok || log.Len() > 0 {
		t.Errorf("no file: loaded %t, log %q; want neither", ok, &log)
	}
	if err := s.SaveState(1, map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	if got, ok := load(1); !ok || got["a"] != 1 {
		t.Errorf("loaded %v, %t; want a = 1", got, ok)
	}
	if _, ok := load(2); ok || !strings.Contains(log.String(), "another tool or version") {
		t.Errorf("another version: loaded %t, log %q; want a warning", ok, &log)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range whole[:len(whole)-2] {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok := load(1); ok {
			t.Fatalf("a state file torn at %d was loaded: %s", cut, whole[:cut])
		}
	}
	if err := os.WriteFile(path, bytes.Replace(whole, []byte(`"a"`), []byte("\"\xff\""), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, ok := load(1); ok {
		t.Errorf("a state file that is not UTF-8 was loaded: %v", got)
	}
	s.State = filepath.Join(t.TempDir(), "no", "such", "directory")
	if err := s.SaveState(1, 1); err == nil || !strings.Contains(err.Error(), "write --state") {
		t.Errorf("SaveState into no directory: %v; want an error", err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v are left; want the state file alone", entries, err)
	}
}

// Processes, cgroups and counters of another boot no longer exist: a state has the ID of its boot.
func TestStateKnowsTheBoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	s := &Session{Tool: "tool", State: path, Log: slog.New(slog.DiscardHandler)}
	now := s.bootID()
	if now == "" {
		t.Fatal("no boot ID")
	}
	if err := s.SaveState(1, 1); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, boot string
		want       Boot
	}{
		{"the same", now, SameBoot},
		{"as systemd writes it", strings.ReplaceAll(now, "-", ""), SameBoot},
		{"another", "11111111-2222-3333-4444-555555555555", OtherBoot},
		{"none", "", UnknownBoot},
	} {
		if err := os.WriteFile(path, bytes.Replace(whole, []byte(now), []byte(tt.boot), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		var v int
		if ok, err := s.LoadState(1, &v); !ok || err != nil || s.StateBoot != tt.want {
			t.Errorf("%s: loaded %t, %v, boot %d; want %d", tt.name, ok, err, s.StateBoot, tt.want)
		}
	}
	if got := bootOf("a", ""); got != UnknownBoot {
		t.Errorf("the present boot cannot be read: %d; want it unknown", got)
	}
}

// An input in which no line is a tick is probably the wrong file, which is reported at the end. One valid line suffices.
func TestFilterRefusesNonStream(t *testing.T) {
	for in, want := range map[string]int{
		"root:x:0:0\n{}\n":                   1,
		line("a", 0)[:20] + "}\n":            1,
		"root:x:0:0\n" + line("a", 0) + "\n": 0,
		"":                                   0,
		"\n\n":                               0,
		line("a", 0)[:20]:                    0, // its writer ended early
		strings.Replace(line("a", 0), `"v":1`, `"v":2`, 1) + "\n": 1,
	} {
		h := &harness{in: strings.NewReader(in)}
		if got := h.run(t, h.echo(filterKind, nil)); got != want {
			t.Errorf("%q: exit status %d, want %d: %s", in, got, want, &h.err)
		}
		if reported := strings.Contains(h.err.String(), "no line of the input is a tick"); reported != (want == 1) {
			t.Errorf("%q: %s", in, &h.err)
		}
	}
}
