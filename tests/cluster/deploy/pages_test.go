package deploy

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
	"polder/tests/need"
	"polder/tests/pages"
	"polder/tests/processgroup"
)

// inPod runs a block as in a pod: with its own mounts, and an account's token at a pod's path. Nothing that it writes below /run stays.
const inPod = `
mount -t tmpfs none /run
mkdir -p /run/secrets/kubernetes.io/serviceaccount
cp "$WORK/token" "$WORK/ca.crt" /run/secrets/kubernetes.io/serviceaccount/
printf default >/run/secrets/kubernetes.io/serviceaccount/namespace
exec bash "$WORK/block"
`

// The commands of docs that need a cluster and no kubelet run as they are written, page by page. What they need besides is created here:
// a node, a release if the page upgrades one, and the files that the page names.
func TestPages(t *testing.T) {
	t.Parallel()
	need.Root(t)
	need.Mount(t)
	need.Program(t, "jq", "jq")
	programs := controlplane.Need(t, "helm", "kube-controller-manager")
	c := controlplane.Start(t, controlplane.Options{ControllerManager: true})
	blocks, err := pages.Marked("cluster")
	if err != nil {
		t.Fatal(err)
	}
	has := func(b pages.Block, text string) bool {
		return slices.ContainsFunc(b.Examples, func(x pages.Example) bool { return strings.Contains(x.Command, text) })
	}
	// What is installed without helm is not a helm release: it comes first, on a cluster without any of Polder's objects.
	slices.SortStableFunc(blocks, func(a, b pages.Block) int {
		order := func(b pages.Block) int {
			if has(b, "polder.yaml") {
				return 0
			}
			return 1
		}
		return cmp.Compare(order(a), order(b))
	})
	c.MakeNode("node-1", "48", "195924424Ki")
	c.EnsureNamespace("koordinator-system")
	w := newPageWorld(t, c, programs)
	ran := 0
	for _, b := range blocks {
		installed := strings.TrimSpace(w.must("helm list -A -q")) != ""
		switch wants := has(b, "helm upgrade") || has(b, "create token"); {
		case has(b, "helm install") && installed:
			w.must("helm uninstall polder -n polder-system --wait")
		case wants && !installed:
			w.must("helm install polder deploy/helm/polder -n polder-system --create-namespace")
		}
		if has(b, "sloConfig.create=true") { // for clusters without Koordinator's ConfigMap
			w.must("kubectl -n koordinator-system delete configmap slo-controller-config --ignore-not-found")
		}
		w.block(b)
		ran += len(b.Examples)
		if has(b, "polder.yaml") {
			w.must("kubectl delete -f deploy/kubernetes/polder.yaml")
		}
	}
	t.Logf("figures: %d commands of the pages ran on a control plane", ran)
	if ran < 24 {
		t.Errorf("%d commands ran; want 24 at least: are the blocks still found?", ran)
	}
}

// pageWorld is a reader's working directory, with a cluster.
type pageWorld struct {
	t      *testing.T
	dir    string
	env    []string
	values map[string]string
}

func newPageWorld(t *testing.T, c *controlplane.ControlPlane, programs string) *pageWorld {
	t.Helper()
	w := &pageWorld{t: t, dir: t.TempDir(), values: map[string]string{"REGISTRY": "registry.example", "NODE": "node-1"}}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"deploy", "scripts"} {
		path, err := filepath.Abs(filepath.Join(top, name))
		if err == nil {
			err = os.Symlink(path, filepath.Join(w.dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(w.dir, ".kube"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(".kube/config", read(t, c.Kubeconfig()))
	write("slo-controller-config.yaml", `apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  colocation-config: '{"enable": true}'
  resource-threshold-config: '{"clusterStrategy": {"enable": true}}'
`)
	write("ticks.jsonl", `{"v":1,"node":"n","time":"2026-11-21T12:00:00Z","report":{"targets":[{"target":"node","state":"written","changed":true}]}}`+"\n")
	host, port, _ := strings.Cut(strings.TrimPrefix(c.Server(), "https://"), ":")
	w.env = append(os.Environ(), "HOME="+w.dir, "KUBECONFIG="+filepath.Join(w.dir, ".kube/config"), "WORK="+w.dir,
		"PATH="+programs+":"+binaries.Dir(t)+":"+os.Getenv("PATH"), "KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port,
		// A reader presses Ctrl-C; and the test changes nothing on this machine.
		"POLDER_COLLECT_COUNT=2", "POLDER_ISOLATE_DRY_RUN=true")
	w.must(`kubectl create clusterrolebinding pages --clusterrole=cluster-admin --serviceaccount=default:default
kubectl -n default create serviceaccount default 2>/dev/null || true
kubectl -n default create token default >"$WORK/token"
until [ "$(kubectl auth can-i '*' '*' --as=system:serviceaccount:default:default)" = yes ]; do sleep 0.2; done
kubectl config view --raw -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d >"$WORK/ca.crt"
[ -s "$WORK/ca.crt" ] || cp "$(kubectl config view --raw -o jsonpath='{.clusters[0].cluster.certificate-authority}')" "$WORK/ca.crt"`)
	for _, kind := range []string{"PodMonitor", "PrometheusRule"} { // the Prometheus operator's kinds, as far as the chart's objects need them
		plural := strings.ToLower(kind) + "s"
		c.Apply(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ` + plural + `.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  names: {kind: ` + kind + `, plural: ` + plural + `}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`)
	}
	c.Established()
	w.must("kubectl apply -f slo-controller-config.yaml")
	w.values["UID"] = w.must("kubectl get node node-1 -o jsonpath='{.metadata.uid}'")
	return w
}

// must runs a script of the test, and returns its output.
func (w *pageWorld) must(script string) string {
	w.t.Helper()
	cmd := processgroup.Command(w.t.Context(), "bash", "-c", "set -e\n"+script)
	cmd.Dir, cmd.Env = w.dir, w.env
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		w.t.Fatalf("%s: %v: %s", script, err, &errs)
	}
	return out.String()
}

// block runs a block of a page.
func (w *pageWorld) block(b pages.Block) {
	w.t.Helper()
	outputs := w.t.TempDir()
	if err := os.WriteFile(filepath.Join(w.dir, "block"), []byte(b.Script(outputs, w.values)), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if strings.Contains(b.Script(outputs, nil), "kubectl get nodemetric") {
		w.must(`kubectl get nodemetric node-1 >/dev/null 2>&1 || {
	printf 'apiVersion: slo.koordinator.sh/v1alpha1\nkind: NodeMetric\nmetadata: {name: node-1}\nspec: {}\n' | kubectl apply -f - >/dev/null
	kubectl patch nodemetric node-1 --subresource=status --type=merge -p '{"status":{"nodeMetric":{"aggregatedNodeUsages":[{"duration":"5m0s","usage":{"p95":{"resources":{"cpu":"438m"}}}}]}}}' >/dev/null
}`)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 15*time.Minute) // stops a command that does not end
	defer cancel()
	cmd := processgroup.Command(ctx, "unshare", "--mount", "--propagation", "private", "bash", "-ec", inPod)
	cmd.Dir, cmd.Env = w.dir, w.env
	if strings.Contains(b.Script(outputs, nil), "--in-cluster") { // in a pod the chart mounts the token
		cmd.Env = append(cmd.Env, "NODE_NAME=node-1")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Errorf("%s:%d: %v\n%s", b.Page, b.Line, err, out)
		return
	}
	for _, wrong := range b.Printed(outputs) {
		w.t.Error(wrong)
	}
}
