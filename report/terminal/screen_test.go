package terminal

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"polder/lib/stage"
	"polder/lib/tick"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestScreen(t *testing.T) {
	var out bytes.Buffer
	session := &stage.Session{
		Env: stage.Env{
			Out: io.Discard, Now: func() time.Time { return noon },
			Getenv: func(name string) string { return map[string]string{"NO_COLOR": "1"}[name] },
		},
		Log: slog.New(slog.DiscardHandler), Node: "n",
	}
	x, err := Open(t.Context(), session, Options{}, &out)
	if err != nil {
		t.Fatal(err)
	}
	put := func(node string, milli int64) tick.Target {
		t.Helper()
		result, err := x.Put(stage.Incoming{Tick: &tick.Tick{
			V: 1, Node: node, Time: noon, Advice: &tick.Advice{Policy: "katalyst", Reclaimed: &tick.Reclaimed{MilliCPU: &milli}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	put("other", 1000)
	put("n", 42000)
	if got := put("other", 1000); got.State != tick.TargetUnchanged {
		t.Errorf("a node that is not shown: %+v", got)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if !strings.HasPrefix(text, enter) || strings.Count(text, leave) != 1 {
		t.Errorf("the terminal is not restored: %q", text)
	}
	if n := strings.Count(text, "\x1b[2J"); n != 1 {
		t.Errorf("the screen was erased %d times; want once, at the start", n)
	}
	_, last, _ := strings.Cut(text, leave)
	if !strings.Contains(last, " polder  n (and 1 more)") || !strings.Contains(last, "42.0 cores") || strings.Contains(last, "\x1b") {
		t.Errorf("the last picture is %q", last)
	}
}

// A node that is deleted does not stay on the screen while others' ticks come.
func TestScreenForgetsNodes(t *testing.T) {
	now := noon
	session := &stage.Session{
		Env: stage.Env{Out: io.Discard, Now: func() time.Time { return now }, Getenv: func(string) string { return "1" }},
		Log: slog.New(slog.DiscardHandler), Node: "n",
	}
	x := newScreen(session, Options{}, io.Discard)
	put := func(node string, after time.Duration) string {
		t.Helper()
		now = noon.Add(after)
		if _, err := x.Put(stage.Incoming{Tick: &tick.Tick{V: 1, Node: node, Time: now}}); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(x.frame()[0])
	}
	put("deleted", 0)
	if got := put("b", time.Second); !strings.HasPrefix(got, "polder  deleted (and 1 more) ") {
		t.Errorf("two nodes: %q", got)
	}
	for after := time.Minute; after < 2*time.Hour; after += time.Minute {
		put("b", after)
	}
	if got := put("b", 2*time.Hour); !strings.HasPrefix(got, "polder  b  ") {
		t.Errorf("one is silent for two hours: %q", got)
	}
	if got := put("n", 2*time.Hour); !strings.HasPrefix(got, "polder  n (and 1 more) ") {
		t.Errorf("this node: %q", got)
	}
}

// The title marks a stale tick of a live stream however old it is, and no tick of a recording.
func TestScreenMarksStaleTicks(t *testing.T) {
	for _, tt := range []struct {
		name string
		ages []time.Duration
		want string
	}{
		{"live", []time.Duration{0, time.Second}, "age 1.0s"},
		{"stale", []time.Duration{0, 10 * time.Second}, "STALE"},
		{"stale for more than a minute", []time.Duration{0, 5 * time.Minute}, "STALE"},
		{"early", []time.Duration{0, -5 * time.Minute}, "EARLY"},
		{"a recording", []time.Duration{24 * time.Hour, 24 * time.Hour}, "recorded"},
	} {
		session := &stage.Session{
			Env: stage.Env{Out: io.Discard, Now: func() time.Time { return noon }, Getenv: func(string) string { return "" }},
			Log: slog.New(slog.DiscardHandler), Node: "n",
		}
		x := newScreen(session, Options{}, io.Discard)
		for _, age := range tt.ages {
			if _, err := x.Put(stage.Incoming{Tick: &tick.Tick{V: 1, Node: "n", Time: noon.Add(-age)}}); err != nil {
				t.Fatal(err)
			}
		}
		marks := 0
		for _, mark := range []string{"STALE", "EARLY", "recorded", "age 1.0s"} {
			if strings.Contains(x.frame()[0], mark) {
				marks++
			}
		}
		if title := x.frame()[0]; !strings.Contains(title, tt.want) || marks != 1 {
			t.Errorf("%s: %q", tt.name, title)
		}
	}
}

func TestPlainLocale(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{"LANG": "C"}, false}, // the default of many shells over UTF-8 terminals
		{map[string]string{"LANG": "de_DE.UTF-8"}, false},
		{map[string]string{"LANG": "de_DE.ISO-8859-1"}, true},
		{map[string]string{"LC_ALL": "en_US.utf8", "LANG": "x"}, false},
		{map[string]string{"TERM": "linux"}, true},
	} {
		if got := plainLocale(func(name string) string { return tt.env[name] }); got != tt.want {
			t.Errorf("plainLocale(%v) = %v; want %v", tt.env, got, tt.want)
		}
	}
}
