package kube

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// leaseServer has one lease, behind a proxy that has no server for the methods in proxied.
type leaseServer struct {
	lease   string
	proxied atomic.Value // string
}

func (s *leaseServer) RoundTrip(r *http.Request) (*http.Response, error) {
	respond := func(status int, kind, body string) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
		}, nil
	}
	failure := func(code int, reason string) (*http.Response, error) {
		text, err := json.Marshal(Object{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
			"details": Object{"name": "l", "group": Leases.Group, "kind": Leases.Name},
		})
		if err != nil {
			return nil, err
		}
		return respond(code, "application/json", string(text))
	}
	proxied, _ := s.proxied.Load().(string)
	switch {
	case strings.Contains(proxied, r.Method):
		return respond(http.StatusNotFound, "text/plain", "404 page not found")
	case r.Method == http.MethodGet && s.lease == "":
		return failure(http.StatusNotFound, "NotFound")
	case r.Method == http.MethodPost && s.lease != "":
		return failure(http.StatusConflict, "AlreadyExists")
	case r.Method != http.MethodGet:
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		s.lease = string(text)
	}
	return respond(http.StatusOK, "application/json", s.lease)
}

// A proxy that answers for a moment that there is no lease does not end its possession.
func TestLeaseBehindProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		c, err := newClient(&rest.Config{Host: "http://apiserver", Transport: s}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.Compete(t.Context(), Election{Namespace: "n", Name: "l", Identity: "us"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !l.IsHeld() {
			t.Fatalf("not held: %v", l.LastError())
		}
		s.proxied.Store("GET PUT")
		time.Sleep(5 * time.Second)
		s.proxied.Store("")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !l.IsHeld() || l.Err() != nil {
			t.Errorf("lost: %v", l.Err())
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
