package engine

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"testing"
	"time"

	"polder/lib/stage"
	"polder/lib/tick"
	"polder/lib/tick/ticktest"
	"polder/tests/await"
)

// pipe is a running evict that gets one tick at a time.
type pipe struct {
	t    *testing.T
	in   *io.PipeWriter
	out  *json.Decoder
	log  *await.Log
	end  chan int
	stop context.CancelFunc
}

// waitTimeout is the tests' timeout: they check what happens, not how fast a busy machine does it.
const waitTimeout = 3 * time.Minute

func startEvict(t *testing.T, args ...string) *pipe {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	p := &pipe{t: t, in: inW, out: json.NewDecoder(outR), log: &await.Log{}, end: make(chan int, 1), stop: stop}
	go func() {
		status := command().Execute(ctx, stageEnv(append([]string{"evict", "--max-age", "0", "--node", "n"}, args...), inR, outW, p.log))
		outW.Close()
		inR.Close()
		p.end <- status
	}()
	t.Cleanup(stop)
	return p
}

// put sends a tick and returns evict's section of it.
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

// tickEvery is the time between two ticks, on the ticks' clock.
const tickEvery = 20 * time.Millisecond

// until puts ticks until the section has the desired state of a pod.
func (p *pipe) until(at *int, makeTick func(int) *tick.Tick, uid, state string) *tick.Eviction {
	p.t.Helper()
	var e *tick.Eviction
	await.Until(p.t, waitTimeout, uid+" is "+state, func() string {
		*at++
		if e = p.put(makeTick(*at)); states(e)[uid] == state {
			return ""
		}
		return "the log is:\n" + p.log.String()
	})
	return e
}

func states(e *tick.Eviction) map[string]string {
	m := map[string]string{}
	for _, x := range e.Evictions {
		m[x.UID] = x.State
	}
	return m
}

// stageEnv makes the reclaimed resources' rule act at the first tick: most tests that need an eviction use it.
func stageEnv(args []string, in io.Reader, out, log io.Writer) stage.Env {
	if args = slices.Clone(args); !slices.Contains(args, "--reclaimed-tolerance") {
		args = slices.Insert(args, 1, "--reclaimed-tolerance", "0s")
	}
	return stage.Env{Args: args, In: in, Out: out, Err: log, Getenv: func(string) string { return "" }, Now: time.Now}
}
