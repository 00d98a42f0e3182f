// Package deploy tries what deploy/ ships on Kubernetes' own control plane: the definitions, the roles, the policies, the chart and the
// scheduler's configuration.
package deploy

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/tests/cluster/controlplane"
)

var update = flag.Bool("update", false, "write deploy/kubernetes/*.yaml anew from the chart")

// From here to what is shipped.
const (
	top       = "../../.."
	chart     = top + "/deploy/helm/polder"
	manifests = top + "/deploy/kubernetes"
)

// soon is how long something may take that takes a second or two on a calm machine.
const soon = 60 * time.Second

// namespace is where the chart is installed.
const namespace = "polder-system"

// shared is the control plane of most tests: with the definitions, the roles of each tool, and the policies.
var shared *controlplane.Plane

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	if _, err := controlplane.Programs("etcd", "kube-apiserver", "kubectl"); err != nil {
		return m.Run() // each test says so
	}
	var err error
	if shared, err = controlplane.Open(controlplane.Options{SchedulerConfig: manifests + "/scheduler/katalyst-scheduler.yaml"}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer shared.Close()
	return m.Run()
}

// cluster is the shared control plane, furnished.
func cluster(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	controlplane.Need(t, "etcd", "kube-apiserver", "kube-scheduler", "kubectl", "helm")
	c := shared.For(t)
	if status, _ := c.API("GET", "/api/v1/namespaces/"+namespace, ""); status == 200 {
		return c
	}
	c.MakeNamespace(namespace)
	c.MakeNamespace("koordinator-system")
	c.ApplyFile(manifests + "/crds")
	c.ApplyFile(manifests + "/polder.yaml")
	c.Apply(template(t, "serviceAccount.perTool=true", "scheduler.enabled=true"))
	c.Kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	return c
}

// helm runs helm, without a cluster.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	dir := controlplane.Need(t, "helm")
	cmd := exec.Command(filepath.Join(dir, "helm"), args...)
	home := t.TempDir()
	cmd.Env = []string{"HOME=" + home, "PATH=/usr/bin:/bin"}
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// template renders the chart as for a server of this version, with the values set.
func template(t *testing.T, set ...string) string {
	t.Helper()
	args := []string{"template", "polder", chart, "--namespace", namespace, "--kube-version", "1.36.0",
		"--api-versions", "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"}
	for _, value := range set {
		args = append(args, "--set", value)
	}
	out, err := helm(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
