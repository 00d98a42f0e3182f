package view

import (
	"math"
	"strings"
)

// style is the meaning of a piece of text, which determines its colour.
type style int

const (
	plain style = iota
	title
	heading
	dim
	good
	warn
	bad
	poolShare
	poolReclaim
	poolDedicated
	poolReserve
	classShare
	classReclaim
	classDedicated
	classSystem
)

// sgr are the styles' terminal attributes: the 16 colours, which every terminal has and the reader may have chosen.
var sgr = map[style]string{
	title:          "1;7",
	heading:        "1;36",
	dim:            "90",
	good:           "32",
	warn:           "33",
	bad:            "1;31",
	poolShare:      "30;44",
	poolReclaim:    "30;42",
	poolDedicated:  "30;45",
	poolReserve:    "30;47",
	classShare:     "94",
	classReclaim:   "32",
	classDedicated: "95",
	classSystem:    "37",
}

// Look is how a frame is drawn.
type Look struct {
	Width, Height int
	Color         bool
	ASCII         bool // no characters beyond ASCII
}

// line is one line of a frame, in pieces.
type line struct{ pieces []piece }

type piece struct {
	text  string
	style style
}

func (l *line) add(s style, text string) *line {
	l.pieces = append(l.pieces, piece{text, s})
	return l
}

func (l *line) width() int {
	n := 0
	for _, p := range l.pieces {
		n += len([]rune(p.text))
	}
	return n
}

// render cuts the line to the look's width and adds the colours.
func (l *line) render(o Look) string {
	var b strings.Builder
	left := o.Width
	for i, p := range l.pieces {
		text := []rune(p.text)
		if len(text) > left || len(text) == left && hasText(l.pieces[i+1:]) {
			text = []rune(fit(p.text+" ", left))
			if left > 0 {
				text[left-1] = '…'
			}
		}
		left -= len(text)
		if code := sgr[p.style]; code != "" && o.Color {
			b.WriteString("\x1b[" + code + "m" + string(text) + "\x1b[0m")
		} else {
			b.WriteString(string(text))
		}
		if left <= 0 {
			break
		}
	}
	text := b.String()
	if o.ASCII {
		text = toASCII.Replace(text)
	}
	if !o.Color {
		return strings.TrimRight(text, " ")
	}
	return text
}

func hasText(pieces []piece) bool {
	for _, p := range pieces {
		if strings.TrimSpace(p.text) != "" {
			return true
		}
	}
	return false
}

// toASCII replaces the characters that frames are drawn with.
var toASCII = strings.NewReplacer(
	"█", "#", "▓", "=", "▒", "-", "░", ".", "─", "-", "…", "~", "→", ">", "·", ".", "–", "-", "×", "x",
	"▁", "_", "▂", "_", "▃", ".", "▄", "-", "▅", "-", "▆", "=", "▇", "*",
)

// levels are the heights of a sparkline.
var levels = []rune("▁▂▃▄▅▆▇█")

// flat is the part of the largest value under which a difference is not drawn, so that noise does not look like a change.
const flat = 0.01

// spark draws the last width values between their least and largest; a missing value is a gap.
func spark(values []*float64, width int) string {
	if len(values) > width {
		values = values[len(values)-width:]
	}
	low, high, any := bounds(values)
	if !any {
		return ""
	}
	out := make([]rune, len(values))
	for i, v := range values {
		switch {
		case v == nil:
			out[i] = ' '
		case high/2-low/2 <= math.Abs(high/2)*flat:
			out[i] = levels[3]
		default:
			of := (*v/2 - low/2) / (high/2 - low/2) // halves, because the difference of two floats may overflow
			out[i] = levels[min(max(0, int(of*float64(len(levels)-1)+0.5)), len(levels)-1)]
		}
	}
	return string(out)
}

func bounds(values []*float64) (low, high float64, any bool) {
	for _, v := range values {
		if v == nil {
			continue
		}
		if !any {
			low, high, any = *v, *v, true
		}
		low, high = min(low, *v), max(high, *v)
	}
	return low, high, any
}

// segment is a part of a bar.
type segment struct {
	part  float64
	fill  string
	style style
}

// bar draws segments of a whole over width columns. A part that is not zero gets a column if there is one.
func (l *line) bar(whole float64, width int, segments ...segment) {
	used := 0
	var sum float64
	for _, s := range segments {
		if !(whole > 0) || !(s.part > 0) {
			continue
		}
		sum += s.part
		end := min(width, int(sum/whole*float64(width)+0.5))
		if end <= used {
			end = min(width, used+1)
		}
		l.add(s.style, strings.Repeat(s.fill, end-used))
		used = end
	}
	l.add(dim, strings.Repeat("·", width-used))
}
