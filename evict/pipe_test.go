package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"sync"
	"testing"
	"time"

	"polder/lib/stage"
	"polder/lib/tick"
	"polder/lib/tick/ticktest"
)

// pipe is a running evict that is fed a tick at a time.
type pipe struct {
	t    *testing.T
	in   *io.PipeWriter
	out  *json.Decoder
	log  *syncBuffer
	end  chan int
	stop context.CancelFunc
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func startEvict(t *testing.T, args ...string) *pipe {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	p := &pipe{t: t, in: inW, out: json.NewDecoder(outR), log: &syncBuffer{}, end: make(chan int, 1), stop: stop}
	go func() {
		status := command().Execute(ctx, stageEnv(append([]string{"evict", "--max-age", "0", "--node", "n"}, args...), inR, outW, p.log))
		outW.Close()
		inR.Close()
		p.end <- status
	}()
	t.Cleanup(stop)
	return p
}

// put sends a tick and returns the section that comes back.
func (p *pipe) put(x *tick.Tick) *tick.Eviction {
	p.t.Helper()
	line, err := tick.Marshal(x)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		p.t.Fatalf("write: %v; log:\n%s", err, p.log)
	}
	var raw json.RawMessage
	if err := p.out.Decode(&raw); err != nil {
		p.t.Fatalf("read: %v; log:\n%s", err, p.log)
	}
	if err := ticktest.Validate(raw); err != nil {
		p.t.Errorf("the output breaks the schema: %v\n%s", err, raw)
	}
	var back tick.Tick
	if err := tick.Unmarshal(raw, &back); err != nil {
		p.t.Fatal(err)
	}
	return back.Eviction
}

func (p *pipe) close() int {
	p.in.Close()
	return <-p.end
}

// tickEvery is the time between two ticks, on the ticks' clock and about that on the wall's.
const tickEvery = 20 * time.Millisecond

// until puts ticks until the section says what is wanted of a pod.
func (p *pipe) until(at *int, make func(int) *tick.Tick, uid, state string) *tick.Eviction {
	p.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		*at++
		e := p.put(make(*at))
		if states(e)[uid] == state {
			return e
		}
		time.Sleep(tickEvery)
	}
	p.t.Fatalf("%s never was %s; log:\n%s", uid, state, p.log)
	return nil
}

func states(e *tick.Eviction) map[string]string {
	m := map[string]string{}
	for _, x := range e.Evictions {
		m[x.UID] = x.State
	}
	return m
}

func stageEnv(args []string, in io.Reader, out, log io.Writer) stage.Env {
	return stage.Env{Args: args, In: in, Out: out, Err: log, Getenv: func(string) string { return "" }, Now: time.Now}
}
