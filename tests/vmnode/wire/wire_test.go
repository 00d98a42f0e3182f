package wire

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// service is an agent behind an unreliable network, and its client.
func service(t *testing.T, agent *Agent, network func(n int64, w http.ResponseWriter, r *http.Request)) *Client {
	t.Helper()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { network(requests.Add(1), w, r) }))
	t.Cleanup(server.Close)
	return &Client{URL: server.URL, Alive: func() bool { return true }, try: 50 * time.Millisecond}
}

// counted is an agent whose commands print how many have run.
func counted() (*Agent, *atomic.Int64) {
	runs := new(atomic.Int64)
	return NewAgent(func(Command) Result { return Result{Output: []byte(strconv.FormatInt(runs.Add(1), 10))} }), runs
}

// A response that is lost, or cut short, costs one more request, and the command runs once.
func TestLostAnswer(t *testing.T) {
	agent, runs := counted()
	c := service(t, agent, func(n int64, w http.ResponseWriter, r *http.Request) {
		switch n {
		case 1: // the agent accepts the request; its response is lost
			agent.ServeHTTP(httptest.NewRecorder(), r)
			<-r.Context().Done()
		case 2:
			agent.ServeHTTP(httptest.NewRecorder(), r)
			_, _ = w.Write([]byte(`{"status":0,"outp`))
		case 3:
			agent.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler) // the connection is reset
		default:
			agent.ServeHTTP(w, r)
		}
	})
	for want := range int64(2) {
		r, err := c.Run(t.Context(), "", nil)
		if err != nil || string(r.Output) != strconv.FormatInt(want+1, 10) || runs.Load() != want+1 {
			t.Fatalf("%+v, %v after %d runs; want the result of run %d", r, err, runs.Load(), want+1)
		}
	}
}

// The client waits for a command that takes longer than a response may, and it runs once.
func TestLongCommand(t *testing.T) {
	end := make(chan struct{})
	var runs atomic.Int64
	agent := NewAgent(func(Command) Result { runs.Add(1); <-end; return Result{Status: 3} })
	agent.answer = time.Millisecond
	c := service(t, agent, func(n int64, w http.ResponseWriter, r *http.Request) {
		if n == 4 {
			close(end)
		}
		agent.ServeHTTP(w, r)
	})
	if r, err := c.Run(t.Context(), "", nil); err != nil || r.Status != 3 || runs.Load() != 1 {
		t.Errorf("%+v, %v after %d runs", r, err, runs.Load())
	}
}

// The client does not ask a machine that has ended, and stops when its caller does.
func TestNoAnswer(t *testing.T) {
	c := service(t, nil, func(int64, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	c.Alive = func() bool { return false }
	if _, err := c.Run(t.Context(), "", nil); err == nil {
		t.Error("a machine that has ended returned a result")
	}
	c.Alive = func() bool { return true }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Run(ctx, "", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want the caller's cancellation", err)
	}
}

// The agent keeps the last results only.
func TestKeptResults(t *testing.T) {
	agent, _ := counted()
	for n := range int64(kept + 5) {
		<-agent.start(Command{Number: n}).done
	}
	last := agent.start(Command{Number: kept + 5})
	<-last.done
	agent.mu.Lock()
	defer agent.mu.Unlock()
	if known := len(agent.commands); known != kept || agent.commands[kept+5] != last || agent.commands[0] != nil {
		t.Errorf("%d commands are known; want the last %d", known, kept)
	}
}
