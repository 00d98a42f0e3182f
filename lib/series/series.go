// Package series has ticks as Prometheus time series: names, labels and values. Amounts are in base units:
// cores, bytes, seconds, ratios from 0 to 1. How they come to Prometheus is for others: a tool's own --metrics-addr, or the
// file of report --to prometheus.
package series

import (
	"math"
)

// Kinds of metrics.
const (
	Gauge   = "gauge"
	Counter = "counter"
)

// Metric is one name, with all the series that bear it.
type Metric struct {
	Name, Kind, Help string
	// Labels are the labels' names. The first one is the node.
	Labels []string
}

// Sample is one series' value now.
type Sample struct {
	*Metric
	// Values are the labels' values. They may be any text: what came in a tick.
	Values []string
	Value  float64
}

// page collects the samples of one node.
type page struct {
	node    string
	samples []Sample
}

// put adds a sample, whose labels are those behind the node. A value that is not known has no sample.
func (p *page) put(m *Metric, v *float64, labels ...string) {
	if v == nil || math.IsNaN(*v) {
		return
	}
	values := make([]string, 0, 1+len(labels))
	p.samples = append(p.samples, Sample{m, append(append(values, p.node), labels...), *v})
}

func (p *page) number(m *Metric, v float64, labels ...string) { p.put(m, &v, labels...) }

func (p *page) truth(m *Metric, is bool, labels ...string) {
	if is {
		p.number(m, 1, labels...)
	} else {
		p.number(m, 0, labels...)
	}
}

// inCores turns milli-CPU into the base unit.
func inCores(milli *float64) *float64 {
	if milli == nil {
		return nil
	}
	return new(*milli / 1000)
}

// number is an optional whole number as a value.
func number(n *int64) *float64 {
	if n == nil {
		return nil
	}
	return new(float64(*n))
}

// plus adds what is known; a sum of nothing known is not known.
func plus(sum, v *float64) *float64 {
	switch {
	case v == nil:
		return sum
	case sum == nil:
		return new(*v)
	}
	return new(*sum + *v)
}

// maxKeys bounds the label values that a counter remembers, for a stream may bring new ones for ever.
const maxKeys = 200

// other stands for the label values beyond maxKeys.
const other = "other"

// counts are a counter's values by a label.
type counts map[string]float64

func (c *counts) add(key string, n float64) {
	if *c == nil {
		*c = counts{}
	}
	if _, known := (*c)[key]; !known && len(*c) >= maxKeys {
		key = other
	}
	(*c)[key] += n
}

// begin has a counter at 0. The half of the room is for keys that something has happened to.
func (c *counts) begin(key string) {
	if _, known := (*c)[key]; !known && len(*c) < maxKeys/2 {
		c.add(key, 0)
	}
}
