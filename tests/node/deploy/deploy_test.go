// Package deploy runs the chart's pods on a real node.
package deploy

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
	"polder/tests/node"
)

func TestMain(m *testing.M) { os.Exit(node.Main(m)) }

const (
	top       = "../../.."
	namespace = "polder-system"
)

// tools are the names of the tools, in the order of the pipe.
var tools = []string{"collect", "advise", "isolate", "evict", "report"}

// apart are the pods of form containers, by their containers.
var apart = []string{"advise isolate", "collect", "evict", "report"}

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
	args := []string{
		"template", "polder", top + "/deploy/helm/polder", "--include-crds", "--namespace", namespace, "--kube-version", "1.36.0",
		"--api-versions", "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy",
	}
	for _, value := range append([]string{
		"form=" + d.form, "dryRun=false", "image.repository=polder", "image.tag=test", "image.pullPolicy=Never",
		// Pods have no network of their own here, and no server has the address of the service kubernetes.
		"hostNetwork=true", "env[0].name=KUBERNETES_SERVICE_HOST,env[0].value=" + server.Hostname(),
		"env[1].name=KUBERNETES_SERVICE_PORT,env[1].value=" + server.Port(),
		"heartbeat.periodSeconds=1", "heartbeat.restartSeconds=30", // a busy machine delays ticks by many seconds
		"updateStrategy.rollingUpdate.maxUnavailable=1", "advise.flags.hold=2s",
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
	sets := map[string]bool{}
	for document := range strings.SplitSeq(string(out), "\n---\n") {
		if m := daemonSetName.FindStringSubmatch(document); m != nil {
			sets[m[1]] = true
		}
		if strings.Contains(document, "kind: CustomResourceDefinition") {
			definitions = append(definitions, document)
		} else {
			rest = append(rest, document)
		}
	}
	d.Apply(strings.Join(definitions, "\n---\n"))
	d.Apply(strings.Join(rest, "\n---\n"))
	// Objects that are not rendered any more are deleted, as with helm.
	for name := range strings.FieldsSeq(d.Kubectl("-n", namespace, "get", "daemonsets", "-o", "jsonpath={.items[*].metadata.name}")) {
		if !sets[name] {
			d.Kubectl("-n", namespace, "delete", "daemonset", name, "--wait=false")
		}
	}
}

var daemonSetName = regexp.MustCompile(`(?m)^kind: DaemonSet\nmetadata:\n  name: (.+)$`)

// running are the tools' processes, as PIDs on this machine.
func (d *deployment) running() map[string]int {
	found := map[string]int{}
	for _, pid := range d.Processes() {
		if program := binaries.Program(pid); filepath.Dir(program) == "/usr/local/bin" {
			found[filepath.Base(program)] = pid
		}
	}
	return found
}

// ready waits until exactly these pods exist and all are Ready: ticks come through the whole pipe.
func (d *deployment) ready(containers ...string) {
	d.t.Helper()
	var want []string
	for _, of := range containers {
		want = append(want, of+":True")
	}
	d.Eventually(controlplane.Soon, "the pods are Ready: "+strings.Join(containers, ", "), func() string {
		got := strings.Split(strings.TrimSpace(d.Kubectl("-n", namespace, "get", "pods", "-o",
			`jsonpath={range .items[*]}{.spec.containers[*].name}:{.status.conditions[?(@.type=="Ready")].status}{.metadata.deletionTimestamp}{"\n"}{end}`)), "\n")
		slices.Sort(got)
		if strings.Join(got, ",") == strings.Join(want, ",") {
			return ""
		}
		status := d.Kubectl("-n", namespace, "get", "pods", "-o", `jsonpath={range .items[*].status.containerStatuses[*]}{.name}: {.state}{.lastState} {end}`)
		events := d.Kubectl("-n", namespace, "get", "events", "-o", `jsonpath={range .items[*]}{.reason}: {.message}{"\n"}{end}`)
		return strings.Join(got, " ") + "\n" + status + "\n" + events + "\n" + d.logs()
	})
}

// offer is the node's offer in the cluster.
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
	if out, err := exec.Command(top+"/scripts/image", "-t", "polder:test", "-b", binaries.Dir(t), archive).CombinedOutput(); err != nil {
		t.Fatalf("scripts/image: %v\n%s", err, out)
	}
	c := controlplane.Start(t, controlplane.Options{SchedulerConfig: configuration, ControllerManager: true})
	c.MakeNamespace(namespace)
	d := &deployment{t: t, helm: filepath.Join(programs, "helm")}
	d.Node = node.Start(t, c, node.Options{Name: "node-1", Images: []string{archive}})
	return d
}

