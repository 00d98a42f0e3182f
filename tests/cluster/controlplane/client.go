package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// answerLimit ends a request that gets no answer. A server on a busy machine may take a minute.
const answerLimit = 3 * time.Minute

// client uses plain HTTP, because tests check the API itself.
type client struct {
	http   *http.Client
	server string
	token  string
}

func newClient(server string, ca *authority, token string) (*client, error) {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	return &client{http: &http.Client{Transport: transport, Timeout: answerLimit}, server: server, token: token}, nil
}

// do sends body, as JSON unless contentType is set, and returns the response's status and body.
func (c *client) do(ctx context.Context, method, path, contentType, body string) (int, []byte, error) {
	header := http.Header{}
	if body != "" {
		header.Set("Content-Type", contentType)
	}
	return c.send(ctx, method, path, body, header)
}

// send sends a request with a header, and returns the response's status and body.
func (c *client) send(ctx context.Context, method, path, body string, header http.Header) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header = header
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// must is do with an error for every status but success.
func (c *client) must(ctx context.Context, method, path, contentType, body string) ([]byte, error) {
	status, answer, err := c.do(ctx, method, path, contentType, body)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("%s %s: status %d: %s", method, path, status, bytes.TrimSpace(answer))
	}
	return answer, err
}

func (c *client) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := c.must(ctx, http.MethodGet, "/readyz", "", "")
	return err
}

// API sends a request as the administrator and returns the answer's status and body, whatever the status. The body is JSON,
// for PATCH a merge patch. It reads again while the server wants requests later: after a change of its definitions the server answers
// so until it has read a kind's objects again ("storage is (re)initializing").
func (c *ControlPlane) API(method, path, body string) (int, []byte) {
	c.Helper()
	for deadline := time.Now().Add(startLimit); ; time.Sleep(pollInterval) {
		status, answer, err := c.TryAPI(context.Background(), method, path, body)
		if err != nil {
			c.Fatalf("%s %s: %v", method, path, err)
		}
		if method != http.MethodGet || status != http.StatusTooManyRequests || time.Now().After(deadline) {
			return status, answer
		}
	}
}

// TryAPI is API for callers that handle failure: for goroutines, which must not end a test.
func (c *ControlPlane) TryAPI(ctx context.Context, method, path, body string) (int, []byte, error) {
	contentType := "application/json"
	if method == http.MethodPatch {
		contentType = "application/merge-patch+json"
	}
	return c.client.do(ctx, method, path, contentType, body)
}

// Get reads the object at path into value, as encoding/json does.
func (c *ControlPlane) Get(path string, value any) {
	c.Helper()
	status, answer := c.API(http.MethodGet, path, "")
	if status != http.StatusOK {
		c.Fatalf("GET %s: status %d: %s", path, status, answer)
	}
	if err := json.Unmarshal(answer, value); err != nil {
		c.Fatalf("GET %s: %v", path, err)
	}
}

// Kubectl runs the real kubectl as the administrator, and returns its output without white space around it.
func (c *ControlPlane) Kubectl(args ...string) string {
	c.Helper()
	out, err := c.TryKubectl("", args...)
	if err != nil {
		c.Fatal(err)
	}
	return out
}

// TryKubectl is Kubectl with standard input, for callers that handle failure.
func (c *ControlPlane) TryKubectl(stdin string, args ...string) (string, error) {
	kubectls.Add(1)
	cmd := c.KubectlCommand(context.Background(), args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return strings.TrimSpace(out.String()), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	return strings.TrimSpace(out.String()), nil
}

// KubectlCommand is kubectl as the administrator, not started yet.
func (p *Plane) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(p.programs, "kubectl"), args...)
	// kubectl caches the server's API lists under $HOME; the cache must be this server's.
	cmd.Env = append(strings.Fields(neverGarbage), "PATH=/usr/bin:/bin", "HOME="+p.dir, "KUBECONFIG="+p.Kubeconfig())
	return cmd
}

// Apply applies YAML by server-side apply.
func (c *ControlPlane) Apply(yaml string) {
	c.Helper()
	if _, err := c.TryKubectl(yaml, "apply", "--server-side", "-f", "-"); err != nil {
		c.Fatal(err)
	}
}

// ApplyFile applies a file or a directory of them.
func (c *ControlPlane) ApplyFile(path string) {
	c.Helper()
	c.Kubectl("apply", "--server-side", "-f", path)
}

// Soon is a limit for what takes seconds on an idle machine: a wait that succeeds never takes longer for it.
const Soon = 5 * time.Minute

// pollInterval is how often Eventually polls: a request to the API server takes a millisecond or two. A longer poll, such as of hundreds
// of objects, takes CPU that the awaited work may need: after it Eventually waits for the same time, and for twice that time after
// kubectl, which takes a hundred times as much.
const (
	pollInterval = 25 * time.Millisecond
	mostRest     = 2 * time.Second
)

// kubectls counts the calls of kubectl by this process.
var kubectls atomic.Int64

// rest is how long to wait until the next poll. The count includes all parallel tests; the calls of others lengthen it to no more
// than twice the poll's own time.
func rest(before int64, took time.Duration) time.Duration {
	if kubectls.Load() != before {
		took *= 2
	}
	return min(max(pollInterval, took), mostRest)
}

// Eventually waits until condition returns "", and fails with its last result. With a limit of 0 it has to hold now.
func (c *ControlPlane) Eventually(limit time.Duration, what string, condition func() string) {
	c.Helper()
	Eventually(c.TB, limit, what, condition)
}

// Eventually is the same without a control plane.
func Eventually(t testing.TB, limit time.Duration, what string, condition func() string) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; {
		before, begun := kubectls.Load(), time.Now()
		lacking := condition()
		if lacking == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s: %s", limit, what, lacking)
		}
		time.Sleep(rest(before, time.Since(begun)))
	}
}
