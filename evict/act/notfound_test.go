package act

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"polder/evict/act/acttest"
	"polder/lib/kube"
	"polder/lib/tick"
)

// clusterAt returns the actions at an API server.
func clusterAt(t *testing.T, s *acttest.Server) *Cluster {
	t.Helper()
	client, err := kube.Open(kube.Options{Kubeconfig: s.Kubeconfig, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Client: client, Events: NewEvents(client, "n", slog.New(slog.DiscardHandler), time.Now)}
	t.Cleanup(c.Events.Close)
	return c
}

// Only the API server itself knows that a pod has ended. A proxy in front of it that has no API server may answer 404 to everything.
func TestEndedByTheServersWord(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404`
	text := func(contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, body)
		}
	}
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		want   bool
	}{
		{"the pod is missing", acttest.NotFound, true},
		{"another pod has its name", func(w http.ResponseWriter, _ *http.Request) { acttest.Pod(w, "v") }, true},
		{"the pod exists", func(w http.ResponseWriter, _ *http.Request) { acttest.Pod(w, "u") }, false},
		{"a proxy's text", text("text/plain; charset=utf-8", "404 page not found\n"), false},
		{"a proxy's JSON", text("application/json", `{"error":"no backend"}`), false},
		{"a Status of nothing", text("application/json", status+`}`), false},
		{"a Status of its namespace", text("application/json", status+`,"details":{"name":"p","kind":"namespaces"}}`), false},
	} {
		c := clusterAt(t, acttest.Start(t, tt.answer))
		ended, _, err := c.ended(t.Context(), &tick.PodEviction{UID: "u", Namespace: "default", Name: "p"})
		if ended != tt.want || ended && err != nil {
			t.Errorf("%s: ended %t, %v; want %t", tt.name, ended, err, tt.want)
		}
	}
}

// A request that a proxy answers with 404 is repeated until the API server answers.
func TestProxyNotFoundIsRepeated(t *testing.T) {
	requests := 0
	s := acttest.Start(t, func(w http.ResponseWriter, r *http.Request) {
		switch requests++; { // one at a time
		case requests <= 2: // the eviction, and the check whether the pod has ended
			http.NotFound(w, r)
		case r.Method == http.MethodPost:
			acttest.Accept(w)
		default:
			acttest.NotFound(w, r)
		}
	})
	var reported []string
	o := Order{Eviction: tick.PodEviction{UID: "u", Namespace: "default", Name: "p"}, Timeout: time.Minute}
	err := clusterAt(t, s).Evict(t.Context(), o, func(state string, _ error) { reported = append(reported, state) })
	if want := []string{tick.StateRequested, tick.StateCreated}; err != nil || !slices.Equal(reported, want) || len(s.Changes()) != 2 {
		t.Errorf("Evict = %v, reported %v, requests %v; want %v, and two requests", err, reported, s.Changes(), want)
	}
}

// The error says whether the API server has answered.
func TestErrorNamesARefusal(t *testing.T) {
	for want, err := range map[string]error{
		"refused by the API server for 30s: not this one":                apierrors.NewTooManyRequests("not this one", 0),
		"refused by the API server for 30s: a webhook is away":           apierrors.NewServiceUnavailable("a webhook is away"),
		`no answer from the API server for 30s: Post "": unexpected EOF`: &url.Error{Op: "Post", Err: io.ErrUnexpectedEOF},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, got := new(Cluster).request(t.Context(), Order{}, func(string, error) {}, func(context.Context) error { return err })
			if got == nil || !strings.HasPrefix(got.Error(), want) {
				t.Errorf("request = %v; want %q", got, want)
			}
		})
	}
}
