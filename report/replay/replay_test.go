package replay

import (
	"slices"
	"testing"
	"time"
)

var begin = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// tenSeconds is a player of ticks every 10 s.
func tenSeconds(ticks int, speed float64) *Player {
	p := New(speed)
	for i := range ticks {
		p.Add(begin.Add(time.Duration(i) * 10 * time.Second))
	}
	p.Complete()
	return p
}

func TestPlayerKeepsTheRecordingsTime(t *testing.T) {
	p := tenSeconds(10, 5)
	for i, want := range []int{0, 1, 1, 2} {
		if p.Pass(time.Second); p.At() != want {
			t.Errorf("after %d s at speed 5: tick %d; want %d", i+1, p.At(), want)
		}
	}
	p.Toggle()
	if p.Pass(time.Hour) || p.At() != 2 {
		t.Error("it moves while it is stopped")
	}
	p.Toggle()
	p.Faster(2)
	p.Pass(3 * time.Second)
	if p.At() != 5 {
		t.Errorf("tick %d after 3 s more at speed 10; want 5", p.At())
	}
	p.Pass(time.Hour)
	if !p.AtEnd() || p.playing {
		t.Errorf("tick %d of 10, playing %t; want the end", p.At()+1, p.playing)
	}
	p.Toggle()
	if p.At() != 0 || !p.playing {
		t.Error("at the end it does not begin again")
	}
}

func TestPlayerSteps(t *testing.T) {
	p := tenSeconds(30, 1)
	for _, tt := range []struct {
		do   func()
		want int
	}{
		{func() { p.Step(1) }, 1},
		{func() { p.Step(-5) }, 0},
		{func() { p.Skip(time.Minute) }, 6},
		{func() { p.Skip(time.Minute) }, 12},
		{func() { p.Skip(-time.Minute) }, 6},
		{func() { p.Skip(-time.Hour) }, 0},
		{func() { p.Skip(time.Hour) }, 29},
		{func() { p.Step(1) }, 29},
		{func() { p.Seek(begin.Add(95 * time.Second)) }, 10},
		{func() { p.Seek(begin.Add(time.Hour)) }, 29},
		{func() { p.Skip(time.Second) }, 29},
		{func() { p.Seek(begin) }, 0},
		{func() { p.Skip(time.Second) }, 1},
		{func() { p.Skip(-time.Second) }, 0},
	} {
		if tt.do(); p.At() != tt.want {
			t.Errorf("tick %d; want %d", p.At(), tt.want)
		}
		if p.playing {
			t.Error("it plays on")
		}
	}
}

// A time that is requested before it was read is shown as soon as it is, and gaps are skipped.
func TestPlayerReadsWhileItPlays(t *testing.T) {
	p := New(1)
	p.Step(1)
	p.Skip(time.Minute)
	p.Seek(begin.Add(time.Hour))
	if p.At() != -1 || p.Pass(time.Second) || p.AtEnd() {
		t.Fatalf("tick %d before the first", p.At())
	}
	p.Toggle()
	for _, at := range []time.Duration{0, time.Minute, time.Hour, 5 * time.Hour, 4 * time.Hour} {
		p.Add(begin.Add(at))
	}
	if p.At() != 2 {
		t.Errorf("tick %d; want the one at the time that was asked for", p.At())
	}
	p.Pass(59 * time.Second)
	if p.At() != 2 {
		t.Error("a gap is waited for less than a minute")
	}
	p.Pass(2 * time.Second)
	if p.At() != 4 { // the last one is out of order, and counts as of the time before
		t.Errorf("tick %d after a minute", p.At())
	}
	if !p.playing || p.AtEnd() {
		t.Error("it ends before the recording is read")
	}
	p.Complete()
	if !p.AtEnd() {
		t.Error("it is not at the end")
	}
}

func TestEmptyRecording(t *testing.T) {
	p := New(1)
	p.Complete()
	p.Toggle()
	p.Step(-1)
	p.Skip(time.Hour)
	p.Seek(begin)
	if p.At() != -1 || !p.Time().IsZero() {
		t.Errorf("tick %d of none", p.At())
	}
}

func TestKeys(t *testing.T) {
	for sent, want := range map[string][]Key{
		" ":                           {" "},
		"\x1b[C\x1b[D":                {KeyRight, KeyLeft},
		"\x1b[1;2C\x1b[1;2D\x1bOC":    {KeyShiftRight, KeyShiftLeft, KeyRight},
		"\x1b":                        {KeyEscape},
		"\x1b[5~x\x1b[":               {"x"},
		"\x03q\r\x7f":                 {KeyInterrupt, "q", KeyEnter, KeyBackspace},
		"é\xff\x00/":                  {"é", "/"},
		"\x1b[200~" + "\x1b]0;x\x07a": {KeyEscape, "]", "0", ";", "x", "a"},
	} {
		if got := Keys([]byte(sent)); !slices.Equal(got, want) {
			t.Errorf("%q: %q; want %q", sent, got, want)
		}
	}
}

func TestSearch(t *testing.T) {
	s := Search{Open: true}
	for _, k := range Keys([]byte("Spx\x7fark")) {
		s.Press(k)
	}
	s.Press(KeyLeft)
	s.Press(KeyEnter)
	if s.Open || s.Text != "Spark" || !s.Matches("batch/spark-1") || s.Matches("shop/web") {
		t.Errorf("searched for %+v", s)
	}
	s.Press(KeyEscape)
	if s.Text != "" || !s.Matches("anything") {
		t.Errorf("after escape %+v", s)
	}
}