// Both forms, one after the other as in an upgrade, and the removal of both.
func TestForms(t *testing.T) {
	d := deploy(t)
	for _, form := range []struct {
		name string
		pods []string
	}{{"single", []string{"polder"}}, {"containers", apart}} {
		t.Run(form.name, func(t *testing.T) {
			d.t, d.form = t, form.name
			d.works(form.pods...)
		})
	}
	if t.Failed() {
		return
	}
	t.Run("hangs", func(t *testing.T) {
		d.t = t
		d.hangs("isolate")
		d.hangs("advise")
	})
	t.Run("state", func(t *testing.T) {
		d.t = t
		d.remembers()
	})
	t.Run("kubelet's file", func(t *testing.T) {
		d.t = t
		d.followsKubeletsFile()
	})
	t.Run("network", func(t *testing.T) { // with a restore at its end
		d.t = t
		d.shapesUplink(t)
	})
	t.Run("restored", func(t *testing.T) {
		d.t = t
		if cnr, ofNode := d.offer(); cnr != "" || ofNode != "" {
			t.Errorf("after the restore the CustomNodeResource offers %q and the node %q", cnr, ofNode)
		}
		if idle := d.idle(); idle != "0" {
			t.Errorf("after the restore the reclaimed pod's cpu.idle is %s", idle)
		}
	})
}

// idle is cpu.idle of the reclaimed pod's cgroup.
func (d *deployment) idle() string {
	return strings.TrimSpace(d.ReadCgroup("cpu", filepath.Dir(d.ContainerCgroup("reclaimed-normal-pod", "stress")), "cpu.idle"))
}

// works deploys a form, and checks that it works and survives the end of any tool.
func (d *deployment) works(pods ...string) {
	t := d.t
	began := time.Now()
	d.apply()
	d.ready(pods...)
	t.Logf("Ready %.1f s after it was applied", time.Since(began).Seconds())

	// The node offers what its services leave.
	d.Eventually(controlplane.Soon, "an offer", func() string {
		cnr, ofNode := d.offer()
		if cnr == "" || cnr != ofNode {
			return fmt.Sprintf("the CustomNodeResource offers %q, the node %q\n%s", cnr, ofNode, d.logs())
		}
		return ""
	})
	t.Log("\n" + d.Kubectl("get", "kcnr"))
	d.confined()
	if got := d.Enter("stat", "-c", "%a %u", "/var/lib/polder"); got != "700 0\n" {
		t.Errorf("the directory of the states has mode and owner %s", got)
	}
	if d.form == "containers" {
		d.ownTokens()
	}

	// The scheduler binds a reclaimed pod to the offer, and isolate limits it.
	d.Apply(strings.NewReplacer("reclaimed_millicpu: 2k", "reclaimed_millicpu: 100").Replace(node.Guide("reclaimed-normal-pod")))
	d.AwaitRunning("reclaimed-normal-pod")
	d.Eventually(controlplane.Soon, "isolate puts the reclaimed pod into the idle class", func() string {
		if idle := d.idle(); idle != "1" {
			return "its cpu.idle is " + idle
		}
		return ""
	})

	// A killed tool is restarted, and the others are not.
	for _, name := range tools {
		d.replaced(name, func(pid int) { kill(t, pid, syscall.SIGKILL) })
	}
	// The stream continues: when another program removes the offer, report publishes it again.
	d.Kubectl("patch", "node", d.Name, "--subresource=status", "--type=json", "-p",
		`[{"op":"remove","path":"/status/allocatable/resource.katalyst.kubewharf.io~1reclaimed_millicpu"},{"op":"remove","path":"/status/capacity/resource.katalyst.kubewharf.io~1reclaimed_millicpu"}]`)
	d.Eventually(controlplane.Soon, "the offer is restored", func() string {
		if _, ofNode := d.offer(); ofNode == "" {
			return "nothing is offered"
		}
		return ""
	})
	d.ready(pods...)
}

// hangs stops a tool (SIGSTOP): it is restarted, and no other tool, because the others only wait.
func (d *deployment) hangs(name string) {
	d.replaced(name, func(pid int) { kill(d.t, pid, syscall.SIGSTOP) })
	d.ready(apart...)
}

