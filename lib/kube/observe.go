package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// observer is the key of a context's [beginning].
type observer struct{}

// beginning is called as each attempt begins. The function that it returns is called if the attempt has no response in time, or the
// response of a server that is temporarily unavailable.
type beginning func(context.Context) (failed func(error))

func withObserver(ctx context.Context, begin beginning) context.Context {
	return context.WithValue(ctx, observer{}, begin)
}

// headersTimeout bounds the time until a response begins, as the client's pings bound the silence of a connection: a server that accepts
// requests and never responds still answers pings, or a proxy before it does. How long a response takes has no bound: a watch's may
// be silent for minutes.
const headersTimeout = 45 * time.Second

var errNoHeaders = fmt.Errorf("no response within %s", headersTimeout)

// observing reports the attempts: the client itself makes ten of them before it returns, each as long as a connection
// may take or as the server demands to wait. It ends an observed attempt that has no response in time.
type observing struct{ next http.RoundTripper }

func (o observing) RoundTrip(r *http.Request) (*http.Response, error) {
	if isEviction(r) {
		return withoutRetry(o.next.RoundTrip(r))
	}
	begin, ok := r.Context().Value(observer{}).(beginning)
	if !ok {
		return o.next.RoundTrip(r)
	}
	failed := begin(r.Context())
	ctx, cancel := context.WithCancel(r.Context())
	recorded := make(chan struct{})
	timer := time.AfterFunc(headersTimeout, func() {
		defer close(recorded)
		failed(errNoHeaders) // before the request has ended, which may take time too
		cancel()
	})
	response, err := o.next.RoundTrip(r.WithContext(ctx))
	if !timer.Stop() { // a response that comes just then is of no use, because reading it is cancelled
		<-recorded
		if err == nil {
			_ = response.Body.Close()
		}
		return nil, errNoHeaders
	}
	if err != nil {
		cancel()
		failed(err)
		return response, err
	}
	if response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= 500 {
		failed(apierrors.NewGenericServerResponse(response.StatusCode, r.Method, schema.GroupResource{}, "", response.Status, 0, true))
	}
	response.Body = &cancelledBody{response.Body, cancel}
	return response, nil
}

func isEviction(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/eviction")
}

// withoutRetry removes the header Retry-After from a response that refuses an eviction: the client would wait and repeat the request until
// its timeout, and the caller would not learn that a disruption budget is the reason. [RetryAfter] finds the time in the body.
func withoutRetry(response *http.Response, err error) (*http.Response, error) {
	if err == nil && response.StatusCode == http.StatusTooManyRequests {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// cancelledBody is a response's body whose end releases the request's context. Until then it ends with the caller's context.
type cancelledBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *cancelledBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel()
	return err
}

// WrappedRoundTripper gives the client access to the wrapped one.
func (o observing) WrappedRoundTripper() http.RoundTripper { return o.next }
