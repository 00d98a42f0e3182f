// Package kube tests lib/kube on the real API.
package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/lib/kube"
	"polder/tests/cluster/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}, nil) }

func open(t *testing.T, kubeconfig string) *kube.Client {
	t.Helper()
	client, err := kube.Open(kube.Options{Kubeconfig: kubeconfig, UserAgent: "test", Timeout: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

var configMaps = kube.Resource{Version: "v1", Name: "configmaps"}

func configMap(namespace, name, value string) kube.Object {
	return kube.Object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": kube.Object{"name": name, "namespace": namespace}, "data": kube.Object{"key": value}}
}

// valueOf is what this test's watches keep of a config map.
func valueOf(o kube.Object) string {
	data, _ := o["data"].(map[string]any)
	meta, _ := o["metadata"].(map[string]any)
	return fmt.Sprint(meta["name"], "=", data["key"])
}

func sorted(list []string) string {
	slices.Sort(list)
	return strings.Join(list, " ")
}

// A budget that its controller has not counted yet refuses an eviction for 10 seconds. That is an answer to the request; the client must
// not repeat it by itself.
func TestEvictionRefused(t *testing.T) {
	t.Parallel()
	c := controlplane.Shared(t)
	ctx, namespace := t.Context(), c.OwnNamespace()
	client := open(t, c.Kubeconfig())
	must := func(_ kube.Object, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	meta := kube.Object{"name": "kept", "namespace": namespace, "labels": kube.Object{"app": "kept"}}
	must(client.Create(ctx, kube.Pods, namespace, kube.Object{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": kube.Object{
		"nodeName": c.OwnName(), "containers": []any{kube.Object{"name": "c", "image": "none"}},
	}}))
	must(client.Patch(ctx, kube.Pods, namespace, "kept", kube.MergePatch, []byte(`{"status":{"phase":"Running"}}`), "test", "status"))
	budgets := kube.Resource{Group: "policy", Version: "v1", Name: "poddisruptionbudgets"}
	must(client.Create(ctx, budgets, namespace, kube.Object{
		"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta,
		"spec": kube.Object{"minAvailable": int64(1), "selector": kube.Object{"matchLabels": kube.Object{"app": "kept"}}},
	}))
	short, cancel := context.WithTimeout(ctx, 30*time.Second) // repeated requests would take 100 seconds
	defer cancel()
	eviction := kube.Object{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
	_, err := client.Create(short, kube.Pods, namespace, eviction, "eviction")
	if !kube.IsDisruptionBudget(err) || kube.RetryAfter(err) != 10*time.Second {
		t.Errorf("%v, again after %s; want a budget's refusal for 10s", err, kube.RetryAfter(err))
	}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	c := controlplane.Shared(t)
	ctx, namespace := t.Context(), c.OwnNamespace()
	client := open(t, c.Kubeconfig())
	if client.Server() != c.Server() {
		t.Errorf("server %s; want %s", client.Server(), c.Server())
	}
	if _, err := client.Get(ctx, configMaps, namespace, "a"); !kube.IsNotFound(err) || kube.Reason(err) != "NotFound" {
		t.Errorf("Get of a missing object: %v", err)
	}
	made, err := client.Create(ctx, configMaps, namespace, configMap(namespace, "a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(ctx, configMaps, namespace, configMap(namespace, "a", "1")); !kube.IsAlreadyExists(err) {
		t.Errorf("Create twice: %v", err)
	}
	if _, err := client.Create(ctx, configMaps, namespace, configMap(namespace, "A b", "1")); !kube.IsInvalid(err) {
		t.Errorf("Create with a bad name: %v", err)
	}
	// Two appliers: the second meets a conflict unless it forces.
	if _, err := client.Apply(ctx, configMaps, namespace, "b", configMap(namespace, "b", "1"), "one", false); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Apply(ctx, configMaps, namespace, "b", configMap(namespace, "b", "2"), "two", false); !kube.IsConflict(err) {
		t.Errorf("Apply of another's field: %v", err)
	}
	if got, err := client.Apply(ctx, configMaps, namespace, "b", configMap(namespace, "b", "2"), "two", true); err != nil || valueOf(got) != "b=2" {
		t.Errorf("Apply with force: %v, %v", got, err)
	}
	if got, err := client.Patch(ctx, configMaps, namespace, "b", kube.MergePatch, []byte(`{"data":{"key":"3"}}`), "two"); err != nil || valueOf(got) != "b=3" {
		t.Errorf("Patch: %v, %v", got, err)
	}
	node := c.OwnName()
	c.MakeNode(node, "4", "8Gi")
	status := kube.Object{"apiVersion": "v1", "kind": "Node", "metadata": kube.Object{"name": node}, "status": kube.Object{"capacity": kube.Object{"example.com/x": "5"}}}
	if _, err := client.ApplyStatus(ctx, kube.Nodes, "", node, status, "one", true); err != nil {
		t.Errorf("ApplyStatus: %v", err)
	}
	if err := client.Delete(ctx, configMaps, namespace, "a", "00000000-0000-0000-0000-000000000000", -1); !kube.IsConflict(err) {
		t.Errorf("Delete of another object of the name: %v", err)
	}
	uid := made["metadata"].(map[string]any)["uid"].(string)
	if err := client.Delete(ctx, configMaps, namespace, "a", uid, 0); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if _, err := client.Get(ctx, kube.KatalystCustomConfigs, "", "a"); !kube.IsNotFound(err) {
		t.Errorf("Get of an unknown kind: %v", err)
	}

	user, err := c.KubeconfigForUser("nobody")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, user).Get(ctx, configMaps, namespace, "b"); !kube.IsForbidden(err) || kube.IsUnreachable(err) {
		t.Errorf("Get without permission: %v", err)
	}
}

func TestWatch(t *testing.T) {
	// The client library notices a server that hangs after a third of its 45 s.
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "10")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "5")
	c := controlplane.Shared(t)
	namespace := c.OwnNamespace()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := open(t, c.Kubeconfig())
	put := func(name, value string) {
		t.Helper()
		if _, err := client.Apply(ctx, configMaps, namespace, name, configMap(namespace, name, value), "test", true); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "1")
	put("other", "1")
	w := kube.Start(ctx, client, kube.Selection{Resource: configMaps, Namespace: namespace, Fields: "metadata.name!=kube-root-ca.crt,metadata.name!=other"}, time.Now, valueOf)
	if err := w.WaitSynced(ctx); err != nil {
		t.Fatal(err)
	}
	<-w.Changed()
	if got := sorted(w.List()); got != "a=1" || w.State().Err != nil {
		t.Fatalf("list %s, state %+v; want a=1", got, w.State())
	}
	is := func(want string, err bool) func() string {
		return func() string {
			if got, s := sorted(w.List()), w.State(); got != want || (s.Err != nil) != err {
				return fmt.Sprintf("list %s, state %+v; want %s", got, s, want)
			}
			return ""
		}
	}
	version := w.Version()
	put("b", "1")
	c.Eventually(controlplane.Soon, "a new one", is("a=1 b=1", false))
	put("a", "2")
	c.Eventually(controlplane.Soon, "a change", is("a=2 b=1", false))
	if err := client.Delete(ctx, configMaps, namespace, "b", "", 0); err != nil {
		t.Fatal(err)
	}
	c.Eventually(controlplane.Soon, "a deletion", is("a=2", false))
	if w.Version() == version {
		t.Error("the version has not changed with the list")
	}
	quiet := w.Version()
	put("other", "2")
	put("a", "2.1")
	c.Eventually(controlplane.Soon, "a change after one of an object that is not selected", is("a=2.1", false))
	if got := w.Version(); got != quiet+1 {
		t.Errorf("version %d after %d; want it changed by selected objects alone", got, quiet)
	}

	stopped := time.Now()
	c.StopAPIServer()
	c.Eventually(controlplane.Soon, "its absence", is("a=2.1", true))
	if _, err := client.Get(ctx, configMaps, namespace, "a"); !kube.IsUnreachable(err) || strings.Contains(kube.Cause(err), "https://") {
		t.Errorf("Get without a server: %v, cause %s", err, kube.Cause(err))
	}
	s := w.State()
	if !s.Synced || s.Since.Before(stopped) || !kube.IsUnreachable(s.Err) {
		t.Errorf("state %+v; want synced, and not reachable since %s", s, stopped)
	}
	c.StartAPIServer()
	put("a", "3")
	put("c", "1")
	c.Eventually(controlplane.Soon, "its return", is("a=3 c=1", false))

	// A server that hangs keeps its connections open: the watch notices nevertheless.
	c.FreezeAPIServer()
	c.Eventually(controlplane.Soon, "its silence", is("a=3 c=1", true))
	c.ThawAPIServer()
	put("a", "4")
	c.Eventually(controlplane.Soon, "its voice", is("a=4 c=1", false))
}

const thing = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// An optional kind is no error while it is missing, and the watch notices when it is defined and when it is deleted.
func TestOptionalKind(t *testing.T) {
	t.Parallel()
	c := controlplane.Shared(t)
	client := open(t, c.Kubeconfig())
	things := kube.Resource{Group: "example.com", Version: "v1", Name: "things"}
	w := kube.Start(t.Context(), client, kube.Selection{Resource: things, RetryUnknown: time.Second}, time.Now, valueOf)
	required := kube.Start(t.Context(), client, kube.Selection{Resource: things}, time.Now, valueOf)
	if err := w.WaitSynced(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := w.State(); !s.Absent || s.Err != nil {
		t.Errorf("state %+v; want it absent, and no error", s)
	}
	c.Eventually(controlplane.Soon, "a kind that must be there", func() string {
		if s := required.State(); s.Synced || !kube.IsNotFound(s.Err) {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := required.WaitSynced(short); err == nil || !strings.Contains(err.Error(), "list things.example.com") {
		t.Errorf("WaitSynced: %v", err)
	}
	c.Apply(thing)
	c.Established()
	c.Apply("apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: x, namespace: default}\ndata: {key: v}\n")
	c.Eventually(controlplane.Soon, "the kind", func() string {
		for _, w := range []*kube.Watch[string]{w, required} {
			if s := w.State(); sorted(w.List()) != "x=v" || s.Err != nil || s.Absent {
				return fmt.Sprintf("%v, %+v", w.List(), s)
			}
		}
		return ""
	})
	c.Kubectl("delete", "crd", "things.example.com")
	c.Eventually(controlplane.Soon, "the kind's end", func() string {
		if s := w.State(); len(w.List()) != 0 || s.Err != nil || !s.Absent {
			return fmt.Sprintf("%v, %+v", w.List(), s)
		}
		return ""
	})
}

func TestOpen(t *testing.T) {
	if _, err := kube.Open(kube.Options{Kubeconfig: "/nowhere/config"}); err == nil || !strings.Contains(err.Error(), "kubeconfig /nowhere/config: ") {
		t.Errorf("no file: %v", err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := kube.Open(kube.Options{}); err == nil || !strings.Contains(err.Error(), "not in a cluster's pod") {
		t.Errorf("not in a pod: %v", err)
	}
	if err := errors.New("plain"); kube.Cause(err) != "plain" || kube.IsUnreachable(err) || kube.Reason(err) != "" {
		t.Error("a plain error is classified as the server's")
	}
}
