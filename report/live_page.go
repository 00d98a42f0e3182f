package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"polder/lib/listen"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/cluster"
	"polder/report/page"
)

// Bounds of the cost of the live page's readers.
const (
	liveKeeps       = 24 * time.Hour
	liveConnections = 24
	liveReaders     = 8 // of events at a time
	liveHeader      = 16 << 10
	liveRead        = 5 * time.Second
	liveWrite       = 20 * time.Second // of one state
	// livePause is the least time between two states, and liveRate the bytes a second that they take on average where they are large.
	livePause = time.Second
	liveRate  = 200_000
)

// live serves the page of the ticks so far, and sends new ticks to the open pages.
type live struct {
	listener net.Listener
	server   http.Server
	done     chan struct{} // closed when the server has ended
	ended    chan struct{} // closed when no more ticks come
	loopback bool
	readers  chan struct{}

	mu        sync.Mutex
	recording page.Recording
	version   int
	changed   chan struct{} // closed at the next tick
	encoded   []byte
	of        int // the version that is encoded
}

// liveAddress is --listen as HOST:PORT. Without a host it is the loopback address, which no other machine reaches.
func liveAddress(addr string) (string, error) {
	if !strings.Contains(addr, ":") {
		addr = ":" + addr
	}
	if err := listen.CheckAddr(addr); err != nil {
		return "", errors.New("want PORT or HOST:PORT, such as 8470 or 127.0.0.1:8470, which this machine alone reaches, or 0.0.0.0:8470 for all that reach it")
	}
	if strings.HasPrefix(addr, ":") {
		addr = "127.0.0.1" + addr
	}
	return addr, nil
}

// openLive begins to serve the page.
func openLive(_ context.Context, s *stage.Session, o *options, _ io.Writer) (cluster.Target, error) {
	addr, err := liveAddress(o.listen)
	if err != nil {
		return nil, stage.Usagef("--listen %q: %w", o.listen, err)
	}
	l, err := listen.Open(addr, liveConnections)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", addr, err)
	}
	x := &live{
		listener: l, done: make(chan struct{}), ended: make(chan struct{}), changed: make(chan struct{}),
		readers: make(chan struct{}, liveReaders),
	}
	x.recording.Keep = liveKeeps
	at := l.Addr().(*net.TCPAddr).AddrPort()
	x.loopback = at.Addr().Unmap().IsLoopback()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", x.servePage)
	mux.HandleFunc("GET /events", x.serveEvents)
	x.server = http.Server{
		Handler: x.guard(mux), ErrorLog: log.New(io.Discard, "", 0), ReadTimeout: liveRead, IdleTimeout: time.Minute, MaxHeaderBytes: liveHeader,
	}
	go func() {
		defer close(x.done)
		_ = x.server.Serve(l) // until close
	}()
	s.Log.Info("page", "url", "http://"+at.String()+"/")
	if !x.loopback {
		s.Log.Warn("the page is served without password or encryption to all that reach this address: it names pods and their loads", "address", at.String())
	}
	return x, nil
}

// guard prevents pages of other sites from reading this one, also by a host name that was made to resolve to this address.
func (x *live) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if x.loopback && !isLoopbackHost(r.Host) {
			http.Error(w, "ask for this page by 127.0.0.1 or localhost", http.StatusMisdirectedRequest)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", page.Policy(true)+"; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

func isLoopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}

func (x *live) servePage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(liveWrite))
	data, _, _, err := x.state()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = page.Write(w, data, true) // a reader that has disconnected is no error
}

// state is the page's data of the recording so far, its version, and a channel that is closed when there is a newer one.
func (x *live) state() (data []byte, version int, next <-chan struct{}, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.encoded == nil || x.of != x.version {
		if x.encoded, err = x.recording.Data(true); err != nil {
			return nil, 0, nil, err
		}
		x.of = x.version
	}
	return x.encoded, x.version, x.changed, nil
}

// serveEvents sends the whole state after a tick, so that a page that was disconnected for a while misses nothing. The larger the state
// is, the less often it is sent.
func (x *live) serveEvents(w http.ResponseWriter, r *http.Request) {
	select {
	case x.readers <- struct{}{}:
		defer func() { <-x.readers }()
	default:
		http.Error(w, fmt.Sprintf("%d pages are open: close one", liveReaders), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	send := func(event string, data []byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(liveWrite))
		_, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data)
		return err == nil && out.Flush() == nil
	}
	sent := -1
	for {
		data, version, next, err := x.state()
		if err != nil || version != sent && !send("state", data) {
			return
		}
		_ = out.SetReadDeadline(time.Time{}) // the request has been read, and the stream lasts longer than that may take
		sent = version
		pause := time.NewTimer(max(livePause, time.Duration(float64(len(data))/liveRate*float64(time.Second))))
		select {
		case <-pause.C:
		case <-x.ended:
		case <-r.Context().Done():
			return
		}
		pause.Stop()
		select {
		case <-next:
		case <-r.Context().Done():
			return
		case <-x.ended:
			if data, version, _, err := x.state(); err == nil && version != sent {
				send("state", data)
			}
			send("end", []byte("{}"))
			return
		}
	}
}

func (x *live) Put(in stage.Incoming) (tick.Target, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.recording.Add(in.Tick)
	x.version++
	close(x.changed)
	x.changed = make(chan struct{})
	return tick.Target{Target: targetHTML, State: tick.TargetWritten}, nil
}

// Close sends the end of the stream to the pages, and stops the server.
func (x *live) Close() error {
	close(x.ended)
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	if err := x.server.Shutdown(ctx); err != nil {
		_ = x.server.Close()
	}
	<-x.done
	return nil
}
