package policy

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	if got := Quote("a\"b\n"); got != `"a\"b\n"` {
		t.Error(got)
	}
	for n := range 5 { // cut at every byte of a four-byte character
		text := OneLine(errors.New(strings.Repeat("x", 296+n) + strings.Repeat("\U0001F30A", 9)))
		if !utf8.ValidString(text) || len(text) > 300+len("…") || !strings.HasSuffix(text, "…") {
			t.Errorf("%d: %q", n, text)
		}
	}
	if text := strings.Repeat("x", 300); OneLine(errors.New(text)) != text || OneLine(errors.New(text+"x")) != text+"…" {
		t.Error("a text of the most bytes is clipped, or a longer one is not")
	}
	if got := Quote(strings.Repeat("\x80", 200)); got != `"…"` { // no byte starts a character
		t.Error(got)
	}
	if got := OneLine(errors.New("a\nb")); got != "a; b" {
		t.Error(got)
	}
}
