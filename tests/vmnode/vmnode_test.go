package vmnode

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/tests/cluster/controlplane"
	"polder/tests/node"
	"polder/tests/node/image"
	"polder/tests/vm/qemu"
	"polder/tests/vmnode/wire"
)

func TestMain(m *testing.M) { os.Exit(node.Main(m)) }

// need skips a test where nobody asked for it; in CI it is a must.
func need(t *testing.T) {
	t.Helper()
	if os.Getenv("POLDER_VM") != "1" {
		if os.Getenv("CI") == "true" && !testing.Short() {
			t.Fatal("POLDER_VM is not 1: CI runs this as make test-vmnode")
		}
		t.Skip("a node in a virtual machine takes minutes: make test-vmnode, or POLDER_VM=1")
	}
	if err := qemu.Missing(); err != nil {
		t.Fatal(err)
	}
	controlplane.Need(t, append([]string{"helm"}, programs...)...)
}

// world is a control plane on this machine with one node in a virtual machine.
type world struct {
	*controlplane.ControlPlane
	node  *Node
	begin time.Time
}

// newWorld is one with the guide's machine.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, Machine())
}

// newWorldOn starts both, with the shipped scheduler profile, CRDs and roles, these with values of the chart, and waits until the
// node is Ready.
func newWorldOn(t *testing.T, m qemu.Machine, values ...string) *world {
	t.Helper()
	need(t)
	w := &world{begin: time.Now()}
	egress, err := NewEgress(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = egress.Close() }) // nobody is there any more
	images, err := image.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tools := node.Tools(t)
	scheduler := "../../deploy/kubernetes/scheduler/katalyst-scheduler.yaml"
	if len(values) > 0 { // Koordinator's guide has the cluster's default profile bind its pod
		if scheduler, err = node.SchedulerConfig(t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	w.ControlPlane = controlplane.Start(t, controlplane.Options{
		SchedulerConfig: scheduler,
		APIServerFlags:  []string{egress.Flag()},
	})
	w.install(values)
	w.say("control plane ready, everything built")
	w.node = StartVMNode(t, w.ControlPlane, egress, Options{Machine: m, Tools: tools, Images: images, Log: w.say})
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.diagnose())
		}
	})
	w.await(3*time.Minute, "the node is Ready", func() string {
		_, text := w.API("GET", "/api/v1/nodes/"+wire.Node, "")
		var n struct {
			Status struct {
				Conditions []struct{ Type, Status, Message string }
			}
		}
		if err := json.Unmarshal(text, &n); err != nil {
			return err.Error()
		}
		for _, c := range n.Status.Conditions {
			switch {
			case c.Type == "Ready" && c.Status == "True":
				return ""
			case c.Type == "Ready":
				return "so far: " + c.Message
			}
		}
		return "so far: " + string(text)
	})
	w.Untaint(wire.Node) // as the controller-manager would
	w.say("the node is Ready")
	return w
}

// install applies the shipped CRDs, and of the chart the roles, an account a tool.
func (w *world) install(values []string) {
	w.Helper()
	w.ApplyFile("../../deploy/kubernetes/crds")
	w.MakeNamespace(toolsNamespace)
	args := []string{"template", "polder", "../../deploy/helm/polder", "--namespace", toolsNamespace, "--kube-version", "v1.36.3",
		"--set", "serviceAccount.perTool=true", "--show-only", "templates/rbac.yaml", "--show-only", "templates/serviceaccounts.yaml"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	chart := w.output("helm", args...)
	w.Apply(chart)
}

// say logs what has happened with the time since the start.
func (w *world) say(format string, args ...any) {
	if w.ControlPlane != nil {
		w.Helper()
		w.Logf("%6.1f s  %s", time.Since(w.begin).Seconds(), fmt.Sprintf(format, args...))
	}
}

// await asks once a second until nothing is lacking: what is asked takes from what the machine has to do.
func (w *world) await(limit time.Duration, what string, lacking func() string) {
	w.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Second) {
		lack := lacking()
		if lack == "" {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("not within %s: %s: %s", limit, what, lack)
		}
	}
}

// container is the running container of a pod with a single one; "" before it runs.
func (w *world) container(pod string) string {
	w.Helper()
	var p struct {
		Status struct {
			ContainerStatuses []struct {
				ContainerID string
				State       struct{ Running *struct{} }
			}
		}
	}
	w.Get("/api/v1/namespaces/default/pods/"+pod, &p)
	if s := p.Status.ContainerStatuses; len(s) == 1 && s[0].State.Running != nil {
		return strings.TrimPrefix(s[0].ContainerID, "containerd://")
	}
	return ""
}

// runPod makes one of the guide's pods and waits until it runs; its container's cgroup is returned.
func (w *world) runPod(name string) string {
	w.Helper()
	w.Apply(node.Guide(name))
	var id string
	w.await(2*time.Minute, name+" runs", func() string {
		if id = w.container(name); id != "" {
			return ""
		}
		return w.Kubectl("get", "pod", name, "-o", "wide", "--no-headers")
	})
	cgroup := strings.TrimSpace(w.on("find /sys/fs/cgroup -type d -name " + id))
	if cgroup == "" || strings.Contains(cgroup, "\n") {
		w.Fatalf("%s: the cgroups of container %s are %q", name, id, cgroup)
	}
	w.say("%s runs in %s", name, cgroup)
	return cgroup
}

// cpus are the CPUs that the kernel lets a cgroup's processes have.
func (w *world) cpus(cgroup string) string {
	w.Helper()
	return strings.TrimSpace(w.on("cat " + cgroup + "/cpuset.cpus.effective"))
}

// on runs a script on the node.
func (w *world) on(script string) string {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := w.node.Run(ctx, script)
	if err != nil {
		w.Fatal(err)
	}
	return out
}

// output runs one of the cluster's programs.
func (w *world) output(program string, args ...string) string {
	w.Helper()
	cmd := w.KubectlCommand(context.Background(), args...)
	cmd.Path = filepath.Join(filepath.Dir(cmd.Path), program)
	out, err := cmd.Output()
	if err != nil {
		w.Fatalf("%s %v: %v", program, args, err)
	}
	return string(out)
}

// offer is what the node's CustomNodeResource says.
type offer struct {
	Status struct {
		ResourceAllocatable, ResourceCapacity map[string]string
	}
}

// offer reads it; nothing while there is none.
func (w *world) offer() (o offer) {
	w.Helper()
	status, text := w.API("GET", "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources/"+wire.Node, "")
	if status == http.StatusNotFound {
		return o
	}
	if err := json.Unmarshal(text, &o); err != nil || status != http.StatusOK {
		w.Fatalf("status %d, %v: %s", status, err, text)
	}
	return o
}

// diagnose is all that may tell why something went wrong.
func (w *world) diagnose() string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var b strings.Builder
	for _, args := range [][]string{{"get", "pods", "-o", "wide"}, {"get", "events"}, {"get", "kcnr", "-o", "yaml"}} {
		out, err := w.KubectlCommand(ctx, args...).CombinedOutput()
		fmt.Fprintf(&b, "--- kubectl %s (%v)\n%s\n", strings.Join(args, " "), err, out)
	}
	out, err := w.node.Run(ctx, `uptime; for log in /var/log/*.log; do echo "--- $log"; tail -n 15 "$log" | cut -c 1-300; done; echo "--- the last tick"; tail -n 1 `+ticksFile)
	fmt.Fprintf(&b, "--- the node (%v)\n%s\n--- its console\n%s\n", err, out, w.node.Console())
	return b.String()
}
