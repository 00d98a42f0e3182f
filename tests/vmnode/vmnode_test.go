package vmnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
	"polder/tests/node"
	"polder/tests/vm/qemu"
	"polder/tests/vmnode/wire"
)

func TestMain(m *testing.M) { os.Exit(node.Main(m)) }

// need skips a test if virtual machines or a cluster were not asked for.
func need(t *testing.T) {
	t.Helper()
	qemu.Need(t)
	controlplane.Need(t, append([]string{"helm"}, programs...)...)
}

// world is a control plane on this machine with one node in a virtual machine.
type world struct {
	*controlplane.ControlPlane
	node   *Node
	values []string // of the chart, which has the roles
	begin  time.Time
	// hierarchy is where the guest has a cgroup for each container: the only hierarchy, or on version 1 that of the CPU.
	hierarchy string
	systemd   bool  // systemd is the guest's first process, and creates kubelet's cgroups
	page      *page // whose commands are typed as they are written; nil if none are
	// responding ends, with the cause, when the node's agent no longer responds.
	responding context.Context
}

// cgroupMount is where guests mount their cgroups.
const cgroupMount = "/sys/fs/cgroup"

// newWorld starts one with the guide's machine.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, Machine())
}

// newWorldOn starts one with another machine, and values of the chart.
func newWorldOn(t *testing.T, m qemu.Machine, values ...string) *world {
	t.Helper()
	return newWorldOf(t, Options{Machine: m}, values...)
}

// newWorldOf starts both, with the shipped scheduler profile, CRDs and roles, the latter with values of the chart, and waits until the
// node is Ready.
func newWorldOf(t *testing.T, o Options, values ...string) *world {
	t.Helper()
	need(t)
	w := &world{begin: time.Now(), values: values, hierarchy: cgroupMount, systemd: o.Systemd}
	if o.Version1 {
		w.hierarchy += "/cpu,cpuacct"
	}
	egress, err := NewEgress(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = egress.Close() }) // no connection is left
	images, err := node.Images()
	if err != nil {
		t.Fatal(err)
	}
	guest, err := node.Guest("polder/tests/vmnode/guest")
	if err != nil {
		t.Fatal(err)
	}
	tools := binaries.Dir(t)
	scheduler := "../../deploy/kubernetes/scheduler/katalyst-scheduler.yaml"
	if len(values) > 0 { // Koordinator's guide binds its pod with the cluster's default profile
		if scheduler, err = node.SchedulerConfig(t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	w.ControlPlane = controlplane.Start(t, controlplane.Options{
		SchedulerConfig: scheduler,
		APIServerFlags:  []string{egress.Flag()},
	})
	w.ApplyFile("../../deploy/kubernetes/crds")
	w.Established()
	w.AccountFor("collect", values...) // with the chart's namespaces
	w.log("control plane ready, everything built")
	o.Tools, o.Guest, o.Images, o.Log = tools, guest, images, w.log
	w.node = StartVMNode(t, w.ControlPlane, egress, o)
	responding, end := context.WithCancelCause(t.Context())
	t.Cleanup(func() { end(nil) })
	w.responding = responding
	go w.node.endIfSilent(responding, end, silentLimit)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.diagnose())
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		spent, err := w.node.Spent(ctx) // the node may have ended
		w.log("CPU time in the guest: %s (%v)", spent, err)
	})
	w.await("the node is Ready", func() string {
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
	w.log("the node is Ready")
	return w
}

// log logs a step with the time since the start, and the host's CPU time that the machine has used.
func (w *world) log(format string, args ...any) {
	if w.ControlPlane != nil {
		w.Helper()
		used := time.Duration(0)
		if w.node != nil {
			used = w.node.CPUTime()
		}
		w.Logf("%6.1f s, CPU time %3.0f s  %s", time.Since(w.begin).Seconds(), used.Seconds(), fmt.Sprintf(format, args...))
	}
}

// Expected events take seconds to minutes. On a busy host the machine gets a part of the CPU time that it wants, and
// is slower by as much: a test waits until it has had enough of it, for patience at least. A passing test never waits longer than it must.
const (
	patience    = 10 * time.Minute
	patienceCPU = 6 * time.Minute
	patienceEnd = 45 * time.Minute // a machine that waits for something uses none
)

// await polls once a second until nothing is lacking, and less often where a poll takes long: each takes CPU time from the machine. It does
// not wait for a machine that has ended or hangs: the test can be run again that much sooner.
func (w *world) await(what string, lacking func() string) {
	w.Helper()
	for begin, had := time.Now(), w.node.CPUTime(); ; {
		polled := time.Now()
		lack := lacking()
		if lack == "" {
			return
		}
		time.Sleep(max(time.Second, 2*time.Since(polled)))
		if err := w.node.Died(); err != nil {
			w.Fatalf("%s: %v; the end of the console:\n%s", what, err, w.node.Console())
		}
		if w.responding.Err() != nil {
			w.Fatalf("%s: %v; last: %s", what, context.Cause(w.responding), lack)
		}
		waited, used := time.Since(begin), w.node.CPUTime()-had
		if waited > patience && used > patienceCPU || waited > patienceEnd {
			w.Fatalf("not in %.0f s, of which the machine had %.0f s of CPU time: %s: %s", waited.Seconds(), used.Seconds(), what, lack)
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

// runPod creates one of the guide's pods and waits until it runs; it returns its container's cgroup.
func (w *world) runPod(name string) string {
	w.Helper()
	w.Apply(node.Guide(name))
	w.awaitContainer(name)
	cgroup := w.cgroupOf(name)
	w.log("%s runs in %s", name, cgroup)
	return cgroup
}

// cpus are the CPUs that the kernel lets a cgroup's processes use.
func (w *world) cpus(cgroup string) string {
	w.Helper()
	return strings.TrimSpace(w.on("cat " + cgroup + "/cpuset.cpus.effective"))
}

// on runs a script on the node.
func (w *world) on(script string) string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.responding, patience)
	defer cancel()
	out, err := w.node.Run(ctx, script)
	if err != nil {
		w.Fatal(errors.Join(err, context.Cause(ctx)))
	}
	return out
}

// offer is the offer in the node's CustomNodeResource.
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

// diagnose logs all that may show the cause of a failure.
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
