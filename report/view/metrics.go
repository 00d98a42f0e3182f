package view

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"polder/lib/series"
	"polder/lib/tick"
)

// Metrics is a page in Prometheus' text format, made from the newest tick of each node and from counters over all ticks
// since the start.
type Metrics struct {
	nodes map[string]*nodeMetrics
}

type nodeMetrics struct {
	tick   *tick.Tick
	counts *series.Node
}

// forgetAfter is how long a node's metrics are kept after its last tick, while others' ticks come.
const forgetAfter = time.Hour

// Add takes in a tick.
func (m *Metrics) Add(t *tick.Tick) {
	if m.nodes == nil {
		m.nodes = map[string]*nodeMetrics{}
	}
	n := m.nodes[t.Node]
	if n == nil {
		n = &nodeMetrics{counts: series.NewNode("report")}
		m.nodes[t.Node] = n
	}
	before := *t
	before.Report = nil // what an earlier report did
	n.tick = &before
	n.counts.Add(n.tick)
	maps.DeleteFunc(m.nodes, func(_ string, n *nodeMetrics) bool { return t.Time.Sub(n.tick.Time) > forgetAfter })
}

// Page is the text. The samples that change with every tick alone, its time and number, are left out of stable.
func (m *Metrics) Page() (page, stable string) {
	lines := map[*series.Metric][]string{}
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[name]
		for _, s := range n.counts.Samples(n.tick) {
			lines[s.Metric] = append(lines[s.Metric], exposition(s))
		}
	}
	var whole, constant strings.Builder
	for _, x := range series.All {
		if lines[x] == nil {
			continue
		}
		family := fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n%s", x.Name, x.Help, x.Name, x.Kind, strings.Join(lines[x], ""))
		whole.WriteString(family)
		if !slices.Contains(series.Volatile, x) {
			constant.WriteString(family)
		}
	}
	return whole.String(), constant.String()
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// exposition is the sample as a line of the page.
func exposition(s series.Sample) string {
	var b strings.Builder
	b.WriteString(s.Name)
	for i, label := range s.Labels {
		b.WriteString(cond(i == 0, "{", ","))
		fmt.Fprintf(&b, `%s="%s"`, label, escape.Replace(s.Values[i]))
	}
	return b.String() + "} " + strconv.FormatFloat(s.Value, 'f', -1, 64) + "\n"
}

func cond(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
