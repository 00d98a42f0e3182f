package kube

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// observer is the key of a context's function that is called for each attempt without a response, or with a response of a
// server that is temporarily unavailable.
type observer struct{}

func withObserver(ctx context.Context, failed func(context.Context, error)) context.Context {
	return context.WithValue(ctx, observer{}, failed)
}

// observing reports the attempts: the client itself makes ten of them before it returns, each as long as a connection
// may take or as the server demands to wait.
type observing struct{ next http.RoundTripper }

func (o observing) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := o.next.RoundTrip(r)
	failed, ok := r.Context().Value(observer{}).(func(context.Context, error))
	switch {
	case !ok:
	case err != nil:
		failed(r.Context(), err)
	case response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= 500:
		failed(r.Context(), apierrors.NewGenericServerResponse(response.StatusCode, r.Method, schema.GroupResource{}, "", response.Status,
			0, true))
	}
	return response, err
}

// WrappedRoundTripper gives the client access to the wrapped one.
func (o observing) WrappedRoundTripper() http.RoundTripper { return o.next }
