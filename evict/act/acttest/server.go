// Package acttest has an API server for tests, which knows only pods and their eviction, and accepts all events.
package acttest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Server is an API server on loopback.
type Server struct {
	// Kubeconfig is the path of a file that names the server.
	Kubeconfig string

	mu       sync.Mutex
	requests []string
}

// Start starts a server until the test ends. Answer answers the requests about pods.
func Start(t *testing.T, answer http.HandlerFunc) *Server {
	t.Helper()
	s := new(Server)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/events.k8s.io/") {
			write(w, http.StatusCreated, map[string]any{"apiVersion": "events.k8s.io/v1", "kind": "Event"})
			return
		}
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	s.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],`+
		`"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{}}]}`, server.URL)
	if err := os.WriteFile(s.Kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// Changes returns the requests so far that evict or delete a pod, as "POST /api/v1/namespaces/default/pods/large/eviction".
func (s *Server) Changes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(r string) bool { return strings.HasPrefix(r, http.MethodGet+" ") })
}

// Accept accepts an eviction or a deletion.
func Accept(w http.ResponseWriter) {
	write(w, http.StatusCreated, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Success", "code": http.StatusCreated})
}

// NotFound says that the request's pod does not exist, as the API server does.
func NotFound(w http.ResponseWriter, r *http.Request) {
	const podInPath = 6 // after /api/v1/namespaces/NAMESPACE/pods
	name := strings.Split(r.URL.Path, "/")[podInPath]
	write(w, http.StatusNotFound, map[string]any{
		"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": http.StatusNotFound, "reason": "NotFound",
		"message": fmt.Sprintf("pods %q not found", name), "details": map[string]any{"name": name, "kind": "pods"},
	})
}

// Pod returns a pod that exists.
func Pod(w http.ResponseWriter, uid string) {
	write(w, http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"uid": uid}})
}

func write(w http.ResponseWriter, code int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client has gone if this fails
}
