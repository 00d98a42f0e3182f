package view

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"polder/lib/series"
	"polder/lib/tick"
)

// Metrics is a page in Prometheus' text format, made from the newest tick of each node and from counters over all ticks
// since the start.
type Metrics struct {
	nodes map[string]*nodeMetrics
	seen  Nodes
	size  int // of the last page
}

// nodeMetrics are a node's counters, and its lines of the page as of its newest tick: with many nodes a page is written far more often than
// the lines of one of them change.
type nodeMetrics struct {
	counts *series.Node
	lines  map[*series.Metric][]byte
}

// Add adds a tick.
func (m *Metrics) Add(t *tick.Tick) {
	if m.nodes == nil {
		m.nodes = map[string]*nodeMetrics{}
	}
	if m.seen.Add(t.Node, t.Time) {
		maps.DeleteFunc(m.nodes, func(name string, _ *nodeMetrics) bool { return !m.seen.Has(name) })
	}
	if !m.seen.Has(t.Node) { // there are too many
		return
	}
	n := m.nodes[t.Node]
	if n == nil {
		n = &nodeMetrics{counts: series.NewNode("report")}
		m.nodes[t.Node] = n
	}
	before := *t
	before.Report = nil // an earlier report's section
	n.counts.Add(&before)
	n.lines = map[*series.Metric][]byte{}
	for _, s := range n.counts.Samples(&before) {
		n.lines[s.Metric] = appendSample(n.lines[s.Metric], s)
	}
}

// Page is the text. stable is the text without the samples that change with every tick: its time and number.
func (m *Metrics) Page() (page, stable string) {
	var all []*nodeMetrics
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		all = append(all, m.nodes[name])
	}
	var whole, constant strings.Builder
	whole.Grow(m.size)
	constant.Grow(m.size)
	for _, x := range series.All {
		into := []*strings.Builder{&whole, &constant}
		if slices.Contains(series.Volatile, x) {
			into = into[:1]
		}
		for _, text := range into {
			begun := false
			for _, n := range all {
				if len(n.lines[x]) == 0 {
					continue
				}
				if !begun {
					fmt.Fprintf(text, "# HELP %s %s\n# TYPE %s %s\n", x.Name, x.Help, x.Name, x.Kind)
					begun = true
				}
				text.Write(n.lines[x])
			}
		}
	}
	m.size = whole.Len()
	return whole.String(), constant.String()
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// appendSample appends the sample as a line of the page.
func appendSample(dst []byte, s series.Sample) []byte {
	dst = append(dst, s.Name...)
	before := byte('{')
	for i, label := range s.Labels {
		value := s.Values[i]
		if strings.ContainsAny(value, "\\\"\n") {
			value = escape.Replace(value)
		}
		dst = append(append(dst, before), label...)
		dst = append(append(append(dst, `="`...), value...), '"')
		before = ','
	}
	dst = strconv.AppendFloat(append(dst, "} "...), s.Value, 'f', -1, 64)
	return append(dst, '\n')
}

func cond(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
