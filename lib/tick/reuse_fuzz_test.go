package tick

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A line is parsed by itself: fields of the previous line must not replace missing ones.
func TestReaderForgetsPreviousLine(t *testing.T) {
	for _, second := range []string{
		`{"v":1,"node":"2","time":1767225600}`,
		`{"v":1,"node":"2","time":null}`,
		`{"v":1,"node":"2","time":""}`,
		`{"v":1,"node":121,"time":"2026-01-01T00:00:01Z"}`,
	} {
		r := NewReader(strings.NewReader(`{"v":1,"node":"2","time":"2026-01-01T00:00:00Z"}` + "\n" + second + "\n"))
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		if l, err := r.Next(); err == nil {
			t.Errorf("Next() after a good line = node %q, time %s of %s; want it dropped", l.Node, l.Time, second)
		}
	}
}

// A name that is invalid is invalid in each line, not only in the first of several that have it.
func TestReaderRejectsInvalidNodeEachTime(t *testing.T) {
	for _, names := range [][2]string{
		{"a\u009bb", "a\u009bb"}, // the scanner accepts this control character
		{strings.Repeat("n", 254), strings.Repeat("n", 254)},
		{`a\\nb`, `a\nb`}, // the second one's text is the first one's name
	} {
		r := NewReader(strings.NewReader(`{"v":1,"node":"` + names[0] + `","time":"2026-01-01T00:00:00Z"}` + "\n" +
			`{"v":1,"node":"` + names[1] + `","time":"2026-01-01T00:00:00Z"}` + "\n"))
		for l, err := r.Next(); err == nil; l, err = r.Next() {
			if l.Number == 2 {
				t.Errorf("second line has node %q; want it dropped", l.Node)
			}
		}
	}
}

// FuzzReuse parses a line into a Line that had another one: the result is that of a fresh Line.
func FuzzReuse(f *testing.F) {
	good := `{"v":1,"node":"2","time":"2026-01-01T00:00:00Z","sample":{"intervalSeconds":1,"\u0070ods":[]},"x":1}`
	for _, seed := range []string{good, `{"v":1,"node":121,"time":"2026-01-01T00:00:00Z"}`, `{"v":1,"node":"2","time":5}`, `{"v":1}`, `[]`, ``, "\xef\xbb\xbf{}"} {
		f.Add([]byte(good), []byte(seed))
	}
	long := []byte(`{"v":1,"node":"` + strings.Repeat("n", 254) + `","time":"2026-01-01T00:00:00Z"}`)
	f.Add(long, long)
	f.Fuzz(func(t *testing.T, before, data []byte) {
		var reused Line
		_ = reused.parse(before)
		fresh := Line{Number: reused.Number}
		freshErr, reusedErr := fresh.parse(data), reused.parse(data)
		if (freshErr == nil) != (reusedErr == nil) || freshErr != nil && freshErr.Error() != reusedErr.Error() {
			t.Fatalf("parse(%q) after %q = %v; want %v", data, before, reusedErr, freshErr)
		}
		if freshErr != nil {
			return
		}
		if fresh.Node != reused.Node || !fresh.Time.Equal(reused.Time) || fresh.Interval() != reused.Interval() {
			t.Fatalf("parse(%q) after %q = %q, %s; want %q, %s", data, before, reused.Node, reused.Time, fresh.Node, fresh.Time)
		}
		for _, name := range []string{SectionSample, SectionAdvice, SectionIsolation, SectionEviction, SectionReport} {
			if !bytes.Equal(fresh.Section(name), reused.Section(name)) {
				t.Fatalf("section %s of %q after %q = %q; want %q", name, data, before, reused.Section(name), fresh.Section(name))
			}
			a, aErr := fresh.Decode(name)
			b, bErr := reused.Decode(name)
			if (aErr == nil) != (bErr == nil) || aErr == nil && !cmp.Equal(a, b) {
				t.Fatalf("Decode(%s) of %q after %q = %v; want %v", name, data, before, bErr, aErr)
			}
		}
	})
}
