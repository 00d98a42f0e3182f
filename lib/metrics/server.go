package metrics

import (
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"polder/lib/listen"
)

// These bound the cost of clients, which are not trusted: the tool needs its descriptors and its memory for the node.
const (
	maxConnections = 16
	maxConcurrent  = 3 // concurrent responses
	readTimeout    = 5 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute // Prometheus keeps its connection between two scrapes
	maxHeaderBytes = 16 << 10
)

type server struct {
	listener net.Listener
	http     http.Server
	done     chan struct{}
}

func listenAndServe(addr string, registry *prometheus.Registry) (*server, error) {
	l, err := listen.Open(addr, maxConnections)
	if err != nil {
		return nil, err
	}
	silent := log.New(io.Discard, "", 0) // clients' errors are not logged
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: silent, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxConcurrent,
		DisableCompression: true, // a compressor's tables are as large as all of a tool's own memory
	}))
	s := &server{listener: l, done: make(chan struct{}), http: http.Server{
		Handler: mux, ErrorLog: silent, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
	}}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(l) // until close
	}()
	return s, nil
}

func (s *server) close() {
	_ = s.http.Close()
	<-s.done
}
