package cluster

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"polder/lib/customconfig"
	"polder/lib/kube"
	"polder/report/object"
)

// apiServer is an API server with one node, n, that offers batch resources, and without the kind CustomNodeResource. Its first answers are
// those of a proxy that has no API server.
type apiServer struct {
	mu      sync.Mutex
	proxied int  // how many answers
	forbids bool // it does not permit the list of CustomNodeResources, which it has
	patches []string
}

const offering = `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "resourceVersion": "1"},
	"status": {"capacity": {"kubernetes.io/batch-cpu": "1k"}, "allocatable": {"kubernetes.io/batch-cpu": "1k"}}}`

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	a.proxied--
	answer := func(status int, text string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
	switch path := r.URL.Path; {
	case a.proxied >= 0:
		http.NotFound(w, r)
	case r.URL.Query().Has("sendInitialEvents"):
		answer(http.StatusUnprocessableEntity, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422}`)
	case r.URL.Query().Has("watch"): // the other requests do not wait for its end
		a.mu.Unlock()
		<-r.Context().Done()
		a.mu.Lock()
	case path == "/apis":
		answer(http.StatusOK, `{"kind": "APIGroupList", "apiVersion": "v1", "groups": []}`)
	case path == "/api/v1/nodes":
		answer(http.StatusOK, `{"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [`+offering+`]}`)
	case path == "/api/v1/nodes/n", path == "/api/v1/nodes/n/status":
		if r.Method == http.MethodPatch {
			a.patches = append(a.patches, path+" "+string(body))
		}
		answer(http.StatusOK, offering)
	case a.forbids && strings.Contains(path, kube.CustomNodeResources.Name):
		answer(http.StatusForbidden, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}`)
	default:
		http.NotFound(w, r)
	}
}

// kubeconfig starts the server and returns its file.
func (a *apiServer) kubeconfig(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("clusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n",
		server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// withdraw runs report --withdraw there.
func (a *apiServer) withdraw(t *testing.T, o *Options) error {
	t.Helper()
	o.kubeconfig, o.Withdraw, o.prefix = a.kubeconfig(t), true, object.Prefix
	s := session(nil)
	if o.AllNodes {
		s.Node = ""
	}
	return o.RunWithdraw(t.Context(), s)
}

// A proxy without an API server has no objects, which does not mean that there is nothing to withdraw.
func TestWithdrawThroughProxy(t *testing.T) {
	a := &apiServer{proxied: 3}
	err := a.withdraw(t, &Options{})
	if err != nil || len(a.patches) != 1 || !strings.Contains(a.patches[0], `"kubernetes.io/batch-cpu":null`) {
		t.Errorf("%v, patches %q; want the withdrawal of batch-cpu", err, a.patches)
	}
}

// Of all nodes, a kind that the cluster does not have, or does not permit, neither hides nor delays the others.
func TestWithdrawAllNodes(t *testing.T) {
	for name, a := range map[string]*apiServer{"without the kind": {}, "forbidden": {forbids: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := a.withdraw(t, &Options{Access: Access{AllNodes: true}})
			if len(a.patches) != 1 {
				t.Errorf("patches %q; want the withdrawal of the node's", a.patches)
			}
			if a.forbids != (err != nil) ||
				err != nil && !(strings.Contains(err.Error(), "withdraw cnr: ") && strings.Contains(err.Error(), permissions)) {
				t.Error(err)
			}
		})
	}
}

// The status of a KatalystCustomConfig is not written where the object or its kind does not exist; a proxy's answer is a failure.
func TestKCCThroughProxy(t *testing.T) {
	a := &apiServer{proxied: 2}
	x, err := openKCC(t.Context(), session(nil), &Access{kubeconfig: a.kubeconfig(t)}, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	j := &kccJob{want: customconfig.Verdict{Namespace: "default", Name: "c", Valid: new(true), Reason: "Normal"}}
	for _, want := range []bool{true, false} {
		if _, err := x.(*registry).write(t.Context(), j); (err != nil) != want {
			t.Errorf("an error %v: %v", want, err)
		}
	}
}
