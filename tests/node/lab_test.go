package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
)

// lab is shared by the tests of this package: a control plane with the guide's scheduler and the definitions of all objects, and a
// node in it.
type lab struct {
	plane *controlplane.Plane
	node  *Node
	err   error // of either's start: the other tests need not retry
}

var shared lab

func TestMain(m *testing.M) { os.Exit(Main(m, shared.close)) }

func (l *lab) close() error {
	var errs []error
	if l.node != nil {
		errs = append(errs, l.node.died(), l.node.stop())
	}
	if l.plane != nil {
		errs = append(errs, l.plane.Close())
	}
	return errors.Join(errs...)
}

// control is the shared control plane. Its scheduler binds pods to any node: a pod for a certain node names it.
func control(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	controlplane.Need(t, "helm") // for the accounts' roles
	if shared.plane == nil && shared.err == nil {
		config, err := SchedulerConfig(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if shared.plane, shared.err = controlplane.Open(controlplane.Options{SchedulerConfig: config}); shared.err == nil {
			c := shared.plane.For(t)
			c.ApplyFile("../../deploy/kubernetes/crds")
			c.Established()
			c.EnsureNamespace("koordinator-system")
		}
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.plane.For(t)
}

// sharedNode is the shared node, with no pods, and in kubelet's state. The next test finds it the same.
func sharedNode(t *testing.T) *Node {
	t.Helper()
	c := control(t)
	if shared.node == nil {
		// Its CPU manager and its pod workers run in steps of seconds, so that anything that they would revert is reverted soon.
		shared.node, shared.err = Open(t, c, Options{Kubelet: map[string]any{"cpuManagerReconcilePeriod": "1s", "syncFrequency": "2s"}})
		if shared.err != nil {
			t.Fatal(shared.err)
		}
	}
	n := shared.node.For(t)
	t.Cleanup(func() {
		n.check(t)
		n.clear(t)
		n.restore(t)
	})
	return n
}

// clear removes what a test left: pods, events, and offers in the node's status.
func (n *Node) clear(t *testing.T) {
	t.Helper()
	n.Kubectl("delete", "pods", "--all", "--grace-period=1")
	n.Eventually(controlplane.Soon, "the pods' cgroups are removed", func() string {
		return strings.Join(n.containers("", "burstable", "besteffort"), " ")
	})
	n.Kubectl("delete", "events", "--all")
	n.Kubectl("delete", "kcnr,nodemetrics", "--all")
	var node struct {
		Status struct{ Capacity, Allocatable map[string]any }
	}
	n.Get("/api/v1/nodes/"+n.Name, &node)
	for _, resources := range []map[string]any{node.Status.Capacity, node.Status.Allocatable} {
		for name := range resources {
			if resources[name] = nil; !strings.Contains(name, "/") {
				delete(resources, name) // kubelet's own
			}
		}
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{
		"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if status, answer := n.API("PATCH", "/api/v1/nodes/"+n.Name+"/status", string(body)); status != 200 {
		t.Errorf("withdraw the offers: status %d: %s", status, answer)
	}
}

// restore restores what an isolate in the node has left in its journal: kubelet's own cgroups, since the pods' are gone.
func (n *Node) restore(t *testing.T) {
	t.Helper()
	journals, err := filepath.Glob(n.Path("/run/isolate*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, journal := range journals {
		cmd := n.Command(context.Background(), binaries.Path(t, "isolate"), "--restore", "--if-exists", "--journal", "/run/"+filepath.Base(journal))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("isolate --restore: %v: %s", err, out)
		}
	}
}

// account is a kubeconfig of a tool's account, with the chart's roles.
func (n *Node) account(tool string, values ...string) string {
	n.Helper()
	return fmt.Sprintf("--kubeconfig %s", n.AccountFor(tool, values...))
}
