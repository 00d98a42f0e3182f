package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// bootstrap completes the initial namespaces.
func (p *Plane) bootstrap(ctx context.Context) error {
	for _, namespace := range []string{"default", "kube-system"} {
		if err := p.completeNamespace(ctx, namespace); err != nil {
			return err
		}
	}
	return nil
}

// completeNamespace creates the objects that every pod needs, the service account and the authority's certificate, at once and with or without
// a controller-manager, which takes some seconds for it. The API server creates its own namespaces some time after it reports
// that it is ready.
func (p *Plane) completeNamespace(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("after %s", startLimit))
	defer cancel()
	certificate, err := os.ReadFile(p.ca.path())
	if err != nil {
		return err
	}
	for kind, object := range map[string]any{
		"serviceaccounts": map[string]any{"metadata": map[string]any{"name": "default"}},
		"configmaps": map[string]any{
			"metadata": map[string]any{"name": "kube-root-ca.crt"},
			"data":     map[string]any{"ca.crt": string(certificate)},
		},
	} {
		body, err := json.Marshal(object)
		if err != nil {
			return err
		}
		path := fmt.Sprintf("/api/v1/namespaces/%s/%s", namespace, kind)
		for {
			status, answer, err := p.client.do(ctx, http.MethodPost, path, "application/json", string(body))
			if err == nil && (status == http.StatusCreated || status == http.StatusConflict) {
				break
			}
			// A server without CPU time may also answer that it had too little of it (429 and 500 to 504).
			late := err == nil && (status == http.StatusNotFound || status == http.StatusTooManyRequests || status/100 == 5)
			if !late || ctx.Err() != nil {
				return fmt.Errorf("POST %s: status %d: %s: %w", path, status, answer, errors.Join(err, context.Cause(ctx)))
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

// MakeNamespace creates a namespace that is ready for pods.
func (c *ControlPlane) MakeNamespace(name string) {
	c.Helper()
	c.create("/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": name}})
	if err := c.completeNamespace(context.Background(), name); err != nil {
		c.Fatal(err)
	}
}

// EnsureNamespace is MakeNamespace for a namespace that another test may have created.
func (c *ControlPlane) EnsureNamespace(name string) {
	c.Helper()
	status, answer := c.API(http.MethodPost, "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
	if status != http.StatusCreated && status != http.StatusConflict {
		c.Fatalf("make namespace %s: status %d: %s", name, status, answer)
	}
	if err := c.completeNamespace(context.Background(), name); err != nil {
		c.Fatal(err)
	}
}

// OwnNamespace creates a namespace for this test alone, with the test's name, and returns its name. Its pods end with the test.
func (c *ControlPlane) OwnNamespace() string {
	c.Helper()
	base := c.OwnName()
	for i := 1; ; i++ {
		name := base
		if i > 1 { // left by an earlier run of the test (-count): only the controller-manager ends namespaces
			name = fmt.Sprintf("%s-%d", base, i)
		}
		status, answer := c.API(http.MethodPost, "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		if status == http.StatusConflict {
			continue
		}
		if status != http.StatusCreated {
			c.Fatalf("make namespace %s: status %d: %s", name, status, answer)
		}
		if err := c.completeNamespace(context.Background(), name); err != nil {
			c.Fatal(err)
		}
		c.atEndOfShared(func() {
			c.API(http.MethodDelete, "/api/v1/namespaces/"+name+"/pods?gracePeriodSeconds=0", "")
			c.API(http.MethodDelete, "/api/v1/namespaces/"+name, "")
		})
		return name
	}
}

// OwnName is the test's name in the form of object names: "TestPods/first" is "pods-first".
func (c *ControlPlane) OwnName() string {
	return strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(strings.TrimPrefix(c.Name(), "Test")))
}

// MakeNode creates a node without a kubelet, ready and open to the scheduler. Further resources are pairs of a name
// and a quantity. In a shared control plane, it is deleted at the end of the test.
func (c *ControlPlane) MakeNode(name, cpu, memory string, more ...string) {
	c.Helper()
	resources := map[string]string{"cpu": cpu, "memory": memory, "pods": "110"}
	for i := 0; i+1 < len(more); i += 2 {
		resources[more[i]] = more[i+1]
	}
	c.create("/api/v1/nodes", map[string]any{"metadata": map[string]any{
		"name":   name,
		"labels": map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
	}})
	c.atEndOfShared(func() { c.API(http.MethodDelete, "/api/v1/nodes/"+name, "") })
	now := time.Now().UTC().Format(time.RFC3339)
	c.patch("/api/v1/nodes/"+name+"/status", map[string]any{"status": map[string]any{
		"capacity": resources, "allocatable": resources,
		"conditions": []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "MadeByHand", "message": "by a test",
			"lastHeartbeatTime": now, "lastTransitionTime": now,
		}},
	}})
	c.Untaint(name)
}

