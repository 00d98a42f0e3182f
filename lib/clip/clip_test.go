package clip

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"abc", 0, "…"},
		{"abc", -1, "…"},
		{"añb", 2, "a…"},
		{"añb", 3, "añ…"},
		{"añb", 4, "añb"},
		{"日本", 5, "日…"},
		{"日本", 2, "…"},
		{"\x80\x80\x80", 2, "…"}, // no character at all
	} {
		if got := Text(c.text, c.most); got != c.want {
			t.Errorf("Text(%q, %d) = %q, want %q", c.text, c.most, got, c.want)
		}
		if got := Text([]byte(c.text), c.most); got != c.want {
			t.Errorf("Text of bytes %q, %d = %q, want %q", c.text, c.most, got, c.want)
		}
	}
}

func TestColumns(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "ab…"},
		{"abc", 1, "…"},
		{"abc", 0, "…"},
		{"abc", -1, "…"},
		{"añb", 3, "añb"},
		{"añbc", 3, "añ…"},
		{"日本", 2, "日本"},
		{"日本語", 2, "日…"},
	} {
		if got := Columns(c.text, c.most); got != c.want {
			t.Errorf("Columns(%q, %d) = %q, want %q", c.text, c.most, got, c.want)
		}
	}
}

// No text of a tick moves the cursor of a terminal, or is wider than its number of characters.
func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"web-0":             "web-0",
		"a\x1b[2Jb\nc\x7f":  "a?[2Jb?c?",
		"\u009b31m":         "?31m",
		"é → ö…":            "é → ö…",
		"\u202egnp.\u200b":  "?gnp.?",
		"名":                 "?",
		"e\u0301":           "e?",
		string([]byte{255}): "?",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q; want %q", in, got, want)
		}
	}
}

// FuzzBytes: the result is a beginning of the text within the limit, and characters are not split.
func FuzzBytes(f *testing.F) {
	f.Add("日本語", 4)
	f.Fuzz(func(t *testing.T, text string, most int) {
		got := Bytes(text, most)
		if !strings.HasPrefix(text, got) || len(got) > max(most, 0) {
			t.Errorf("Bytes(%q, %d) = %q", text, most, got)
		}
		if utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("Bytes(%q, %d) = %q, which ends within a character", text, most, got)
		}
	})
}
