package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"polder/lib/clip"
	"polder/lib/series"
	"polder/lib/tick"
)

// These bound the series. A stream is not trusted: it may contain ever new nodes, pools or rules, and each would add
// series here and in every Prometheus that reads them.
const (
	maxNodes       = 5000 // what Kubernetes supports
	maxNodeSeries  = 1000
	maxSeries      = 200_000
	maxLabelLength = 256 // bytes
	// forgetAfter is the time without a tick after which a node is forgotten, while others have ticks.
	forgetAfter = 10 * time.Minute
)

// nodes are the series from ticks: for each node a snapshot, which every tick replaces.
type nodes struct {
	tool    string
	metrics map[*series.Metric]*prometheus.Desc
	omitted *prometheus.Desc

	mu     sync.Mutex // locked while the map is copied, never while anything is encoded or written
	nodes  map[string]*node
	series int // of all nodes
	// beyond counts what was omitted because of the bounds.
	omittedTicks, omittedSeries float64
	sweptAt                     time.Time
	// round is the common time of the ticks in a fleet controller's round; it is not set without a fleet controller.
	round time.Time
}

type node struct {
	counts   *series.Node
	samples  []series.Sample // immutable
	time     time.Time       // of its newest tick
	lastTick time.Time
}

func newNodes(tool string) *nodes {
	n := &nodes{
		tool: tool, metrics: map[*series.Metric]*prometheus.Desc{}, nodes: map[string]*node{},
		omitted: prometheus.NewDesc("polder_metrics_left_out_total", "Metrics that are left out because of the bounds: ticks of nodes beyond the limit, and series.", []string{"what"}, prometheus.Labels{"tool": tool}),
	}
	for _, m := range series.All {
		n.metrics[m] = prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
	}
	return n
}

// add adds a tick. It is called by one goroutine.
func (n *nodes) add(t *tick.Tick, now time.Time) {
	n.sweep(now, t.Node)
	if strings.HasSuffix(n.tool, series.OfFleet) && !t.Time.Equal(n.round) {
		n.endRound()
		n.round = t.Time
	}
	n.mu.Lock()
	x, known := n.nodes[t.Node], false
	if known = x != nil; !known && len(n.nodes) >= maxNodes {
		n.omittedTicks++
		n.mu.Unlock()
		return
	}
	room := maxSeries - n.series
	n.mu.Unlock()
	if !known {
		x = &node{counts: series.NewNode(n.tool)}
	}

	x.counts.Add(t) // only this goroutine uses it
	samples, left := validSamples(x.counts.Samples(t), min(maxNodeSeries, room+len(x.samples)))

	n.mu.Lock()
	defer n.mu.Unlock()
	n.series += len(samples) - len(x.samples)
	n.omittedSeries += float64(left)
	x.samples, x.time, x.lastTick = samples, t.Time, now
	n.nodes[t.Node] = x
}

// endRound removes the values of the nodes without a tick in the fleet controller's last round: they are no longer in the fleet, and
// their values are out of date. Counters continue if such a node comes back before it is forgotten.
func (n *nodes) endRound() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, x := range n.nodes {
		if !x.time.Equal(n.round) {
			n.series -= len(x.samples)
			x.samples = nil
		}
	}
}

// sweep forgets nodes, once a minute; not the present one, whose counters continue however long it had no tick.
func (n *nodes) sweep(now time.Time, present string) {
	if now.Sub(n.sweptAt) < time.Minute {
		return
	}
	n.sweptAt = now
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.nodes, func(name string, x *node) bool {
		old := name != present && now.Sub(x.lastTick) > forgetAfter
		if old {
			n.series -= len(x.samples)
		}
		return old
	})
}

// validSamples makes labels valid for Prometheus, and returns at most limit samples, no two of the same series, and how many it
// omitted.
func validSamples(samples []series.Sample, limit int) (valid []series.Sample, omitted int) {
	valid = samples[:0]
	seen := make(map[string]bool, len(samples))
	for _, s := range samples {
		if len(valid) >= limit {
			omitted++
			continue
		}
		for i, v := range s.Values {
			s.Values[i] = label(v)
		}
		key := s.Name + "\x00" + strings.Join(s.Values, "\x00")
		if seen[key] {
			omitted++ // they differed only in the part that was cut off
			continue
		}
		seen[key] = true
		valid = append(valid, s)
	}
	return slices.Clip(valid), omitted
}

// label makes a text valid as a label's value.
func label(text string) string {
	if len(text) > maxLabelLength {
		text = clip.Text(text, maxLabelLength-len("…"))
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	return strings.ReplaceAll(text, "\x00", "\uFFFD")
}

// Describe implements [prometheus.Collector]: the series depend on the ticks.
func (n *nodes) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (n *nodes) Collect(into chan<- prometheus.Metric) {
	n.mu.Lock()
	all := make([][]series.Sample, 0, len(n.nodes))
	for _, x := range n.nodes {
		all = append(all, x.samples)
	}
	left := map[string]float64{"nodes": n.omittedTicks, "series": n.omittedSeries}
	n.mu.Unlock()

	for what, v := range left {
		into <- prometheus.MustNewConstMetric(n.omitted, prometheus.CounterValue, v, what)
	}
	for _, samples := range all {
		for _, s := range samples {
			kind := prometheus.GaugeValue
			if s.Kind == series.Counter {
				kind = prometheus.CounterValue
			}
			m, err := prometheus.NewConstMetric(n.metrics[s.Metric], kind, s.Value, s.Values...)
			if err != nil {
				m = prometheus.NewInvalidMetric(n.metrics[s.Metric], err) // the others are collected nevertheless
			}
			into <- m
		}
	}
}
