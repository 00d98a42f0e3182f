// Package deploy runs what the chart deploys on a real node.
package deploy

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"polder/tests/cluster/controlplane"
	"polder/tests/node"
)

func TestMain(m *testing.M) { os.Exit(node.Main(m)) }

const (
	top       = "../../.."
	namespace = "polder-system"
	soon      = 90 * time.Second
)

// tools are the names of the tools, in the order of the pipe.
var tools = []string{"collect", "advise", "isolate", "evict", "report"}

// deployment is a node on which the chart is installed.
type deployment struct {
	*node.Node
	t    *testing.T
	form string
	helm string
}

// apply renders the chart for this node and applies it.
func (d *deployment) apply(set ...string) {
	d.t.Helper()
	server, err := url.Parse(d.Server())
	if err != nil {
		d.t.Fatal(err)
	}
	args := []string{"template", "polder", top + "/deploy/helm/polder", "--include-crds", "--namespace", namespace, "--kube-version", "1.36.0",
		"--api-versions", "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"}
	for _, value := range append([]string{
		"form=" + d.form, "image.repository=polder", "image.tag=test", "image.pullPolicy=Never",
		// Pods have no network of their own here, and nobody serves the address of the service kubernetes.
		"hostNetwork=true", "env[0].name=KUBERNETES_SERVICE_HOST,env[0].value=" + server.Hostname(),
		"env[1].name=KUBERNETES_SERVICE_PORT,env[1].value=" + server.Port(),
		"heartbeat.periodSeconds=1", "heartbeat.restartSeconds=8", "updateStrategy.rollingUpdate.maxUnavailable=1", "advise.flags.hold=2s",
	}, set...) {
		args = append(args, "--set", value)
		if strings.HasSuffix(value, server.Port()) {
			args[len(args)-2] = "--set-string"
		}
	}
	cmd := exec.Command(d.helm, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	var definitions, rest []string
	for document := range strings.SplitSeq(string(out), "\n---\n") {
		if strings.Contains(document, "kind: CustomResourceDefinition") {
			definitions = append(definitions, document)
		} else {
			rest = append(rest, document)
		}
	}
	d.Apply(strings.Join(definitions, "\n---\n"))
	d.Apply(strings.Join(rest, "\n---\n"))
}

// running are the tools' processes, as PIDs on this machine.
func (d *deployment) running() map[string]int {
	found := map[string]int{}
	for _, pid := range d.Processes() {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && filepath.Dir(exe) == "/usr/local/bin" {
			found[filepath.Base(exe)] = pid
		}
	}
	return found
}

// ready waits until the pod is Ready: ticks come through the whole pipe.
func (d *deployment) ready(containers string) {
	d.t.Helper()
	d.Eventually(soon, "the pod is Ready as "+containers, func() string {
		got := d.Kubectl("-n", namespace, "get", "pods", "-o",
			`jsonpath={range .items[*]}{.spec.containers[*].name}:{.status.conditions[?(@.type=="Ready")].status}{.metadata.deletionTimestamp}{end}`)
		if got == containers+":True" {
			return ""
		}
		status := d.Kubectl("-n", namespace, "get", "pods", "-o", `jsonpath={range .items[*].status.containerStatuses[*]}{.name}: {.state}{.lastState} {end}`)
		events := d.Kubectl("-n", namespace, "get", "events", "-o", `jsonpath={range .items[*]}{.reason}: {.message}{"\n"}{end}`)
		return got + "\n" + status + "\n" + events + "\n" + d.logs()
	})
}

// offer is what the cluster says that the node offers.
func (d *deployment) offer() (cnr, ofNode string) {
	cnr, _ = d.TryKubectl("", "get", "kcnr", d.Name, "-o", `jsonpath={.status.resourceAllocatable.katalyst\.kubewharf\.io/reclaimed_millicpu}`)
	ofNode = d.Kubectl("get", "node", d.Name, "-o", `jsonpath={.status.allocatable.resource\.katalyst\.kubewharf\.io/reclaimed_millicpu}`)
	return cnr, ofNode
}

func deploy(t *testing.T) *deployment {
	t.Helper()
	programs := controlplane.Need(t, "helm", "kubelet")
	configuration, err := node.SchedulerConfig(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "polder.tar")
	if out, err := exec.Command(top+"/scripts/image", "-t", "polder:test", "-b", node.Tools(t), archive).CombinedOutput(); err != nil {
		t.Fatalf("scripts/image: %v\n%s", err, out)
	}
	c := controlplane.Start(t, controlplane.Options{SchedulerConfig: configuration, ControllerManager: true})
	c.MakeNamespace(namespace)
	d := &deployment{t: t, helm: filepath.Join(programs, "helm")}
	d.Node = node.Start(t, c, node.Options{Name: "node-1", Images: []string{archive}})
	return d
}

// Both forms, one after the other as an upgrade does it, and the removal of both.
func TestForms(t *testing.T) {
	d := deploy(t)
	for _, form := range []struct{ name, containers string }{{"single", "polder"}, {"containers", strings.Join(tools, " ")}} {
		t.Run(form.name, func(t *testing.T) {
			d.t, d.form = t, form.name
			d.works(form.containers)
		})
	}
	if t.Failed() {
		return
	}
	t.Run("hangs", func(t *testing.T) {
		d.t = t
		d.hangs("isolate")
	})
	t.Run("restore", func(t *testing.T) {
		d.t = t
		d.apply("restore=true")
		d.ready("done")
		if cnr, ofNode := d.offer(); cnr != "" || ofNode != "" {
			t.Errorf("after the restore the CustomNodeResource offers %q and the node %q", cnr, ofNode)
		}
		if q := d.quota(); q != "-1" {
			t.Errorf("after the restore the reclaimed pod has a quota of %s", q)
		}
	})
}

// quota is the reclaimed pod's.
func (d *deployment) quota() string {
	return strings.TrimSpace(d.ReadCgroup("cpu", d.ContainerCgroup("reclaimed-normal-pod", "stress"), "cpu.cfs_quota_us"))
}

// works deploys a form, and looks that it does what it is for and survives the death of any tool.
func (d *deployment) works(containers string) {
	t := d.t
	began := time.Now()
	d.apply()
	d.ready(containers)
	t.Logf("Ready %.1f s after it was applied", time.Since(began).Seconds())

	// The node offers what its services leave.
	d.Eventually(soon, "an offer", func() string {
		cnr, ofNode := d.offer()
		if cnr == "" || cnr != ofNode {
			return fmt.Sprintf("the CustomNodeResource says %q, the node %q\n%s", cnr, ofNode, d.logs())
		}
		return ""
	})
	t.Log("\n" + d.Kubectl("get", "kcnr"))
	d.confined()

	// A reclaimed pod is bound by it, and held.
	d.Apply(strings.NewReplacer("reclaimed_millicpu: 2k", "reclaimed_millicpu: 100").Replace(node.Guide("reclaimed-normal-pod")))
	d.AwaitRunning("reclaimed-normal-pod")
	d.Eventually(soon, "isolate holds the reclaimed pod by a quota", func() string {
		if q := d.quota(); q == "-1" {
			return "its quota is " + q
		}
		return ""
	})

	// Who is killed comes back, and the others stay.
	for _, name := range tools {
		d.replaced(name, func(pid int) { kill(t, pid, syscall.SIGKILL) })
	}
	// The stream goes on: what somebody takes away is offered again.
	d.Kubectl("patch", "node", d.Name, "--subresource=status", "--type=json", "-p",
		`[{"op":"remove","path":"/status/allocatable/resource.katalyst.kubewharf.io~1reclaimed_millicpu"},{"op":"remove","path":"/status/capacity/resource.katalyst.kubewharf.io~1reclaimed_millicpu"}]`)
	d.Eventually(soon, "the offer is put back", func() string {
		if _, ofNode := d.offer(); ofNode == "" {
			return "nothing is offered"
		}
		return ""
	})
	d.ready(containers)
}

// hangs stops a tool in the middle of what it does: it is restarted, and nobody else, for the others only wait.
func (d *deployment) hangs(name string) {
	d.replaced(name, func(pid int) { kill(d.t, pid, syscall.SIGSTOP) })
	d.ready(strings.Join(tools, " "))
}

func kill(t *testing.T, pid int, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
}

// replaced does something to a tool, and waits until another process is in its place and the other tools' are the same.
func (d *deployment) replaced(name string, do func(pid int)) {
	before := d.running()
	if len(before) != len(tools) {
		d.t.Fatalf("these run: %v", before)
	}
	began := time.Now()
	do(before[name])
	after := map[string]int{}
	d.Eventually(soon, name+" is back", func() string {
		if after = d.running(); len(after) != len(tools) || after[name] == before[name] {
			return fmt.Sprint(after)
		}
		return ""
	})
	d.t.Logf("%s was back after %.1f s", name, time.Since(began).Seconds())
	delete(before, name)
	delete(after, name)
	if !maps.Equal(before, after) {
		d.t.Errorf("with %s, others were restarted: %v, then %v", name, before, after)
	}
}

func (d *deployment) logs() string {
	logs, err := d.TryKubectl("", "-n", namespace, "logs", "-l", "app.kubernetes.io/name=polder", "--all-containers", "--prefix", "--tail=20")
	if err != nil {
		return err.Error()
	}
	return logs
}

// confined looks at the processes: no capability, a seccomp filter, no way to new privileges, and users as they should be.
func (d *deployment) confined() {
	d.t.Helper()
	for name, pid := range d.running() {
		status := map[string]string{}
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			d.t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			key, value, _ := strings.Cut(line, ":")
			status[key] = strings.TrimSpace(value)
		}
		user := "65532"
		if d.form == "single" || slices.Contains([]string{"collect", "isolate"}, name) {
			user = "0"
		}
		if got := strings.Fields(status["Uid"])[1]; got != user {
			d.t.Errorf("%s runs as user %s, want %s", name, got, user)
		}
		for _, key := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if caps, err := strconv.ParseUint(status[key], 16, 64); err != nil || caps != 0 {
				d.t.Errorf("%s has %s %s", name, key, status[key])
			}
		}
		if status["NoNewPrivs"] != "1" || status["Seccomp"] != "2" {
			d.t.Errorf("%s has NoNewPrivs %s, Seccomp %s", name, status["NoNewPrivs"], status["Seccomp"])
		}
	}
}
