package main

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
)

// chart is lines over time, drawn as SVG.
type chart struct {
	title, unit string
	x           []float64 // minutes
	lines       []line
	smooth      int // for values that jump: draw the mean of this many samples, and the samples faintly behind it
}

type line struct {
	name, colour, dash string
	y                  []float64
}

// The drawing's measures, in its own units: what is left of its width and height is the plot.
const (
	chartWidth, chartHeight = 960.0, 300.0
	marginLeft, marginRight = 64.0, 96.0
	marginTop, marginBottom = 14.0, 46.0
	labelHeight             = 15.0
)

func (c chart) svg() template.HTML {
	stepX, stepY := niceStep(c.x[len(c.x)-1], 10), niceStep(c.top(), 5)
	maxX, maxY := c.x[len(c.x)-1], math.Ceil(c.top()/stepY)*stepY
	plotWidth, plotHeight := chartWidth-marginLeft-marginRight, chartHeight-marginTop-marginBottom
	atX := func(x float64) float64 { return marginLeft + x/maxX*plotWidth }
	atY := func(y float64) float64 { return marginTop + plotHeight - y/maxY*plotHeight }

	var b strings.Builder
	draw := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	draw(`<figure><figcaption>%s</figcaption>`, template.HTMLEscapeString(c.title))
	draw(`<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, chartWidth, chartHeight, template.HTMLEscapeString(c.describe()))
	warm := c.x[len(c.x)/warmUpPart]
	draw(`<rect class="warm" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, atX(0), marginTop, atX(warm)-atX(0), plotHeight)
	draw(`<text class="note" x="%.1f" y="%.1f">warm-up</text>`, atX(0)+6, marginTop+plotHeight-6)
	for i := range int(math.Round(maxY/stepY)) + 1 {
		y := float64(i) * stepY
		draw(`<path class="grid" d="M%.1f %.1fH%.1f"/><text class="y" x="%.1f" y="%.1f">%s</text>`,
			atX(0), atY(y), atX(maxX), atX(0)-7, atY(y)+4, number(y))
	}
	for x := 0.0; x <= maxX*1.001; x += stepX {
		draw(`<path class="tick" d="M%.1f %.1fv5"/><text class="x" x="%.1f" y="%.1f">%s</text>`, atX(x), atY(0), atX(x), atY(0)+19, number(x))
	}
	draw(`<text class="x" x="%.1f" y="%.1f">time, minutes</text>`, marginLeft+plotWidth/2, chartHeight-8)
	draw(`<text class="x" transform="translate(16 %.1f) rotate(-90)">%s</text>`, marginTop+plotHeight/2, template.HTMLEscapeString(c.unit))
	for _, l := range c.lines {
		y := l.y
		if c.smooth > 1 {
			draw(`<polyline class="faint" stroke="%s" points="%s"/>`, l.colour, points(c.x, y, atX, atY))
			y = runningMean(y, c.smooth)
		}
		draw(`<polyline class="line" stroke="%s" stroke-dasharray="%s" points="%s"/>`, l.colour, l.dash, points(c.x, y, atX, atY))
	}
	for i, y := range c.labels(atY) {
		l := c.lines[i]
		draw(`<text x="%.1f" y="%.1f" fill="%s">%s</text>`, atX(maxX)+8, y+4, l.colour, template.HTMLEscapeString(l.name))
	}
	draw(`</svg>`)
	draw(`<p class="key">%s</p></figure>`, c.key())
	return template.HTML(b.String()) // the texts in it are escaped above
}

func (c chart) top() float64 {
	top := 0.0
	for _, l := range c.lines {
		top = max(top, slices.Max(l.y))
	}
	if top == 0 {
		return 1
	}
	return top * 1.05 // room for the names
}

// describe describes the picture in words.
func (c chart) describe() string {
	parts := []string{c.title + ", in " + c.unit + ", over " + number(math.Round(c.x[len(c.x)-1])) + " minutes"}
	for _, l := range c.lines {
		f := summarize(l.y)
		parts = append(parts, fmt.Sprintf("%s: first %s, last %s, greatest %s", l.name, short(f.first), short(f.last), short(f.max)))
	}
	return strings.Join(parts, "; ")
}

// key repeats the lines' names, with a piece of each.
func (c chart) key() string {
	var b strings.Builder
	for _, l := range c.lines {
		fmt.Fprintf(&b, `<span><svg viewBox="0 0 36 8" aria-hidden="true"><path class="line" stroke="%s" stroke-dasharray="%s" d="M0 4H36"/></svg>%s</span> `,
			l.colour, l.dash, template.HTMLEscapeString(l.name))
	}
	return b.String()
}

// labels are the heights of the lines' names at their right ends, moved apart where they would overlap.
func (c chart) labels(atY func(float64) float64) []float64 {
	heights := make([]float64, len(c.lines))
	order := make([]int, len(c.lines))
	for i, l := range c.lines {
		heights[i] = atY(l.y[len(l.y)-1])
		if c.smooth > 1 {
			heights[i] = atY(runningMean(l.y, c.smooth)[len(l.y)-1])
		}
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(math.Copysign(1, heights[b]-heights[a])) }) // the lowest line first
	limit := chartHeight - marginBottom
	for _, i := range order {
		heights[i] = min(heights[i], limit)
		limit = heights[i] - labelHeight
	}
	return heights
}

// runningMean has for each value the mean of the count values around it, fewer at the ends.
func runningMean(values []float64, count int) []float64 {
	means := make([]float64, len(values))
	for i := range values {
		around := values[max(0, i-count/2):min(len(values), i+count/2+1)]
		for _, value := range around {
			means[i] += value / float64(len(around))
		}
	}
	return means
}

func points(x, y []float64, atX, atY func(float64) float64) string {
	var b strings.Builder
	for i := range x {
		fmt.Fprintf(&b, "%.1f,%.1f ", atX(x[i]), atY(y[i]))
	}
	return strings.TrimSpace(b.String())
}

// niceStep divides the way to top in about count steps of 1, 2 or 5 times a power of ten.
func niceStep(top float64, count int) float64 {
	rough := top / float64(count)
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, factor := range []float64{1, 2, 5} {
		if factor*power >= rough*0.999 {
			return factor * power
		}
	}
	return 10 * power
}

func number(value float64) string {
	return strconv.FormatFloat(math.Round(value*1e6)/1e6, 'f', -1, 64)
}

// short formats a value briefly.
func short(value float64) string { return number(math.Round(value*10) / 10) }
