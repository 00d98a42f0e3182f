package kube

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
)

// server is an API server without pods, as its client's transport: in a test's bubble there is no network.
type server struct {
	// hangs makes it accept requests and never respond; streams makes each watch's response as long as this.
	hangs   atomic.Bool
	streams time.Duration
	// refuses makes it refuse connections.
	refuses atomic.Bool
	lists   atomic.Int64
	// isCompacted makes it accept a watch from the first version and then end it, because it no longer has that version.
	isCompacted atomic.Bool
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.refuses.Load() {
		return nil, syscall.ECONNREFUSED
	}
	if s.hangs.Load() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	respond := func(status int, body io.ReadCloser) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
	}
	q := r.URL.Query()
	switch {
	case q.Has("sendInitialEvents"):
		return respond(http.StatusUnprocessableEntity, io.NopCloser(strings.NewReader(
			`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422}`)))
	case q.Has("watch"):
		if s.isCompacted.Load() && q.Get("resourceVersion") == "1" {
			return respond(http.StatusOK, io.NopCloser(strings.NewReader(
				`{"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure",
					"reason": "Expired", "code": 410}}`)))
		}
		body, end := io.Pipe()
		ended := time.AfterFunc(s.streams, func() { _ = end.Close() })
		context.AfterFunc(r.Context(), func() {
			ended.Stop()
			_ = end.CloseWithError(r.Context().Err())
		})
		return respond(http.StatusOK, body)
	}
	s.lists.Add(1)
	if s.isCompacted.Load() {
		return respond(http.StatusOK, io.NopCloser(strings.NewReader(
			`{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "2"}, "items": [{"metadata": {"name": "new"}}]}`)))
	}
	return respond(http.StatusOK, io.NopCloser(strings.NewReader(
		`{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}`)))
}

func (s *server) watch(ctx context.Context, t *testing.T) *Watch[string] {
	t.Helper()
	// They wait until a millisecond after the last error, which another test has had by the real clock, years after that of a bubble.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	c, err := newClient(&rest.Config{Host: "http://apiserver", Transport: s}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return Start(ctx, c, Selection{Resource: Pods}, time.Now, func(Object) string { return "" })
}

// A server that accepts requests and never responds is noticed when a request has no response for 45 s, and the list is old since that
// request. A watch's response may be silent for longer. When the server responds again, the list is current again.
func TestHangIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait() // for the watch to end
		defer cancel()
		s := &server{streams: 7 * time.Minute}
		began := time.Now()
		w := s.watch(ctx, t)
		at := func(after time.Duration) State {
			time.Sleep(time.Until(began.Add(after)))
			synctest.Wait()
			return w.State()
		}
		if state := at(time.Second); !state.Synced || state.Err != nil {
			t.Fatalf("at first %+v", state)
		}
		s.hangs.Store(true)
		if state := at(s.streams - time.Second); state.Err != nil {
			t.Errorf("a silent stream: %+v", state)
		}
		// The stream ends after its 7 minutes, the next request at once hangs.
		if state := at(s.streams + headersTimeout - time.Second); state.Err != nil {
			t.Errorf("too early: %+v", state)
		}
		state := at(s.streams + headersTimeout + time.Second)
		if state.Err == nil || !strings.Contains(state.Err.Error(), "no response within 45s") {
			t.Fatalf("a server that hangs: %+v", state)
		}
		if since := state.Since.Sub(began); since < s.streams || since > s.streams+2*time.Second {
			t.Errorf("it hangs since %s; want %s", since, s.streams)
		}
		if later := at(s.streams + time.Hour); later.Err == nil || !later.Since.Equal(state.Since) {
			t.Errorf("an hour later: %+v; want the same time", later)
		}
		s.hangs.Store(false)
		if state := at(s.streams + time.Hour + time.Minute); state.Err != nil {
			t.Errorf("a server that responds again: %+v", state)
		}
	})
}

// The first list of a server that hangs is never read, and that has a reason.
func TestHangAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		s := &server{}
		s.hangs.Store(true)
		began := time.Now()
		w := s.watch(ctx, t)
		time.Sleep(headersTimeout + time.Second)
		synctest.Wait()
		state := w.State()
		if state.Synced || state.Err == nil || !strings.Contains(state.Err.Error(), "no response within") || !state.Since.Equal(began) {
			t.Errorf("%+v; want no response within 45s, since %s", state, began)
		}
	})
}

// A server that is back after an outage, and no longer has the version of the list, accepts the watch before it ends it: the list stays
// old, since the same time, until the new one is complete.
func TestListStaysOldUntilTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait() // for the watch to end
		defer cancel()
		s := &server{streams: time.Minute}
		w := s.watch(ctx, t)
		time.Sleep(time.Second)
		synctest.Wait()
		if state := w.State(); !state.Synced || state.Err != nil {
			t.Fatalf("at first: %+v", state)
		}
		s.refuses.Store(true)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		since := w.State().Since
		s.isCompacted.Store(true)
		s.refuses.Store(false)
		for range 10000 {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			state := w.State()
			if len(w.List()) == 1 {
				if state.Err != nil {
					t.Errorf("with the new list: %+v", state)
				}
				return
			}
			if state.Err == nil || !state.Since.Equal(since) {
				t.Fatalf("before the new list: %+v; want an old one since %s", state, since)
			}
		}
		t.Error("no new list")
	})
}

// transport is a function as an [http.RoundTripper].
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A request's own context lives as long as the body is open, ends with the caller's, and ends when the body is closed.
func TestObservedBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures []error
		begin := func(context.Context) func(error) { return func(err error) { failures = append(failures, err) } }
		for name, end := range map[string]func(*http.Response, context.CancelFunc){
			"closed":                  func(r *http.Response, _ context.CancelFunc) { _ = r.Body.Close() },
			"cancelled by the caller": func(_ *http.Response, cancel context.CancelFunc) { cancel() },
		} {
			caller, cancel := context.WithCancel(t.Context())
			var inner context.Context
			o := observing{transport(func(r *http.Request) (*http.Response, error) {
				inner = r.Context()
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			})}
			r, err := http.NewRequestWithContext(withObserver(caller, begin), http.MethodGet, "http://apiserver", nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := o.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * headersTimeout)
			if inner.Err() != nil {
				t.Errorf("%s: the request ended while its body was read: %v", name, inner.Err())
			}
			end(response, cancel)
			if inner.Err() == nil {
				t.Errorf("%s: the request goes on", name)
			}
			_ = response.Body.Close()
			cancel()
		}
		if len(failures) > 0 {
			t.Errorf("failures %v", failures)
		}
	})
}

// A response that comes when the time is over does not count: its body could not be read.
func TestLateResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures []error
		begin := func(context.Context) func(error) { return func(err error) { failures = append(failures, err) } }
		body := &closing{}
		o := observing{transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return &http.Response{StatusCode: http.StatusOK, Body: body}, nil
		})}
		r, err := http.NewRequestWithContext(withObserver(t.Context(), begin), http.MethodGet, "http://apiserver", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := o.RoundTrip(r)
		if response != nil || err == nil || len(failures) != 1 || !body.closed {
			t.Errorf("%v, %v, failures %v, closed %t; want one failure and a closed body", response, err, failures, body.closed)
		}
	})
}

// closing is an empty body that knows whether it was closed.
type closing struct{ closed bool }

func (*closing) Read([]byte) (int, error) { return 0, io.EOF }

func (c *closing) Close() error {
	c.closed = true
	return nil
}
