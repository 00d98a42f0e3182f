package view

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"polder/lib/clip"
	"polder/lib/phrase"
)

// fit cuts or pads s to width columns. A text that is cut ends in an ellipsis.
func fit(s string, width int) string {
	if width <= 0 {
		return ""
	}
	s = clip.Columns(s, width)
	return s + strings.Repeat(" ", width-utf8.RuneCountInString(s))
}

// fitPath cuts in the middle, because the two ends of a cgroup's or a pod's name matter most.
func fitPath(s string, width int) string {
	r := []rune(s)
	if len(r) <= width || width < 8 {
		return fit(s, width)
	}
	head := (width - 1) / 3
	return string(r[:head]) + "…" + string(r[len(r)-(width-1-head):])
}

func right(s string, width int) string {
	if n := len([]rune(s)); n < width {
		return strings.Repeat(" ", width-n) + s
	}
	return s
}

const missing = "-"

// Cores formats milli-CPU as cores, "-" where it is unknown.
func Cores(milli *float64) string {
	if milli == nil {
		return missing
	}
	v := *milli / 1000
	switch {
	case math.Abs(v) < 0.0005:
		return "0"
	case math.Abs(v) < 10:
		return phrase.Decimal(v, 2)
	}
	return phrase.Decimal(v, 1)
}

func load(v *float64) string {
	if v == nil {
		return missing
	}
	return phrase.Decimal(*v, 2)
}

// Bytes formats an amount of memory with three digits and a binary unit, "-" where it is unknown.
func Bytes(v *float64) string {
	if v == nil {
		return missing
	}
	x, unit := *v, "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		if math.Abs(x) < 1024 {
			break
		}
		x, unit = x/1024, next
	}
	switch {
	case unit == "B" || math.Abs(x) >= 100:
		return phrase.Decimal(x, 0) + " " + unit
	case math.Abs(x) >= 10:
		return phrase.Decimal(x, 1) + " " + unit
	}
	return phrase.Decimal(x, 2) + " " + unit
}

func percent(part, whole *float64) string {
	if part == nil || whole == nil || *whole <= 0 {
		return missing
	}
	return phrase.Decimal(100**part / *whole, 0) + "%"
}

// Span formats a duration with one or two units.
func Span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Name is a pod's name with its namespace, safe for a terminal.
func Name(namespace, name string) string {
	if namespace == "" {
		return clip.Clean(name)
	}
	return clip.Clean(namespace + "/" + name)
}
