package metrics

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"polder/lib/listen"
	"polder/lib/tick"
)

func serve(t *testing.T) *Set {
	t.Helper()
	s := New("evict", "v0.0.0-test")
	if err := s.Serve("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func scrape(t *testing.T, s *Set) string {
	t.Helper()
	client := http.Client{Timeout: 2 * time.Minute}
	defer client.CloseIdleConnections()
	response, err := client.Get("http://" + s.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("status %s, %v: %.300s", response.Status, err, page)
	}
	return string(page)
}

func wants(t *testing.T, page string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the page lacks %s:\n%s", line, ours(page))
		}
	}
}

// ours returns the page without the runtime's metrics.
func ours(page string) string {
	var b strings.Builder
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "polder_") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func evictTick(node string, rules ...string) *tick.Tick {
	e := &tick.Eviction{Queued: 2}
	for _, r := range rules {
		e.Pressures = append(e.Pressures, tick.PressureFinding{Rule: r, Scope: "memory", Value: 3, Threshold: 2, Met: true, Hard: true, DryRun: r == "dry"})
		e.Evictions = append(e.Evictions, tick.PodEviction{UID: "u", Rule: r, State: tick.StateCreated})
	}
	return &tick.Tick{V: 1, Node: node, Time: time.Unix(1795262400, 0), Eviction: e}
}

func TestPage(t *testing.T) {
	s := serve(t)
	s.Tick(evictTick("n"), 3*time.Millisecond)
	s.Tick(evictTick("n", "wet", "dry"), 3*time.Millisecond)
	s.Tick(evictTick("n", "wet", "dry"), 3*time.Millisecond)
	s.Written()
	s.Refused(RefusedOld)
	s.Invalid(InvalidLong)
	s.Cut(2)
	api := s.API()
	api.Request("POST", "429")
	api.Latency("POST", 20*time.Millisecond)
	api.Waited(time.Millisecond)
	ended := api.Watching("pods", func() time.Duration { return 90 * time.Second })
	api.Watching("pods", func() time.Duration { return 0 })
	s.Counters("polder_eviction_limits_total", "Help.", []string{"rule", "limit"}, func(put func(float64, ...string)) { put(7, "wet", "burst") })
	wants(t, scrape(t, s),
		`polder_build_info{goversion="`+goVersion(t)+`",tool="evict",version="v0.0.0-test"} 1`,
		`polder_tick_timestamp_seconds{node="n",tool="evict"} 1.7952624e+09`,
		`polder_ticks_total{node="n",tool="evict"} 3`,
		`polder_written_ticks_total{tool="evict"} 1`,
		`polder_refused_ticks_total{reason="old",tool="evict"} 1`,
		`polder_refused_ticks_total{reason="node",tool="evict"} 0`,
		`polder_invalid_lines_total{reason="long",tool="evict"} 1`,
		`polder_cut_lines_total{tool="evict"} 2`,
		`polder_tick_handling_seconds_bucket{tool="evict",le="0.005"} 3`,
		`polder_pressure_value{level="hard",node="n",part="",rule="wet",scope="memory"} 3`,
		`polder_rule_dry_run{node="n",rule="dry"} 1`,
		`polder_rule_dry_run{node="n",rule="wet"} 0`,
		`polder_evictions_total{node="n",rule="wet",state="created"} 1`, // the same one in two ticks
		`polder_eviction_queue_pods{node="n"} 2`,
		`polder_api_requests_total{code="429",method="POST",tool="evict"} 1`,
		`polder_api_request_duration_seconds_count{method="POST",tool="evict"} 1`,
		`polder_watch_silence_seconds{resource="pods",tool="evict"} 90`,
		`polder_eviction_limits_total{limit="burst",rule="wet"} 7`,
		`polder_metrics_left_out_total{tool="evict",what="nodes"} 0`,
	)
	ended()
	wants(t, scrape(t, s), `polder_watch_silence_seconds{resource="pods",tool="evict"} 0`)
}

func goVersion(t *testing.T) string {
	t.Helper()
	page := scrape(t, serve(t))
	_, rest, _ := strings.Cut(page, `go_info{version="`)
	version, _, _ := strings.Cut(rest, `"`)
	return version
}

// Without --metrics-addr there is no set, and all calls are ignored.
func TestNoSet(t *testing.T) {
	var s *Set
	s.Tick(evictTick("n"), 0)
	s.Written()
	s.Refused(RefusedNode)
	s.Invalid(InvalidLine)
	s.Cut(1)
	s.Counters("x", "x", nil, nil)
	if err := s.Serve("127.0.0.1:0"); err != nil || s.API() != nil || s.Addr() != "" {
		t.Errorf("Serve: %v, API %v, Addr %q; want nothing", err, s.API(), s.Addr())
	}
	s.Close()
}