// remembers checks that the tools read their states from the host when their pods are created again, and that no other user can read them
// there.
func (d *deployment) remembers() {
	t := d.t
	const state, unreadable = "/var/lib/polder", "state file is not readable, starting without it"
	stat := func() string {
		return d.Enter("sh", "-c", "cd "+state+" && stat -c '%n %a %u:%g' . collect advise evict */*.json isolate.journal")
	}
	const want = `. 700 0:0
collect 770 0:65532
advise 770 0:65532
evict 770 0:65532
advise/advise.json 600 65522:65532
collect/collect.json 600 65521:65532
evict/evict.json 600 65524:65532
isolate.journal 600 0:0
`
	again := func() int {
		logs := d.Kubectl("-n", namespace, "logs", "-l", "app.kubernetes.io/name=polder", "--all-containers", "--tail=-1")
		return strings.Count(logs, unreadable)
	}
	// While no pods run, replace the saved states. New pods read them.
	d.apply("nodeSelector.nowhere=yes")
	d.ready()
	if got := stat(); got != want {
		t.Errorf("the states are\n%s\nwant\n%s", got, want)
	}
	d.Enter("sh", "-c", "cd "+state+" && for file in */*.json; do echo garbage >$file; done")
	d.apply()
	d.ready(apart...)
	if n := again(); n != 3 {
		t.Errorf("%d tools have read the garbage in their states' place, want 3: %s", n, d.logs())
	}
	// The next pods continue with what they have written since.
	d.Kubectl("-n", namespace, "delete", "pods", "-l", "app.kubernetes.io/name=polder", "--wait")
	d.ready(apart...)
	if n := again(); n != 0 {
		t.Errorf("%d tools have restarted: %s", n, d.logs())
	}
	if got := stat(); got != want {
		t.Errorf("after that the states are\n%s\nwant\n%s", got, want)
	}
}

// followsKubeletsFile replaces kubelet's file as kubelet does: the one container that has it mounted is restarted with the new one, and the
// tools read that, and keep running.
func (d *deployment) followsKubeletsFile() {
	t := d.t
	const file, replacement = "/var/lib/kubelet/cpu_manager_state", `{"policyName":"none","defaultCpuSet":"","entries":{},"checksum":1353318690}`
	before := d.running()
	copied := func(tool string) string {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/run/kubelet/cpu_manager_state", before[tool]))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	was := strings.TrimSpace(d.Enter("cat", file))
	for _, tool := range []string{"collect", "isolate"} {
		if got := copied(tool); got != was {
			t.Errorf("%s reads %s, kubelet has %s", tool, got, was)
		}
		if entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/var/lib/kubelet", before[tool])); err == nil {
			t.Errorf("%s sees kubelet's directory, with %d entries", tool, len(entries))
		}
	}
	for _, text := range []string{replacement, was} {
		if err := os.WriteFile(d.Path(file+".new"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(d.Path(file+".new"), d.Path(file)); err != nil {
			t.Fatal(err)
		}
		for _, tool := range []string{"collect", "isolate"} {
			d.Eventually(controlplane.Soon, tool+" sees the new file", func() string {
				if got := copied(tool); got != text {
					return "it sees " + got
				}
				return ""
			})
		}
	}
	if after := d.running(); !maps.Equal(before, after) {
		t.Errorf("tools were restarted: %v, then %v", before, after)
	}
}

// ownTokens checks that each tool that uses the API server has a token of its own account, bound to its node, and the others none.
func (d *deployment) ownTokens() {
	d.t.Helper()
	for name, pid := range d.running() {
		want := map[string]string{"collect": "collect", "evict": "evict", "report": "report"}[name]
		if want != "" {
			want = "system:serviceaccount:" + namespace + ":polder-" + want + " of " + d.Name
		}
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if err != nil {
			d.t.Fatal(err)
		}
		got := ""
		for line := range strings.Lines(string(mounts)) {
			at := strings.Fields(line)[4]
			if !strings.Contains(at, "serviceaccount") {
				continue
			}
			token, err := os.ReadFile(fmt.Sprintf("/proc/%d/root%s/token", pid, at))
			if err != nil {
				d.t.Fatal(err)
			}
			got += tokenOf(d.t, string(token))
		}
		if got != want {
			d.t.Errorf("%s has a token %q, want %q", name, got, want)
		}
	}
}

// tokenOf returns a token's account and node.
func tokenOf(t *testing.T, token string) string {
	t.Helper()
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	data, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Sub        string
		Kubernetes struct{ Node struct{ Name string } } `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(data, &claims); err != nil {
		t.Fatal(err)
	}
	return claims.Sub + " of " + claims.Kubernetes.Node.Name
}

func kill(t *testing.T, pid int, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
}

// replaced disturbs a tool, and waits until another process replaces it; the other tools' processes must stay the same.
func (d *deployment) replaced(name string, do func(pid int)) {
	before := d.running()
	if len(before) != len(tools) {
		d.t.Fatalf("these run: %v", before)
	}
	began := time.Now()
	do(before[name])
	after := map[string]int{}
	d.Eventually(controlplane.Soon, name+" is back", func() string {
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

// confined checks the processes: no capability, a seccomp filter, no new privileges, the expected users, and that
// deploy/s6/calm started them.
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
		user := map[string]string{"collect": "65521", "advise": "65522", "isolate": "0", "evict": "65524", "report": "65525"}[name]
		if d.form == "single" {
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
		if slack, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", pid)); err != nil || strings.TrimSpace(string(slack)) != "1000000" {
			d.t.Errorf("%s has a timer slack of %q ns, %v; want 1 ms", name, slack, err)
		}
	}
}
