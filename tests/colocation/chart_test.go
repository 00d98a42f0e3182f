package colocation

import (
	"fmt"
	"html"
	"math"
	"strings"
	"testing"
)

// The chart's sizes, in pixels.
const (
	chartWidth, chartHeight = 820, 460
	plotLeft, plotTop       = 70, 30
	plotWidth, plotHeight   = 420, 370
)

// Bounds of the axes: batch's CPU as a part of the machine without the service, and the service's p99 against alone. Values beyond are
// drawn at the edge.
const maxRatio, minRatio = 100.0, 0.5

// colours can be distinguished by people with colour blindness (Okabe and Ito).
var colours = []string{"#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#F0E442"}

// dot is a cell in one way.
type dot struct {
	method, cell string
	batch, ratio float64 // of the CPU that the service leaves; p99 beside batch against p99 alone
}

// dots are all cells that have a run alone. The remaining CPU is the machine's without the usage of the service alone.
func (t *table) dots(cpus int) (list []dot) {
	for _, first := range t.rows {
		if first.cell.job != nil {
			continue
		}
		alone, _, _ := first.stats(func(r result) float64 { return r.P99 })
		busy, _, _ := first.stats(func(r result) float64 { return r.Busy })
		remaining := float64(cpus) * (1 - busy/100)
		for _, r := range t.rows {
			if r.cell.job == nil || r.cell.service != first.cell.service || r.cell.percent != first.cell.percent || alone <= 0 || remaining <= 0 {
				continue
			}
			p99, _, _ := r.stats(func(r result) float64 { return r.P99 })
			batch, _, _ := r.stats(func(r result) float64 { return r.Batch })
			list = append(list, dot{r.method, first.cell.title() + ", " + r.cell.job.name, batch / remaining, p99 / alone})
		}
	}
	return list
}

// chart draws all cells as an SVG: the part of the remaining CPU that batch gets, and how much longer the service's p99 is for it.
func (t *table) chart(cpus int) string {
	x := func(part float64) float64 { return plotLeft + plotWidth*min(max(part, 0), 1.2)/1.2 }
	y := func(ratio float64) float64 {
		part := math.Log(min(max(ratio, minRatio), maxRatio)/minRatio) / math.Log(maxRatio/minRatio)
		return plotTop + plotHeight*(1-part)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">
<title>CPU of batch and latency of the service</title>
<rect width="100%%" height="100%%" fill="white"/>
`, chartWidth, chartHeight)
	line := func(x1, y1, x2, y2 float64, colour string) {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, colour)
	}
	text := func(x, y float64, anchor, text string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="#333">%s</text>`+"\n", x, y, anchor, html.EscapeString(text))
	}
	for _, ratio := range []float64{0.5, 1, 2, 5, 10, 20, 50, 100} {
		colour := "#ddd"
		if ratio == 1 {
			colour = "#333"
		}
		line(plotLeft, y(ratio), plotLeft+plotWidth, y(ratio), colour)
		text(plotLeft-8, y(ratio)+4, "end", fmt.Sprintf("%g", ratio))
	}
	for percent := 0; percent <= 120; percent += 20 {
		line(x(float64(percent)/100), plotTop+plotHeight, x(float64(percent)/100), plotTop+plotHeight+5, "#333")
		text(x(float64(percent)/100), plotTop+plotHeight+20, "middle", fmt.Sprintf("%d %%", percent))
	}
	text(plotLeft, plotTop-12, "start", "p99 of the service, divided by its p99 alone (lower is better)")
	text(plotLeft+plotWidth, plotTop+plotHeight+42, "end", "batch's part of the CPU that the service leaves (higher is better)")
	var methods []string
	colourOf := map[string]string{}
	for _, d := range t.dots(cpus) {
		if colourOf[d.method] == "" {
			colourOf[d.method] = colours[len(methods)%len(colours)]
			methods = append(methods, d.method)
		}
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="5" fill="%s" fill-opacity="0.75"><title>%s: %s: p99 %.2f times p99 alone, batch %.0f %%</title></circle>`+"\n",
			x(d.batch), y(d.ratio), colourOf[d.method], html.EscapeString(d.method), html.EscapeString(d.cell), d.ratio, 100*d.batch)
	}
	for i, method := range methods {
		at := float64(plotTop + 10 + 22*i)
		fmt.Fprintf(&b, `<circle cx="%d" cy="%.1f" r="5" fill="%s"/>`+"\n", plotLeft+plotWidth+30, at-4, colourOf[method])
		text(plotLeft+plotWidth+42, at, "start", method)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func TestChart(t *testing.T) {
	x := newTable()
	x.add(cell{&services[0], 50, nil}, alone, 100, result{P99: 2, Busy: 50})
	x.add(cell{&services[0], 50, &jobs[0]}, "unmanaged", 100, result{P99: 2000, Batch: 0.5, Busy: 100})
	x.add(cell{&services[0], 50, &jobs[0]}, "a <method>", 100, result{P99: 2, Batch: 1, Busy: 100})
	svg := x.chart(2)
	for _, want := range []string{
		`cx="245.0" cy="30.0"`,  // half of the remaining CPU, and at the upper edge
		`cx="420.0" cy="351.6"`, // all of the remaining CPU, and a p99 as alone
		"a &lt;method&gt;: nginx", "p99 1000.00 times p99 alone, batch 50 %",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q in\n%s", want, svg)
		}
	}
	if strings.Contains(svg, "<method>") {
		t.Error("a name is not escaped")
	}
}
