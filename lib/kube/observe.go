package kube

import (
	"context"
	"net/http"
)

// observer is the key of a context's function that is told of each of its requests' attempts that got no answer.
type observer struct{}

func observed(ctx context.Context, failed func(context.Context, error)) context.Context {
	return context.WithValue(ctx, observer{}, failed)
}

// observing tells of the attempts: the client itself makes ten of them, each as long as a connection may take, before it
// says a word.
type observing struct{ next http.RoundTripper }

func (o observing) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := o.next.RoundTrip(r)
	if err != nil {
		if failed, ok := r.Context().Value(observer{}).(func(context.Context, error)); ok {
			failed(r.Context(), err)
		}
	}
	return response, err
}

// WrappedRoundTripper lets the client see through to what is wrapped.
func (o observing) WrappedRoundTripper() http.RoundTripper { return o.next }
