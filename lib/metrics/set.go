// Package metrics exposes a process's metrics to Prometheus over HTTP: it is the only importer of client_golang.
//
// The stream takes precedence: it stores one snapshot per tick and never waits for a reader.
package metrics

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"polder/lib/tick"
)

// Set is a process's metrics. A nil Set, of a tool without --metrics-addr, ignores all calls.
type Set struct {
	tool     string
	registry *prometheus.Registry
	nodes    *nodes
	api      *API
	server   *server

	written  prometheus.Counter
	refused  *prometheus.CounterVec
	invalid  *prometheus.CounterVec
	cut      atomic.Int64
	handling prometheus.Histogram
}

// These are the reasons why a tick is refused, and why a line is invalid.
const (
	RefusedOld   = "old"
	RefusedEarly = "early" // ahead of the clock
	RefusedNode  = "node"  // of another node

	InvalidLine    = "line"    // no tick
	InvalidLong    = "long"    // over --max-line
	InvalidSection = "section" // a section violates the schema
)

// handlingBuckets reach from a small tick in isolate to a node of a thousand cgroups in collect, under throttling.
var handlingBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// New creates a tool's metrics; they can be read after Serve.
func New(tool, version string) *Set {
	own := prometheus.Labels{"tool": tool}
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Name: name, Help: help, ConstLabels: own}
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), labels)
	}
	s := &Set{
		tool: tool, registry: prometheus.NewRegistry(), nodes: newNodes(tool),
		written: prometheus.NewCounter(prometheus.CounterOpts(opts("polder_written_ticks_total", "Ticks passed to the next stage."))),
		refused: counter("polder_refused_ticks_total", "Ticks that a tool did not act on: old, ahead of its clock (early), of another node.", "reason"),
		invalid: counter("polder_invalid_lines_total", "Lines that were dropped: not a tick (line), too long, or with a section that violates the schema.", "reason"),
		handling: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "polder_tick_handling_seconds", Help: "Time that a tool took for a tick; for collect, to create it.", ConstLabels: own, Buckets: handlingBuckets,
		}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "polder_build_info", Help: "1, with the version.",
		ConstLabels: prometheus.Labels{"tool": tool, "version": version, "goversion": runtime.Version()},
	})
	build.Set(1)
	cut := prometheus.NewCounterFunc(prometheus.CounterOpts(opts("polder_cut_lines_total", "First and last lines that a restart cut off.")), func() float64 { return float64(s.cut.Load()) })
	for _, reason := range []string{RefusedOld, RefusedEarly, RefusedNode} {
		s.refused.WithLabelValues(reason)
	}
	for _, reason := range []string{InvalidLine, InvalidLong, InvalidSection} {
		s.invalid.WithLabelValues(reason)
	}
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build, s.written, s.refused, s.invalid, cut, s.handling, s.nodes)
	return s
}

// Tick adds a tick that contains only the section that the tool has just created, and the time that it took, negative if it
// is unknown.
func (s *Set) Tick(t *tick.Tick, duration time.Duration) {
	if s == nil {
		return
	}
	if duration >= 0 {
		s.handling.Observe(duration.Seconds())
	}
	s.nodes.add(t, time.Now())
}

// Written counts a tick that was forwarded.
func (s *Set) Written() {
	if s != nil {
		s.written.Inc()
	}
}

// Refused counts a tick that must not be acted on.
func (s *Set) Refused(reason string) {
	if s != nil {
		s.refused.WithLabelValues(reason).Inc()
	}
}

// Invalid counts a line that was dropped.
func (s *Set) Invalid(reason string) {
	if s != nil {
		s.invalid.WithLabelValues(reason).Inc()
	}
}

// Cut counts how many lines were cut off so far.
func (s *Set) Cut(total int64) {
	if s != nil {
		s.cut.Store(total)
	}
}

// Serve responds at the address, HOST:PORT, until Close.
func (s *Set) Serve(addr string) error {
	if s == nil || s.server != nil {
		return nil
	}
	server, err := listenAndServe(addr, s.registry)
	if err != nil {
		return fmt.Errorf("--metrics-addr %s: %w", addr, err)
	}
	s.server = server
	return nil
}

// Addr returns the address on which Serve listens, with the port that was chosen for 0.
func (s *Set) Addr() string {
	if s == nil || s.server == nil {
		return ""
	}
	return s.server.listener.Addr().String()
}

// Close ends the server, and aborts responses in progress.
func (s *Set) Close() {
	if s != nil && s.server != nil {
		s.server.close()
		s.server = nil
	}
}
