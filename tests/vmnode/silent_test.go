package vmnode

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"polder/tests/vm/qemu"
	"polder/tests/vmnode/wire"
)

// A machine whose agent no longer responds hangs: the start does not wait for it, and tries again.
func TestSilentAgent(t *testing.T) {
	agent := wire.NewAgent(func(wire.Command) wire.Result { return wire.Result{} })
	var isHanging atomic.Bool
	answered := make(chan struct{}, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isHanging.Load() {
			_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client has given up
			<-r.Context().Done()
			return
		}
		agent.ServeHTTP(w, r)
		select {
		case answered <- struct{}{}:
		default:
		}
	}))
	defer server.Close()
	n := &Node{}
	n.agent.URL, n.agent.Alive = server.URL, func() bool { return true }
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	go n.endIfSilent(ctx, end, 2*time.Second)
	for range 3 {
		<-answered
	}
	if ctx.Err() != nil {
		t.Fatalf("ended while the agent responds: %v", context.Cause(ctx))
	}
	isHanging.Store(true)
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, qemu.ErrHangs) {
		t.Errorf("ended by %v; want %v", cause, qemu.ErrHangs)
	}
}
