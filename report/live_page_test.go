package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"polder/lib/stage"
	"polder/lib/tick"
)

func serveLive(t *testing.T, addr string) (*live, string, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	s := &stage.Session{Log: slog.New(slog.NewTextHandler(&log, nil))}
	opened, err := openLive(t.Context(), s, &options{listen: addr}, nil)
	if err != nil {
		t.Fatal(err)
	}
	x := opened.(*live)
	return x, "http://" + x.listener.Addr().String(), &log
}

func putLive(t *testing.T, x *live, node string, second int) {
	t.Helper()
	in := stage.Incoming{Tick: &tick.Tick{V: 1, Node: node, Time: time.Unix(int64(second), 0), Sample: &tick.Sample{}}}
	if _, err := x.Put(in); err != nil {
		t.Fatal(err)
	}
}

// event is the next event of a stream of them, with its data.
func event(t *testing.T, r *bufio.Reader) (name, data string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("read an event: %v", err)
		}
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "event: "):
			name = strings.TrimPrefix(line, "event: ")
		case strings.HasPrefix(line, "data: "):
			data = strings.TrimPrefix(line, "data: ")
		case line == "" && name != "":
			return name, data
		}
	}
}

// The page has the ticks so far, and the stream of events the following ones and the end.
func TestLivePageFollowsTheStream(t *testing.T) {
	x, url, _ := serveLive(t, "0")
	putLive(t, x, "node-one", 1)
	response, err := http.Get(url + "/")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), `"name":"node-one"`) {
		t.Errorf("the page: status %d, error %v, %d bytes", response.StatusCode, err, len(text))
	}
	if policy := response.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "connect-src 'self'") || !strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("policy %q", policy)
	}
	events, err := http.Get(url + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	r := bufio.NewReader(events.Body)
	if name, data := event(t, r); name != "state" || !strings.Contains(data, "node-one") {
		t.Fatalf("first event %s: %.200s", name, data)
	}
	putLive(t, x, "node-two", 2)
	if name, data := event(t, r); name != "state" || !strings.Contains(data, "node-two") {
		t.Fatalf("second event %s: %.200s", name, data)
	}
	putLive(t, x, "node-three", 3)
	closed := make(chan error)
	go func() { closed <- x.Close() }()
	if name, data := event(t, r); name != "state" || !strings.Contains(data, "node-three") {
		t.Fatalf("last state %s: %.200s", name, data)
	}
	if name, _ := event(t, r); name != "end" {
		t.Errorf("at the end an event %s", name)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// A client that does not send what it announced is disconnected, so that it does not occupy one of the few connections; the stream of
// events outlasts the time that a request may take.
func TestLivePageDisconnectsSlowRequests(t *testing.T) {
	x, url, _ := serveLive(t, "0")
	defer x.Close()
	events, err := http.Get(url + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	r := bufio.NewReader(events.Body)
	event(t, r)
	var slow []net.Conn
	for _, request := range []string{"POST /", "GET /"} {
		c, err := net.Dial("tcp", x.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, request+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, c)
	}
	for _, c := range slow {
		if err := c.SetReadDeadline(time.Now().Add(10 * liveRead)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); err != nil {
			t.Errorf("the connection is still open: %v", err)
		}
	}
	putLive(t, x, "node-one", 1)
	if name, data := event(t, r); name != "state" || !strings.Contains(data, "node-one") {
		t.Errorf("after that an event %s: %.200s", name, data)
	}
}

// Only GET is answered, only for a name of this machine, and only so many readers at a time.
func TestLivePageIsGuarded(t *testing.T) {
	x, url, log := serveLive(t, "127.0.0.1:0")
	defer x.Close()
	for _, tt := range []struct {
		method, path, host string
		want               int
	}{
		{"GET", "/", "", 200},
		{"POST", "/", "", 405},
		{"DELETE", "/events", "", 405},
		{"GET", "/etc/passwd", "", 404},
		{"GET", "/", "attacker.example", 421},
		{"GET", "/events", "127.0.0.1.attacker.example:80", 421},
		{"GET", "/", "localhost:8470", 200},
		{"GET", "/", "[::1]:1", 200},
	} {
		request, _ := http.NewRequest(tt.method, url+tt.path, nil)
		request.Host = tt.host
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != tt.want {
			t.Errorf("%s %s for host %q: status %d; want %d", tt.method, tt.path, tt.host, response.StatusCode, tt.want)
		}
	}
	var open []*http.Response
	for i := range liveReaders + 1 {
		response, err := http.Get(url + "/events")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, response)
		want := http.StatusOK
		if i == liveReaders {
			want = http.StatusServiceUnavailable
		}
		if response.StatusCode != want {
			t.Errorf("reader %d: status %d; want %d", i, response.StatusCode, want)
		}
	}
	for _, response := range open {
		response.Body.Close()
	}
	if strings.Contains(log.String(), "without password") {
		t.Errorf("the log warns of a page that this machine alone reaches: %s", log)
	}
}

// Ticks never wait for a reader that reads nothing.
func TestLivePageDoesNotWaitForReaders(t *testing.T) {
	x, url, _ := serveLive(t, "0")
	defer x.Close()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n") // it reads nothing
	for i := range 20_000 {
		putLive(t, x, "n", i)
	}
}

func TestLiveAddress(t *testing.T) {
	for addr, want := range map[string]string{
		"8470": "127.0.0.1:8470", ":8470": "127.0.0.1:8470", "0.0.0.0:8470": "0.0.0.0:8470", "[::1]:0": "[::1]:0", "localhost:1": "localhost:1",
		"": "", "x": "", "1.2.3.4": "", "127.0.0.1:x": "", "127.0.0.1:70000": "",
	} {
		got, err := liveAddress(addr)
		if want == "" && err == nil || want != "" && (err != nil || got != want) {
			t.Errorf("--listen %q: %q, %v; want %q", addr, got, err, want)
		}
	}
}
