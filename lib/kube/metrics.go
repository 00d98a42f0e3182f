package kube

import (
	"context"
	"net/url"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/metrics"
)

// Observer counts the process's requests to its API server, and the responses. Its methods return at once.
type Observer interface {
	// Request counts the status of each response: "200", or "<error>" without a response.
	Request(method, code string)
	// Latency measures how long a response took; for a watch, until it began.
	Latency(method string, took time.Duration)
	// Waited measures how long a request waited for the client's own rate limit.
	Waited(took time.Duration)
	// Watching is called for each watch that starts. silence returns the time since the server's last response on it.
	Watching(resource string, silence func() time.Duration) (ended func())
}

// watcher is the process's observer, which client-go's hooks also call.
var watcher atomic.Pointer[Observer]

// Observe makes all clients of the process, and the watches that start later, call o. Only the first observer counts:
// client-go accepts no other.
func Observe(o Observer) {
	if watcher.CompareAndSwap(nil, &o) {
		metrics.Register(metrics.RegisterOpts{RequestResult: hooks{o}, RequestLatency: latencies{o}, RateLimiterLatency: waits{o}})
	}
}

// reportSilence reports a watch that runs until ctx ends to the observer.
func reportSilence(ctx context.Context, resource Resource, state func() State, now func() time.Time) {
	o := watcher.Load()
	if o == nil {
		return
	}
	ended := (*o).Watching(resource.String(), func() time.Duration {
		s := state()
		if s.Err == nil {
			return 0
		}
		return max(0, now().Sub(s.Since))
	})
	context.AfterFunc(ctx, ended)
}

type hooks struct{ Observer }

// Increment implements [metrics.ResultMetric].
func (h hooks) Increment(_ context.Context, code, method, _ string) { h.Request(method, code) }

type latencies struct{ Observer }

// Observe implements [metrics.LatencyMetric].
func (l latencies) Observe(_ context.Context, method string, _ url.URL, duration time.Duration) {
	l.Latency(method, duration)
}

type waits struct{ Observer }

// Observe implements [metrics.LatencyMetric].
func (w waits) Observe(_ context.Context, _ string, _ url.URL, duration time.Duration) {
	w.Waited(duration)
}
