package deploy

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
	"polder/tests/node"
	"polder/tests/pages"
	"polder/tests/processgroup"
)

// walk is the order in which a reader comes to the blocks that need a kubelet, by a part of each.
var walk = []string{
	"images import", "helm install", "polder-system --reuse-values --set dryRun=false", "jsonpath='{.status.allocatable}'", "policy=koordinator",
	"centre.enabled=true", "helm uninstall",
}

// inWalk are the pages' blocks in that order.
func inWalk(t *testing.T) []pages.Block {
	t.Helper()
	blocks, err := pages.Marked("node")
	if err != nil {
		t.Fatal(err)
	}
	place := func(b pages.Block) int {
		return slices.IndexFunc(walk, func(part string) bool {
			return slices.ContainsFunc(b.Examples, func(x pages.Example) bool { return strings.Contains(x.Command, part) })
		})
	}
	for _, b := range blocks {
		if place(b) < 0 {
			t.Errorf("%s:%d: the order of this block is unknown: put a part of it into walk", b.Page, b.Line)
		}
	}
	slices.SortStableFunc(blocks, func(a, b pages.Block) int { return place(a) - place(b) })
	return blocks
}

// settings are what this machine's node needs besides the page: pods have no network of their own, and no server has the address of the
// service kubernetes.
const settings = `hostNetwork: true
centre: {hostNetwork: true}
env:
- {name: KUBERNETES_SERVICE_HOST, value: %q}
- {name: KUBERNETES_SERVICE_PORT, value: %q}
heartbeat: {periodSeconds: 1}
`

// The installation of docs/install.md on a real node, as it is written, from the first check to the removal.
func TestPages(t *testing.T) {
	programs := controlplane.Need(t, "helm", "kubelet")
	dir := t.TempDir()
	version := chartVersion(t)
	archive := filepath.Join(dir, "polder.tar")
	if out, err := exec.Command(top+"/scripts/image", "-t", "polder:"+version, "-b", binaries.Dir(t), archive).CombinedOutput(); err != nil {
		t.Fatalf("scripts/image: %v\n%s", err, out)
	}
	c := controlplane.Start(t, controlplane.Options{Scheduler: true, ControllerManager: true})
	n := node.Start(t, c, node.Options{Name: "node-1"})
	server, err := url.Parse(n.Server())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"values.yaml": fmt.Sprintf(settings, server.Hostname(), server.Port()),
		"bin/helm":    fmt.Sprintf("#!/bin/sh\n[ \"$1\" != install ] || set -- \"$@\" --values %s/values.yaml\nexec %s/helm \"$@\"\n", dir, programs),
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	deployPath, err := filepath.Abs(top + "/deploy")
	if err == nil {
		err = os.Symlink(deployPath, filepath.Join(dir, "deploy"))
	}
	if err != nil {
		t.Fatal(err)
	}
	download(t, dir, archive, version)
	ran := 0
	for _, b := range inWalk(t) {
		outputs := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // stops a command that does not end
		defer cancel()
		cmd := processgroup.Command(ctx, "bash", "-c", b.Script(outputs, nil))
		if strings.Contains(b.Examples[0].Command, "| ctr ") { // containerd's client is used on the node
			cmd = n.Command(ctx, "bash", "-c", b.Script(outputs, nil))
		}
		cmd.Dir = dir
		cmd.Env = []string{"HOME=" + dir, "KUBECONFIG=" + n.Kubeconfig(), "PATH=" + dir + "/bin:" + programs + ":/usr/sbin:/usr/bin:/sbin:/bin"}
		if out, err := cmd.CombinedOutput(); err != nil {
			status, _ := n.TryKubectl("", "-n", namespace, "get", "pods,daemonsets,deployments,replicasets", "-o", "wide") // for the failure
			why, _ := n.TryKubectl("", "-n", namespace, "describe", "pods")
			t.Fatalf("%s:%d: %v\n%s\n%s\n%s", b.Page, b.Line, err, out, status, why)
		}
		for i, x := range b.Examples {
			printed, err := os.ReadFile(filepath.Join(outputs, fmt.Sprint(i)))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("$ %s\n%s", x.Command, clipped(string(printed)))
			if len(printed) == 0 && (strings.Contains(x.Command, " logs ") || strings.Contains(x.Command, "kubectl get ")) {
				t.Errorf("%s:%d: %s prints nothing", b.Page, x.Line, x.Command)
			}
			ran++
		}
		for _, wrong := range b.Printed(outputs) {
			t.Error(wrong)
		}
	}
	if left := n.Kubectl("get", "daemonsets,deployments", "-A", "-o", "name"); left != "" {
		t.Errorf("after the removal %s is left", left)
	}
	t.Logf("figures: %d commands of the pages ran on a node", ran)
	if ran < 21 {
		t.Errorf("%d commands ran; want 21 at least: are the blocks still found?", ran)
	}
}

// download makes a release's file from an image.
func download(t *testing.T, dir, archive, version string) {
	t.Helper()
	name := fmt.Sprintf("polder-%s-image-linux-%s.tar.gz", version, runtime.GOARCH)
	if out, err := exec.Command("bash", "-c", fmt.Sprintf("gzip -n1 <%s >%s", archive, filepath.Join(dir, name))).CombinedOutput(); err != nil {
		t.Fatalf("gzip: %v: %s", err, out)
	}
}

func clipped(text string) string { return text[:min(len(text), 2000)] }

// chartVersion is the chart's default version of the image.
func chartVersion(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(top + "/deploy/helm/polder/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^appVersion: "?([^"\s]+)"?$`).FindSubmatch(data)
	if m == nil {
		t.Fatal("Chart.yaml has no appVersion")
	}
	return string(m[1])
}
