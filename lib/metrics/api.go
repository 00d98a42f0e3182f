package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// API contains the metrics of the API server, for lib/kube.
type API struct {
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	waits    prometheus.Histogram
	watches  *watches
}

// requestBuckets end at the tools' timeout of a request.
var requestBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30}

// API adds to the metrics those of the API server; nil without metrics.
func (s *Set) API() *API {
	switch {
	case s == nil:
		return nil
	case s.api != nil:
		return s.api
	}
	own := prometheus.Labels{"tool": s.tool}
	a := &API{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "polder_api_requests_total", Help: "Requests to the API server by their answers' status; <error> where there was none.", ConstLabels: own,
		}, []string{"method", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "polder_api_request_duration_seconds", Help: "Time until the API server's answer.", ConstLabels: own, Buckets: requestBuckets,
		}, []string{"method"}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "polder_api_rate_limiter_seconds", Help: "Time that requests waited for the tool's own limit of requests a second.", ConstLabels: own, Buckets: requestBuckets,
		}),
		watches: newWatches(s.tool),
	}
	s.registry.MustRegister(a.requests, a.latency, a.waits, a.watches)
	s.api = a
	return a
}

// Request counts a request by its response's status.
func (a *API) Request(method, code string) { a.requests.WithLabelValues(method, code).Inc() }

// Latency measures how long a response took.
func (a *API) Latency(method string, duration time.Duration) {
	a.latency.WithLabelValues(method).Observe(duration.Seconds())
}

// Waited measures how long a request waited before it was sent.
func (a *API) Waited(duration time.Duration) { a.waits.Observe(duration.Seconds()) }

// Watching reports a watch of a kind of objects until it ends: silence returns the time since the server's last response.
func (a *API) Watching(resource string, silence func() time.Duration) (ended func()) {
	return a.watches.add(resource, silence)
}

// watches has the time since the server's last response for each kind of objects.
type watches struct {
	desc *prometheus.Desc

	mu   sync.Mutex
	next int
	all  map[int]watch
}

type watch struct {
	resource string
	silence  func() time.Duration
}

func newWatches(tool string) *watches {
	return &watches{
		desc: prometheus.NewDesc("polder_watch_silence_seconds", "Time since the API server last answered on a watch: the age of its list, 0 while it answers.", []string{"resource"}, prometheus.Labels{"tool": tool}),
		all:  map[int]watch{},
	}
}

func (w *watches) add(resource string, silence func() time.Duration) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.next
	w.next++
	w.all[id] = watch{resource, silence}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, id)
	}
}

// Describe implements [prometheus.Collector].
func (w *watches) Describe(into chan<- *prometheus.Desc) { into <- w.desc }

// Collect implements [prometheus.Collector]. Of two watches of one kind the worse counts.
func (w *watches) Collect(into chan<- prometheus.Metric) {
	w.mu.Lock()
	all := make([]watch, 0, len(w.all))
	for _, x := range w.all {
		all = append(all, x)
	}
	w.mu.Unlock()
	worst := map[string]float64{}
	for _, x := range all {
		worst[x.resource] = max(worst[x.resource], x.silence().Seconds())
	}
	for resource, seconds := range worst {
		into <- prometheus.MustNewConstMetric(w.desc, prometheus.GaugeValue, seconds, label(resource))
	}
}

// Counters adds counters that the tool itself maintains: read returns their values, by the labels, at each scrape.
// It is called on any goroutine.
func (s *Set) Counters(name, help string, labels []string, read func(put func(value float64, labels ...string))) {
	if s != nil {
		s.registry.MustRegister(&counters{prometheus.NewDesc(name, help, labels, nil), read})
	}
}

type counters struct {
	desc *prometheus.Desc
	read func(func(float64, ...string))
}

// Describe implements [prometheus.Collector].
func (c *counters) Describe(into chan<- *prometheus.Desc) { into <- c.desc }

// Collect implements [prometheus.Collector].
func (c *counters) Collect(into chan<- prometheus.Metric) {
	c.read(func(value float64, labels ...string) {
		for i := range labels {
			labels[i] = label(labels[i])
		}
		if m, err := prometheus.NewConstMetric(c.desc, prometheus.CounterValue, value, labels...); err == nil {
			into <- m
		}
	})
}
