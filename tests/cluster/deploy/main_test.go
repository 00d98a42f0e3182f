// Package deploy tests the files of deploy/ on Kubernetes' own control plane: the definitions, the roles, the policies, the chart and the
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

	"polder/tests/cluster/controlplane"
)

var update = flag.Bool("update", false, "write deploy/kubernetes/*.yaml from the chart")

// The path from here to the files.
const (
	top       = "../../.."
	chart     = top + "/deploy/helm/polder"
	manifests = top + "/deploy/kubernetes"
)

const soon = controlplane.Soon

// namespace is where the chart is installed.
const namespace = controlplane.Namespace

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Options{SchedulerConfig: manifests + "/scheduler/katalyst-scheduler.yaml"}, setUp)
}

// setUp installs the definitions, the roles of each tool, and the policies.
func setUp(c *controlplane.ControlPlane) {
	c.MakeNamespace(namespace)
	c.MakeNamespace("koordinator-system")
	c.ApplyFile(manifests + "/crds")
	c.ApplyFile(manifests + "/polder.yaml")
	c.Apply(template(c.TB, "form=single", "serviceAccount.perTool=true", "scheduler.enabled=true"))
	c.Established()
}

// cluster is the control plane of most tests. They run one after the other: there is one chart.
func cluster(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	return controlplane.Shared(t)
}

// helm runs helm, without a cluster.
func helm(t testing.TB, args ...string) (string, error) {
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
func template(t testing.TB, set ...string) string {
	t.Helper()
	args := []string{
		"template", "polder", chart, "--namespace", namespace, "--kube-version", "1.36.0",
		"--api-versions", "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy",
	}
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
