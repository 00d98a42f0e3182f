package kube

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
)

// answers are a server's answers by their paths: a status and, where that is not a plain text, JSON.
type answers map[string]string

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body, kind := http.StatusNotFound, "404 page not found\n", "text/plain"
	switch text := a[r.URL.Path]; {
	case r.URL.Query().Has("sendInitialEvents") && text != "":
		status, kind = http.StatusUnprocessableEntity, "application/json"
		body = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422}`
	case r.URL.Query().Has("watch") && text != "":
		select { // a stream without an event
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(headersTimeout / 2):
		}
		status, body, kind = http.StatusOK, "", "application/json"
	case strings.HasPrefix(text, "403 "):
		status, body, kind = http.StatusForbidden, text[4:], "application/json"
	case strings.HasPrefix(text, "404 "):
		body, kind = text[4:], "application/json"
	case text != "":
		status, body, kind = http.StatusOK, text, "application/json"
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, nil
}

const (
	objectPath = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics/n"
	groupsNone = `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [
		{"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}]}]}`
	groupsOurs = `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [
		{"name": "slo.koordinator.sh", "versions": [{"groupVersion": "slo.koordinator.sh/v1alpha1", "version": "v1alpha1"}]}]}`
	versionPath = "/apis/slo.koordinator.sh/v1alpha1"
	kindsOther  = `{"kind": "APIResourceList", "groupVersion": "slo.koordinator.sh/v1alpha1", "resources": [{"name": "nodeslos"}]}`
	kindsOurs   = `{"kind": "APIResourceList", "groupVersion": "slo.koordinator.sh/v1alpha1", "resources": [{"name": "nodemetrics"}]}`
	forbidden   = `403 {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}`
	noObject    = `404 {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
		"details": {"name": "n", "group": "slo.koordinator.sh", "kind": "nodemetrics"}}`
)

// A 404 without a Status object means absence only where the server's list of kinds says so.
func TestIsAbsent(t *testing.T) {
	for name, tt := range map[string]struct {
		answers answers
		want    bool
	}{
		"the object is missing":      {answers{objectPath: noObject}, true},
		"a proxy without a server":   {answers{}, false},
		"another group":              {answers{"/apis": groupsNone}, true},
		"another kind":               {answers{"/apis": groupsOurs, versionPath: kindsOther}, true},
		"the kind is served":         {answers{"/apis": groupsOurs, versionPath: kindsOurs}, false},
		"the group's list is away":   {answers{"/apis": groupsOurs}, false},
		"a list that is forbidden":   {answers{"/apis": forbidden}, true},
		"a page for every path":      {answers{"/apis": `<html>`}, false},
		"an object for every path":   {answers{"/apis": `{}`}, false},
		"there is such an object":    {answers{objectPath: `{"kind": "NodeMetric", "apiVersion": "slo.koordinator.sh/v1alpha1"}`}, false},
		"the server may not be read": {answers{objectPath: forbidden}, false},
	} {
		c, err := newClient(&rest.Config{Host: "http://apiserver", Transport: tt.answers}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Get(t.Context(), NodeMetrics, "", "n")
		if got := c.IsAbsent(t.Context(), NodeMetrics, err); got != tt.want {
			t.Errorf("%s (%v): absent %t", name, err, got)
		}
	}
}

// gate passes requests to a server, or answers in its place that there is nothing.
type gate struct {
	server answers
	closed atomic.Bool
}

func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if g.closed.Load() {
		return answers{}.RoundTrip(r)
	}
	return g.server.RoundTrip(r)
}

// A watch of an optional kind takes a proxy's 404 for no answer, however long: its list stays, and is old. A kind that the server does
// not have, by its own list, is absent.
func TestOptionalKindBehindProxy(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	for name, tt := range map[string]struct {
		server answers
		want   int // the objects of the list
		absent bool
	}{
		"a kind with an object": {answers{versionPath + "/nodemetrics": `{"kind": "NodeMetricList", "apiVersion": "slo.koordinator.sh/v1alpha1",
			"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "n"}}]}`}, 1, false},
		"no such kind": {answers{"/apis": groupsNone}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{server: tt.server}
				c, err := newClient(&rest.Config{Host: "http://apiserver", Transport: g}, Options{})
				if err != nil {
					t.Fatal(err)
				}
				s := Selection{Resource: NodeMetrics, RetryUnknown: time.Minute}
				g.closed.Store(true)
				w := Start(t.Context(), c, s, time.Now, func(Object) string { return "" })
				expect := func(what string, after time.Duration, synced, absent, failed bool, objects int) {
					t.Helper()
					time.Sleep(after)
					synctest.Wait()
					x := w.State()
					if x.Synced != synced || x.Absent != absent || (x.Err != nil) != failed || len(w.List()) != objects {
						t.Errorf("%s: %+v with %d objects", what, x, len(w.List()))
					}
				}
				expect("a proxy alone", time.Minute, false, false, true, 0)
				g.closed.Store(false)
				expect("a server", 2*time.Minute, true, tt.absent, false, tt.want)
				g.closed.Store(true)
				expect("a proxy again", 10*time.Minute, true, false, true, tt.want)
				g.closed.Store(false)
				expect("a server again", 2*time.Minute, true, tt.absent, false, tt.want)
			})
		})
	}
}
