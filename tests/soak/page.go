package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"strings"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// look distinguishes the tools' lines, by colour and, for readers who cannot see colours, by dashes; the names are beside them.
var look = map[string]struct{ colour, dash string }{
	"collect": {"#0b6cb0", ""},
	"advise":  {"#c2500a", "7 3"},
	"isolate": {"#0a7d55", "2 3"},
	"evict":   {"#a03c7d", "9 3 2 3"},
	"report":  {"#4d4d4d", "14 4"},
}

// row is a tool's line of the page's table.
type row struct {
	Tool  string
	Cells []string
}

// page draws a record as one self-contained page of HTML.
func page(r record, v verdict) []byte {
	values := struct {
		Flat                  bool
		Verdict, Length, Tick string
		Every, Life           string
		Record                record
		Last                  sample
		Cgroup                string
		CgroupsASecond        string
		LoadLow, LoadHigh     float64
		Rows, Around          []row
		Charts                []template.HTML
	}{
		Flat: len(v.failures) == 0, Verdict: v.line(r), Record: r, Cgroup: "version 1",
		Tick: seconds(r.IntervalSecs), Every: seconds(r.EverySecs), Life: seconds(r.LifeSecs),
	}
	if r.CgroupV2 {
		values.Cgroup = "version 2"
	}
	if len(v.tools) > 0 {
		values.Last = r.Samples[len(r.Samples)-1]
		values.Length = seconds(values.Last.AtSecs)
		values.CgroupsASecond = fmt.Sprintf("%.1f", float64(values.Last.Made-r.Samples[0].Made)/(values.Last.AtSecs-r.Samples[0].AtSecs))
		values.LoadLow, values.LoadHigh = loadRange(r)
		values.Rows, values.Around = toolRows(v), aroundRows(r)
		for _, c := range charts(r) {
			values.Charts = append(values.Charts, c.svg())
		}
	}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, values); err != nil {
		panic(err) // the template and the values are both ours
	}
	return out.Bytes()
}

func loadRange(r record) (low, high float64) {
	low = r.Samples[0].Load1
	for _, s := range r.Samples {
		low, high = min(low, s.Load1), max(high, s.Load1)
	}
	return low, high
}

func toolRows(v verdict) []row {
	var rows []row
	for _, tool := range tools {
		j := v.tools[tool]
		cells := []string{}
		for _, value := range []float64{j.rss.first, j.rss.warm, j.rss.last, j.rss.max} {
			cells = append(cells, fmt.Sprintf("%.1f", value))
		}
		cells = append(cells, minus(fmt.Sprintf("%+.2f", j.slopeMiBPerHour)), fmt.Sprintf("%.1f", j.anonymousLastMiB))
		for _, value := range []float64{j.descriptors.first, j.descriptors.last, j.descriptors.max} {
			cells = append(cells, fmt.Sprintf("%.0f", value))
		}
		for _, value := range []float64{j.cpu.first, j.cpu.last, j.cpu.max, j.cpu.mean} {
			cells = append(cells, fmt.Sprintf("%.1f", value))
		}
		rows = append(rows, row{tool, cells})
	}
	return rows
}

// minus is the text with a real minus sign.
func minus(text string) string { return strings.ReplaceAll(text, "-", "−") }

// aroundRows are the rows that belong to no tool.
func aroundRows(r record) []row {
	var rows []row
	add := func(name, format string, of func(sample) float64) {
		f := summarize(column(r, of))
		rows = append(rows, row{name, []string{fmt.Sprintf(format, f.first), fmt.Sprintf(format, f.last), fmt.Sprintf(format, f.max)}})
	}
	add("cgroups of the load", "%.0f", func(s sample) float64 { return float64(s.Cgroups) })
	add("pods in the tick", "%.0f", func(s sample) float64 { return float64(s.Pods) })
	add("length of the tick, KiB", "%.1f", func(s sample) float64 { return float64(s.Bytes) / 1024 })
	add("age of the tick at the end of the pipe, ms", "%.0f", func(s sample) float64 { return s.AgeSecs * 1000 })
	add("journal, state files and metrics, KiB", "%.0f", func(s sample) float64 { return float64(s.State) / 1024 })
	add("logs of the five tools, KiB", "%.0f", func(s sample) float64 { return float64(s.Logs) / 1024 })
	return rows
}

// charts are the page's, in order.
func charts(r record) []chart {
	minutes := column(r, func(s sample) float64 { return s.AtSecs / 60 })
	perTool := func(of func(use) float64) (lines []line) {
		for _, tool := range tools {
			lines = append(lines, line{tool, look[tool].colour, look[tool].dash, column(r, func(s sample) float64 { return of(s.Tools[tool]) })})
		}
		return lines
	}
	descriptors := func(u use) float64 { return float64(u.Descriptors) }
	few := perTool(descriptors)
	return []chart{
		{title: "Resident memory", unit: "MiB", x: minutes, lines: perTool(func(u use) float64 { return u.RSSMiB })},
		{
			title: "CPU time: each sample faintly (the kernel counts in steps of 10 ms), and the mean of a minute", unit: "% of a core", x: minutes,
			lines: perTool(func(u use) float64 { return u.CPUPercent }), smooth: int(60 / r.EverySecs),
		},
		{title: "Open descriptors of collect and isolate, which hold files of every cgroup open", unit: "descriptors", x: minutes, lines: []line{few[0], few[2]}},
		{title: "Open descriptors of the others", unit: "descriptors", x: minutes, lines: []line{few[1], few[3], few[4]}},
		{title: "Cgroups", unit: "cgroups", x: minutes, lines: []line{
			{"of the load", "#4d4d4d", "", column(r, func(s sample) float64 { return float64(s.Cgroups) })},
			{"in the tick", "#0b6cb0", "2 3", column(r, func(s sample) float64 { return float64(s.Pods) })},
		}},
		{title: "Ticks out of the end of the pipe, per sample", unit: "ticks a second", x: minutes, lines: []line{
			{"ticks", "#0b6cb0", "", tickRate(r)},
		}},
		{title: "On the disk: journal, state files, metrics. A saw: isolate forgets the cgroups that are gone, in the journal and in its memory, once it has 4096 values", unit: "KiB", x: minutes, lines: []line{
			{"files", "#0b6cb0", "", column(r, func(s sample) float64 { return float64(s.State) / 1024 })},
			{"logs", "#c2500a", "7 3", column(r, func(s sample) float64 { return float64(s.Logs) / 1024 })},
		}},
	}
}

func tickRate(r record) []float64 {
	rates := make([]float64, len(r.Samples))
	var before sample
	for i, s := range r.Samples {
		if s.AtSecs > before.AtSecs {
			rates[i] = float64(s.Ticks-before.Ticks) / (s.AtSecs - before.AtSecs)
		}
		before = s
	}
	return rates
}