// A fleet controller's nodes are those of its last round: a node that left the fleet has no metrics, in particular no fleet's state.
func TestRoundsOfAFleet(t *testing.T) {
	s := New("evict-fleet", "")
	if err := s.Serve("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	round := func(second int64, nodes ...string) string {
		for _, node := range nodes {
			s.Tick(&tick.Tick{V: 1, Node: node, Time: time.Unix(second, 0), Eviction: &tick.Eviction{Fleet: &tick.FleetEviction{Protection: "x"}}}, 0)
		}
		return scrape(t, s)
	}
	round(10, "a", "b", "gone")
	page := round(20, "a") // the round continues
	wants(t, page, `polder_fleet_protection_active{node="b"} 1`, `polder_fleet_protection_active{node="gone"} 1`)
	wants(t, round(20, "b"), `polder_fleet_protection_active{node="gone"} 1`)
	page = round(30, "a")
	if wants(t, page, `polder_fleet_protection_active{node="b"} 1`); strings.Contains(page, `"gone"`) {
		t.Errorf("of a node that has left:\n%s", ours(page))
	}
	page = round(40, "b", "gone") // it is back: its counters have continued
	wants(t, page, `polder_ticks_total{node="gone",tool="evict-fleet"} 2`, `polder_fleet_protection_active{node="b"} 1`)
	if round(50); s.nodes.series != len(s.nodes.nodes["a"].samples)+len(s.nodes.nodes["b"].samples)+len(s.nodes.nodes["gone"].samples) {
		t.Errorf("%d series are counted", s.nodes.series)
	}
}

// A node's own tool has metrics of all nodes in its stream, whose ticks have different times.
func TestNodesWithoutRounds(t *testing.T) {
	s := serve(t)
	for i := range 5 {
		x := evictTick(fmt.Sprint("n", i))
		x.Time = x.Time.Add(time.Duration(i) * time.Second)
		s.Tick(x, 0)
	}
	wants(t, scrape(t, s), `polder_eviction_queue_pods{node="n0"} 2`, `polder_eviction_queue_pods{node="n4"} 2`)
}

func TestAddresses(t *testing.T) {
	for addr, ok := range map[string]bool{
		"127.0.0.1:9471": true, ":0": true, "[::1]:9471": true, "localhost:65535": true,
		"": false, "9471": false, "127.0.0.1": false, "::1:9471": false, "127.0.0.1:http": false, "127.0.0.1:65536": false, "127.0.0.1:-1": false, "127.0.0.1:": false,
	} {
		if err := listen.CheckAddr(addr); (err == nil) != ok {
			t.Errorf("CheckAddr(%q) = %v; want it taken: %t", addr, err, ok)
		}
	}
	s := serve(t)
	err := New("isolate", "").Serve(s.Addr())
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "--metrics-addr "+s.Addr()) || !strings.Contains(err.Error(), "each tool needs a port of its own") {
		t.Errorf("a port that is taken: %v", err)
	}
	err = New("isolate", "").Serve("192.0.2.1:0")
	if !errors.Is(err, syscall.EADDRNOTAVAIL) || !strings.Contains(err.Error(), "does not have that address") {
		t.Errorf("an address of another machine: %v", err)
	}
}

// Labels from ticks are valid for Prometheus, whatever they contain, and an invalid one does not affect the others.
func TestHostileLabels(t *testing.T) {
	s := serve(t)
	s.Tick(evictTick("n\xff\xfe\x00", "good", "quote\" back\\slash\nnewline", "bad\xff", strings.Repeat("ä", 1<<16), strings.Repeat("ä", 1<<16)+"!", "nul\x00nul"), 0)
	page := scrape(t, s)
	if !utf8.ValidString(page) || len(page) > 200<<10 {
		t.Errorf("the page has %d bytes, UTF-8 %t", len(page), utf8.ValidString(page))
	}
	const node = `node="n` + "\uFFFD\uFFFD" + `"`
	wants(t, page,
		`polder_rule_dry_run{`+node+`,rule="good"} 0`,
		`polder_rule_dry_run{`+node+`,rule="quote\" back\\slash\nnewline"} 0`,
		`polder_rule_dry_run{`+node+`,rule="bad`+"\uFFFD"+`"} 0`,
		`polder_rule_dry_run{`+node+`,rule="nul`+"\uFFFD"+`nul"} 0`,
		`polder_rule_dry_run{`+node+`,rule="`+strings.Repeat("ä", 126)+`…"} 0`, // the two long ones are equal now: the first stays
	)
	if strings.Contains(page, `polder_metrics_left_out_total{tool="evict",what="series"} 0`) {
		t.Error("what was left out was not counted")
	}
}

