// Package series converts ticks to Prometheus time series: names, labels and values. Amounts are in base units:
// cores, bytes, seconds, ratios from 0 to 1. Its users pass them to Prometheus: a tool's own --metrics-addr, and the
// file of report --to prometheus.
package series

import (
	"math"
)

// These are the kinds of metrics.
const (
	Gauge   = "gauge"
	Counter = "counter"
)

// Metric is one name, with all its series.
type Metric struct {
	Name, Kind, Help string
	// Labels are the labels' names. The first one is the node.
	Labels []string
}

// Sample is the present value of one series.
type Sample struct {
	*Metric
	// Values are the labels' values. They come from ticks, and may be any text.
	Values []string
	Value  float64
}

// page collects the samples of one node.
type page struct {
	node    string
	samples []Sample
}

// add adds a sample; its labels are those after the node. An unknown value has no sample.
func (p *page) add(m *Metric, v *float64, labels ...string) {
	if v == nil || math.IsNaN(*v) {
		return
	}
	values := make([]string, 0, 1+len(labels))
	p.samples = append(p.samples, Sample{m, append(append(values, p.node), labels...), *v})
}

func (p *page) addNumber(m *Metric, v float64, labels ...string) { p.add(m, &v, labels...) }

func (p *page) addBool(m *Metric, is bool, labels ...string) {
	if is {
		p.addNumber(m, 1, labels...)
	} else {
		p.addNumber(m, 0, labels...)
	}
}

// inCores converts milli-CPU to the base unit.
func inCores(milli *float64) *float64 {
	if milli == nil {
		return nil
	}
	return new(*milli / 1000)
}

// addPointer adds the known values; a sum without any is unknown.
func addPointer(sum, v *float64) *float64 {
	switch {
	case v == nil:
		return sum
	case sum == nil:
		return new(*v)
	}
	return new(*sum + *v)
}

// maxKeys bounds the label values that a counter remembers, because a stream may contain ever new ones.
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

// begin sets a counter to 0. Half of the entries is reserved for keys that were counted.
func (c *counts) begin(key string) {
	if _, known := (*c)[key]; !known && len(*c) < maxKeys/2 {
		c.add(key, 0)
	}
}
