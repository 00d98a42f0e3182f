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

func TestScreen(t *testing.T) {
	var out bytes.Buffer
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
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
