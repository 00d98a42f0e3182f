package metrics

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Bounds of what readers may cost. Who connects is not trusted: the tool needs its descriptors and its memory for the node.
const (
	maxConnections = 16
	maxAtOnce      = 3 // answers
	readWithin     = 5 * time.Second
	writeWithin    = 30 * time.Second
	idleFor        = 2 * time.Minute // Prometheus keeps its connection between two scrapes
	maxHeaderBytes = 16 << 10
)

// CheckAddr refuses what is no HOST:PORT.
func CheckAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return errors.New("want HOST:PORT, such as 127.0.0.1:9471, [::1]:9471, or :9471 for all addresses of the machine")
	}
	return nil
}

type server struct {
	listener net.Listener
	http     http.Server
	done     chan struct{}
}

func listen(addr string, registry *prometheus.Registry) (*server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, explain(err)
	}
	silent := log.New(io.Discard, "", 0) // what a stranger sends is not the log's
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: silent, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxAtOnce,
		DisableCompression: true, // a compressor's tables are as large as all of a tool's own memory
	}))
	s := &server{listener: l, done: make(chan struct{}), http: http.Server{
		Handler: mux, ErrorLog: silent, ReadTimeout: readWithin, WriteTimeout: writeWithin, IdleTimeout: idleFor, MaxHeaderBytes: maxHeaderBytes,
	}}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(&limited{Listener: l, free: make(chan struct{}, maxConnections), closed: make(chan struct{})}) // until close
	}()
	return s, nil
}

// explain says what to do.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w (another process listens there: each tool needs a port of its own)", err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w (this machine does not have that address)", err)
	case errors.Is(err, syscall.EAFNOSUPPORT):
		return fmt.Errorf("%w (is the unit's RestrictAddressFamilies without AF_INET? docs/metrics.md has a drop-in)", err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w (ports under 1024 are root's)", err)
	}
	return err
}

func (s *server) close() {
	_ = s.http.Close()
	<-s.done
}

// limited is a listener that has so many connections at a time; the others wait in the kernel.
type limited struct {
	net.Listener
	free   chan struct{}
	closed chan struct{}
	once   sync.Once
}

// Accept implements [net.Listener].
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &counted{Conn: c, release: sync.OnceFunc(func() { <-l.free })}, nil
}

// Close implements [net.Listener].
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// counted is a connection that makes room when it ends.
type counted struct {
	net.Conn
	release func()
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}