// A stream with ever new nodes, or a node with ever new rules, has a bounded number of series.
func TestBounds(t *testing.T) {
	n := newNodes("evict")
	now := time.Unix(1e9, 0)
	const more = 50
	for i := range maxNodes + more {
		n.add(evictTick(fmt.Sprint("n", i)), now)
	}
	if len(n.nodes) != maxNodes || n.omittedTicks != more {
		t.Errorf("%d nodes, %v left out; want %d and %d", len(n.nodes), n.omittedTicks, maxNodes, more)
	}
	n.add(evictTick("n0"), now.Add(forgetAfter))
	n.add(evictTick("n1"), now.Add(forgetAfter+2*time.Minute)) // the others have been silent for too long now
	if len(n.nodes) != 2 || n.series != len(n.nodes["n0"].samples)+len(n.nodes["n1"].samples) {
		t.Errorf("%d nodes with %d series are left; want n0 and n1", len(n.nodes), n.series)
	}

	n = newNodes("evict")
	for i := range 3 * maxNodeSeries {
		rules := make([]string, 1+i%7)
		for j := range rules {
			rules[j] = fmt.Sprint("r", i, "-", j)
		}
		n.add(evictTick("n", rules...), now)
	}
	if got := len(n.nodes["n"].samples); got > 300 {
		t.Errorf("%d series of one node after thousands of rules; want the counters bounded", got)
	}
	rules := make([]string, 2*maxNodeSeries)
	for j := range rules {
		rules[j] = fmt.Sprint("r", j)
	}
	n.add(evictTick("n", rules...), now)
	if got := len(n.nodes["n"].samples); got != maxNodeSeries || n.series != got || n.omittedSeries == 0 {
		t.Errorf("%d series of one node, %d counted, %v left out; want %d", got, n.series, n.omittedSeries, maxNodeSeries)
	}
	for i := range maxSeries/maxNodeSeries + 3 {
		n.add(evictTick(fmt.Sprint("m", i), rules...), now)
	}
	if n.series != maxSeries {
		t.Errorf("%d series in all; want %d", n.series, maxSeries)
	}
}

// A node's own ticks never make it forgotten, however rare they are: its counters continue.
func TestRareTicksAreCounted(t *testing.T) {
	n := newNodes("evict")
	now := time.Unix(1e9, 0)
	for i := range 3 {
		n.add(evictTick("n0"), now.Add(time.Duration(i)*2*forgetAfter))
	}
	for _, s := range n.nodes["n0"].samples {
		if s.Name == "polder_ticks_total" && s.Value != 3 {
			t.Errorf("%s is %v; want 3", s.Name, s.Value)
		}
	}
}

// Ticks continue while a client reads, and while a client does not read the response.
func TestScrapesDoNotHoldUpTicks(t *testing.T) {
	s := serve(t)
	for i := range 500 {
		s.Tick(evictTick(fmt.Sprint("n", i), "a", "b", "c"), 0)
	}
	slow, err := net.Dial("tcp", s.Addr()) // it sends a request and never reads
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprint(slow, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
	ctx, stop := context.WithCancel(t.Context())
	read := make(chan string)
	go func() {
		defer close(read)
		for ctx.Err() == nil {
			read <- scrape(t, s)
		}
	}()
	worst, ticks := time.Duration(0), 0
	for scrapes := 0; scrapes < 3 || ticks < 100; {
		select {
		case page := <-read:
			scrapes++
			if !strings.Contains(page, `polder_ticks_total{node="n499"`) {
				t.Error("the page is cut off")
			}
		default:
			begun := time.Now()
			s.Tick(evictTick("n0", "a", "b", "c"), 0)
			worst = max(worst, time.Since(begun))
			ticks++
		}
	}
	stop()
	for range read {
	}
	if worst > writeTimeout/2 { // as if the server waits for a client that does not read
		t.Errorf("the slowest of %d ticks beside the scrapes took %s", ticks, worst)
	}
}

// Only /metrics exists, and only for reading.
func TestOtherRequests(t *testing.T) {
	s := serve(t)
	for request, want := range map[string]int{
		"GET /": 404, "GET /debug/pprof/": 404, "POST /metrics": 405, "DELETE /metrics": 405, "HEAD /metrics": 200,
	} {
		method, path, _ := strings.Cut(request, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr()+path, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %s, want %d", request, response.Status, want)
		}
	}
}

// A client that opens connections and sends nothing uses a bounded number of descriptors, and is disconnected.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var idle []net.Conn
	for range maxConnections {
		c, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle = append(idle, c)
	}
	scrape(t, s) // it waits until one of them is disconnected
	if !slices.ContainsFunc(idle, func(c net.Conn) bool { return hungUp(t, c) }) {
		t.Errorf("a scrape was answered beside %d idle connections; want it to wait for one to end", maxConnections)
	}
	for i, c := range idle {
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("idle connection %d stays: %v", i, err)
		}
	}
}

// hungUp reports whether the other side has closed a connection, without waiting for that.
func hungUp(t *testing.T, c net.Conn) bool {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if cErr := raw.Control(func(fd uintptr) {
		n, _, err = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	}); cErr != nil {
		t.Fatal(cErr)
	}
	return err == nil && n == 0 || errors.Is(err, syscall.ECONNRESET)
}

// Close aborts a response in progress, and frees the port.
func TestClose(t *testing.T) {
	s := serve(t)
	for i := range 3000 {
		s.Tick(evictTick(fmt.Sprint("n", i), "a", "b"), 0)
	}
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
	if _, err := bufio.NewReader(c).ReadByte(); err != nil { // the response has begun
		t.Fatal(err)
	}
	addr := s.Addr()
	begun := time.Now()
	s.Close()
	if took := time.Since(begun); took > writeTimeout/2 { // the time limit of a response
		t.Errorf("Close took %s", took)
	}
	again := New("evict", "")
	if err := again.Serve(addr); err != nil {
		t.Error(err)
	}
	again.Close()
}