// Untaint removes the taint that every new node has until the controller-manager, which may not run, sees it ready.
func (c *ControlPlane) Untaint(node string) {
	c.Helper()
	path := "/api/v1/nodes/" + node
	c.Eventually(startLimit, "node "+node+" has no taint of a new node", func() string {
		var n struct {
			Metadata struct{ ResourceVersion string }
			Spec     struct{ Taints []map[string]any }
		}
		c.Get(path, &n)
		kept := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(taint map[string]any) bool { return taint["key"] == "node.kubernetes.io/not-ready" })
		if len(kept) == len(n.Spec.Taints) {
			return ""
		}
		body, err := json.Marshal(map[string]any{ // the resourceVersion guards against other writers
			"metadata": map[string]any{"resourceVersion": n.Metadata.ResourceVersion},
			"spec":     map[string]any{"taints": kept},
		})
		if err != nil {
			c.Fatal(err)
		}
		if status, answer := c.API(http.MethodPatch, path, string(body)); status != http.StatusOK {
			return string(answer)
		}
		return ""
	})
}

// SetPodReady writes a pod's status as its kubelet would when all its containers run.
func (c *ControlPlane) SetPodReady(namespace, name string) {
	c.Helper()
	var pod struct {
		Spec struct {
			Containers []struct{ Name, Image string }
		}
	}
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s", namespace, name)
	c.Get(path, &pod)
	var containers []any
	for i, container := range pod.Spec.Containers {
		containers = append(containers, map[string]any{
			"name": container.Name, "image": container.Image, "imageID": "", "ready": true, "started": true, "restartCount": 0,
			"containerID": fmt.Sprintf("containerd://%064x", i+1), "state": map[string]any{"running": map[string]any{}},
		})
	}
	var conditions []any
	for _, condition := range []string{"Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		conditions = append(conditions, map[string]any{"type": condition, "status": "True"})
	}
	c.patch(path+"/status", map[string]any{"status": map[string]any{"phase": "Running", "conditions": conditions, "containerStatuses": containers}})
}

// Evict posts to a pod's eviction subresource, and returns the response's status and body.
func (c *ControlPlane) Evict(namespace, pod string) (int, []byte) {
	c.Helper()
	return c.API(http.MethodPost, fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/eviction", namespace, pod),
		fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}}`, pod, namespace))
}

func (c *ControlPlane) create(path string, object any) {
	c.Helper()
	c.send(http.MethodPost, path, object)
}

func (c *ControlPlane) patch(path string, object any) {
	c.Helper()
	c.send(http.MethodPatch, path, object)
}

func (c *ControlPlane) send(method, path string, object any) {
	c.Helper()
	body, err := json.Marshal(object)
	if err != nil {
		c.Fatal(err)
	}
	if status, answer := c.API(method, path, string(body)); status/100 != 2 {
		c.Fatalf("%s %s: status %d: %s", method, path, status, answer)
	}
}
