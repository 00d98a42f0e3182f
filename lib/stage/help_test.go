package stage

import (
	"strings"
	"testing"
	"time"
)

// --help has an option's clause with its values and default in one line; the manual also has its details. Options of a family are only
// named, and only the first five tasks are shown.
func TestHelp(t *testing.T) {
	h := &harness{in: strings.NewReader("")}
	c := h.echo(filterKind, nil)
	c.Name, c.Synopsis, c.Summary, c.Manual = "advise", "decide", "What it does.", "HIDDEN\nHow it works: a_b."
	c.Tasks = []Task{{"One?", "one\n  more"}, {"Two?", "two"}, {"Three?", "three"}, {"Four?", "four"}, {"Five?", "five"}, {"Six?", "six"}}
	c.Families, c.FamiliesTitle = []string{"rule-", "memory-"}, "Rules"
	c.Flags = func(f *Flags) {
		f.Category("Deciding")
		f.Choice(new(string), "limit", "class", "what holds them\nOf batch pods.", "class", "quota")
		f.Duration(new(time.Duration), "hold", 7*time.Minute, "how long")
		f.Path(new(string), "file", "", "read `FILE`")
		f.Bool(new(bool), "once", "end")
		f.Strings(new([]string), "keys", "these `KEY` (default all)")
		f.Int(new(int), "rule-size", 3, "hidden")
		f.Int(new(int), "rule-age", 4, "hidden")
	}
	if status := h.run(t, c, "--help"); status != 0 {
		t.Fatalf("status %d: %s", status, &h.err)
	}
	const want = `advise - decide

Usage: advise [options]

What it does.

Examples:
  One?
    one
      more
  Two?
    two
  Three?
    three
  Four?
    four
  Five?
    five

Deciding:
  --limit VALUE    what holds them (class, quota; default class)
  --hold DURATION  how long (default 7m)
  --file FILE      read FILE
  --once           end
  --keys KEY...    these KEY (default all)

Rules:
  --rule-    size, age

Stream:
`
	if got := h.out.String(); !strings.HasPrefix(got, want) || strings.Contains(got, "HIDDEN") || strings.Contains(got, "generate") {
		t.Errorf("--help prints\n%s\nwant as its beginning\n%s", got, want)
	}
	if !strings.Contains(h.out.String(), "\n  --memory-limit VALUE      soft limit") {
		t.Errorf("--memory-limit is not with the options of the process:\n%s", &h.out)
	}
	h.out.Reset()
	if status := h.run(t, c, "--manual"); status != 0 {
		t.Fatalf("status %d: %s", status, &h.err)
	}
	for _, part := range []string{
		"# advise\n\n`advise`: decide.\n\nWhat it does.\n\n## Tasks\n\n### One?\n\n```\none\n  more\n```\n",
		"### Six?\n", "## Hidden\n\nHow it works: `a_b`.\n",
		"### Deciding\n\n- `--limit VALUE`: what holds them (class, quota; default class). Of batch pods.\n- `--hold DURATION`: how long (default 7m)\n",
		"- `--rule-age N`: hidden (default 4)\n",
	} {
		if !strings.Contains(h.out.String(), part) {
			t.Errorf("--manual lacks\n%s\nin\n%s", part, &h.out)
		}
	}
}

// A text that is too long for a line continues below itself, and no line is wider than the help.
func TestHelpWraps(t *testing.T) {
	var b strings.Builder
	writeIndented(&b, "  --x  ", strings.Repeat("word ", 30))
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 2 || len(lines[0]) > helpWidth || !strings.HasPrefix(lines[1], "       word") || strings.Count(b.String(), "word") != 30 {
		t.Errorf("%q", lines)
	}
}

func TestShortSpan(t *testing.T) {
	for text, want := range map[string]string{"0s": "0", "7m0s": "7m", "1h0m0s": "1h", "1h5m0s": "1h5m", "10s": "10s", "1m30s": "1m30s", "200ms": "200ms", "10m0s": "10m"} {
		if got := shortSpan(text); got != want {
			t.Errorf("shortSpan(%s) = %s; want %s", text, got, want)
		}
	}
}
