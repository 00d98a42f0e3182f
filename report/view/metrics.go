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
}

type nodeMetrics struct {
	tick   *tick.Tick
	counts *series.Node
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
	n.tick = &before
	n.counts.Add(n.tick)
}

// Page is the text. stable is the text without the samples that change with every tick: its time and number.
func (m *Metrics) Page() (page, stable string) {
	families := map[*series.Metric][]byte{}
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[name]
		for _, s := range n.counts.Samples(n.tick) {
			text := families[s.Metric]
			if text == nil {
				text = fmt.Appendf(nil, "# HELP %s %s\n# TYPE %s %s\n", s.Name, s.Help, s.Name, s.Kind)
			}
			families[s.Metric] = appendSample(text, s)
		}
	}
	var whole, constant strings.Builder
	for _, x := range series.All {
		whole.Write(families[x])
		if !slices.Contains(series.Volatile, x) {
			constant.Write(families[x])
		}
	}
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
