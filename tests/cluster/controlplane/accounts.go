package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Namespace is the namespace of the chart's accounts.
const Namespace = "polder-system"

// accounts are the releases of the chart whose accounts a control plane has, by their values.
type accounts struct {
	mu       sync.Mutex
	releases map[string]string
}

// AccountFor makes the chart's service account of a tool (collect, evict, report) or of the fleet controller, with the chart's roles for
// these values ("report.taintNode=true"), waits until the server knows them, and returns the path of a kubeconfig. Each set of values has
// one account, which differs from those of other values. The chart's admission policies are not installed.
func (c *ControlPlane) AccountFor(tool string, values ...string) string {
	c.Helper()
	name := c.Release(values...) + "-" + tool
	question := map[string]string{
		"collect": `"verb":"list","resource":"pods"`,
		"evict":   `"verb":"create","resource":"pods","subresource":"eviction"`,
		"report":  `"verb":"patch","resource":"nodes","subresource":"status"`,
		"centre":  `"verb":"patch","resource":"nodes"`,
	}[tool]
	body := fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview",
		"spec":{"user":"system:serviceaccount:%s:%s","resourceAttributes":{%s}}}`, Namespace, name, question)
	c.Eventually(Soon, "the server knows the roles of "+name, func() string {
		var review struct{ Status struct{ Allowed bool } }
		status, answer := c.API(http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
		if err := json.Unmarshal(answer, &review); err != nil || !review.Status.Allowed {
			return fmt.Sprintf("status %d: %s", status, answer)
		}
		return ""
	})
	return c.KubeconfigFor(Namespace, name)
}

// Release applies the chart's accounts and roles under these values, and returns the release's name, with which their names begin.
func (c *ControlPlane) Release(values ...string) string {
	c.Helper()
	a := &c.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	key := strings.Join(values, ",")
	if name := a.releases[key]; name != "" {
		return name
	}
	name := "polder"
	if len(a.releases) > 0 {
		name = fmt.Sprintf("polder-%d", len(a.releases)+1)
	}
	c.EnsureNamespace(Namespace)
	out, err := renderChart(c.programs, name, append([]string{"centre.enabled=true"}, values...))
	if err != nil {
		c.Fatal(err)
	}
	var kept []string
	for document := range strings.SplitSeq(out, "\n---\n") {
		if ofAccounts.MatchString(document) {
			kept = append(kept, document)
		}
	}
	c.Apply(strings.Join(kept, "\n---\n"))
	if a.releases == nil {
		a.releases = map[string]string{}
	}
	a.releases[key] = name
	return name
}

var ofAccounts = regexp.MustCompile(`(?m)^kind: (Namespace|ServiceAccount|(Cluster)?Role(Binding)?)$`)

func renderChart(programs, release string, values []string) (string, error) {
	chart, err := chartPath()
	if err != nil {
		return "", err
	}
	args := []string{"template", release, chart, "--namespace", Namespace, "--kube-version", "1.36.0"}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	cmd := exec.Command(filepath.Join(programs, "helm"), args...)
	cmd.Env = append(strings.Fields(neverGarbage), "PATH=/usr/bin:/bin", "HOME=/nonexistent")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return string(out), nil
}

// chartPath is the chart's directory in the checkout: a test runs in its package's directory.
func chartPath() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if chart := filepath.Join(dir, "deploy/helm/polder"); exists(filepath.Join(chart, "Chart.yaml")) {
			return chart, nil
		}
	}
	return "", errors.New("find the chart: " + start + " is not in a checkout of the project")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// KubeconfigFor writes a kubeconfig with a new token of a service account, which must exist, and returns its path.
func (c *ControlPlane) KubeconfigFor(namespace, serviceAccount string) string {
	c.Helper()
	// Each call writes another file: another test may be reading its own for the same account.
	f, err := os.CreateTemp(c.dir, namespace+"."+serviceAccount+"-*.kubeconfig")
	if err != nil {
		c.Fatal(err)
	}
	f.Close()
	if err := c.writeKubeconfig(f.Name(), "token: "+c.Token(namespace, serviceAccount)); err != nil {
		c.Fatal(err)
	}
	return f.Name()
}

// Token returns a new token of a service account, valid for an hour.
func (c *ControlPlane) Token(namespace, serviceAccount string) string {
	c.Helper()
	path := fmt.Sprintf("/api/v1/namespaces/%s/serviceaccounts/%s/token", namespace, serviceAccount)
	status, answer := c.API(http.MethodPost, path,
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":3600}}`)
	var request struct{ Status struct{ Token string } }
	if err := json.Unmarshal(answer, &request); status != http.StatusCreated || err != nil || request.Status.Token == "" {
		c.Fatalf("POST %s: status %d: %s", path, status, answer)
	}
	return request.Status.Token
}

// auditPolicy makes the API server log the requests for evictions, and nothing else. It logs them on receipt, so that a test that has
// seen the result of a request finds it in the log.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete]
rules:
- level: Metadata
  verbs: [create]
  resources: [{group: "", resources: [pods/eviction]}]
- level: None
`

// Evictions counts the requests that the API server has received to evict a pod of a namespace, granted or not: one of these pods, if
// some are named.
func (c *ControlPlane) Evictions(namespace string, pods ...string) int {
	c.Helper()
	log, err := os.ReadFile(c.path("audit.log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(log)) {
		var event struct {
			ObjectRef struct{ Namespace, Name, Subresource string }
		}
		of := &event.ObjectRef
		if json.Unmarshal([]byte(line), &event) == nil && of.Namespace == namespace && of.Subresource == "eviction" &&
			(len(pods) == 0 || slices.Contains(pods, of.Name)) {
			n++
		}
	}
	return n
}

// etcdReady asks etcd whether it has a leader.
func (p *Plane) etcdReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // another program that has the port may never answer
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/readyz", p.ports.etcd), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s", resp.Status)
	}
	return nil
}

// Grant gives a service account, which must exist, the chart's cluster role of a tool under these values.
func (c *ControlPlane) Grant(namespace, serviceAccount, tool string, values ...string) {
	c.Helper()
	role := c.Release(values...) + "-" + tool
	c.Kubectl("create", "clusterrolebinding", namespace+"-"+serviceAccount+"-"+role,
		"--clusterrole="+role, "--serviceaccount="+namespace+":"+serviceAccount)
}
