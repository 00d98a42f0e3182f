package deploy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"polder/tests/cluster/controlplane"
)

// One value makes all tools use the policy, and each setting can be overridden.
func TestPolicyIsASetting(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct{ set, want, not []string }{
		"katalyst": {nil, []string{
			`{name: POLDER_EVICT_RULES, value: "reclaimed-resource-pressure-eviction-plugin"}`, `{name: POLDER_REPORT_TO, value: "cnr,node"}`,
		}, []string{"POLDER_ADVISE_POLICY", "SLO_CONFIG", "BEST_EFFORT", "nodemetrics]", "koordinator-system", "MutatingAdmissionPolicy", "PriorityClass\n"}},
		"koordinator": {[]string{"policy=koordinator", "scheduler.enabled=true"}, []string{
			`{name: POLDER_ADVISE_POLICY, value: "koordinator"}`, `{name: POLDER_COLLECT_SLO_CONFIG, value: "koordinator-system/slo-controller-config"}`,
			`{name: POLDER_COLLECT_BEST_EFFORT, value: "reclaimed"}`, `{name: POLDER_REPORT_TO, value: "node,nodemetric"}`,
			`{name: POLDER_EVICT_RULES, value: "BEMemoryEvict,BECPUEvict,MemoryAllocatableEvict,CPUAllocatableEvict,MemoryEvict,CPUEvict"}`,
			"--leader-elect-resource-name=koord-scheduler", "schedulerName: koord-scheduler",
		}, []string{"kind: ConfigMap\nmetadata:\n  name: slo-controller-config", "MutatingAdmissionPolicy", "kind: PriorityClass\n", "schedulerName: katalyst-scheduler"}},
		"overridden": {
			[]string{"policy=koordinator", "koordinator.sloConfig.namespace=ops", "koordinator.sloConfig.name=slo", "evict.flags.rules=BEMemoryEvict", "report.to={node,table}", "collect.flags.best-effort=shared"},
			[]string{
				`{name: POLDER_COLLECT_SLO_CONFIG, value: "ops/slo"}`, `{name: POLDER_EVICT_RULES, value: "BEMemoryEvict"}`, `{name: POLDER_REPORT_TO, value: "node,table"}`,
				`{name: POLDER_COLLECT_BEST_EFFORT, value: "shared"}`, `{name: POLDER_REPORT_OUTPUT, value: "-"}`,
			},
			[]string{"nodemetrics, ", "koordinator-system"},
		},
		"in the namespace of the ConfigMap": { // helm creates it, or it exists
			[]string{"policy=koordinator", "koordinator.sloConfig.namespace=" + namespace}, []string{"  name: polder-collect\n  namespace: " + namespace}, []string{"kind: Namespace\n"},
		},
		"withdrawn by the names that it was offered by": {
			[]string{"policy=koordinator", "restore=true", "report.flags.resource-prefix=koordinator.sh"}, []string{`{name: POLDER_REPORT_RESOURCE_PREFIX, value: "koordinator.sh"}`}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := template(t, append([]string{"dryRun=false"}, one.set...)...)
			for _, want := range one.want {
				if !strings.Contains(out, want) {
					t.Errorf("the chart lacks %s", want)
				}
			}
			for _, not := range one.not {
				if not == "nodemetrics, " { // the policy own-node names them, whichever account may write them
					not = "resources: [nodemetrics], verbs"
				}
				if strings.Contains(out, not) {
					t.Errorf("the chart contains %s", not)
				}
			}
		})
	}
}

// collect may read resctrl, and only isolate may write it.
func TestResctrlIsMountedWhereItIsAskedFor(t *testing.T) {
	t.Parallel()
	for set, want := range map[string][]string{
		"form=containers": {"- {name: resctrl, mountPath: /sys/fs/resctrl, readOnly: true}", "- {name: resctrl, mountPath: /sys/fs/resctrl}"},
		"form=single":     {"- {name: resctrl, mountPath: /sys/fs/resctrl}"},
		"restore=true":    {"- {name: resctrl, mountPath: /sys/fs/resctrl}"},
	} {
		var got []string
		out := template(t, "host.resctrl=true", set)
		for line := range strings.Lines(out) {
			if strings.Contains(line, "name: resctrl, ") {
				got = append(got, strings.TrimSpace(line))
			}
		}
		if !slices.Equal(got, want) || !strings.Contains(out, "hostPath: {path: /sys/fs/resctrl, type: Directory}") {
			t.Errorf("%s: it is mounted as %q, want %q", set, got, want)
		}
		if strings.Contains(template(t, set), "resctrl") {
			t.Errorf("%s: it is mounted by default", set)
		}
	}
}

// installKoordinator installs the chart with policy koordinator and its objects, and removes it.
func installKoordinator(t *testing.T, c *controlplane.ControlPlane, run func(args ...string) string) {
	t.Helper()
	koordinator := []string{"--namespace", namespace, "--set", "dryRun=false,policy=koordinator,koordinator.priorityClasses=true,koordinator.profiles.enabled=true"}
	notes := run(append([]string{"install", "polder", chart}, koordinator...)...)
	for _, want := range []string{
		"kubectl get nodemetrics", "schedulerName: koord-scheduler wait", "There is no ConfigMap koordinator-system/slo-controller-config",
		"Before you change policy on a running release, run it once with --set restore=true",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not contain %q:\n%s", want, notes)
		}
	}
	if notes := run(append([]string{"upgrade", "polder", chart, "--set", "koordinator.sloConfig.create=true"}, koordinator...)...); strings.Contains(notes, "There is no ConfigMap") {
		t.Errorf("the notes do not list what was created:\n%s", notes)
	}
	checked(t, c, "polder-own-node", "polder-pods", "polder-profile-patches")
	if got := c.Kubectl("-n", "koordinator-system", "get", "configmap", "slo-controller-config", "-o", "jsonpath={.data.resource-threshold-config}"); !strings.Contains(got, `"enable": true`) {
		t.Errorf("the ConfigMap has %s", got)
	}
	if got := c.Kubectl("get", "priorityclasses", "-o", `jsonpath={range .items[?(@.metadata.labels)]}{.metadata.name}={.value} {end}`); got != "koord-batch=5000 koord-free=3000 koord-mid=7000 koord-prod=9000" {
		t.Errorf("the priority classes are %s", got)
	}
	run("uninstall", "polder", "--namespace", namespace)
	c.Kubectl("get", "namespace", "koordinator-system") // other programs' objects may be in it
	// Into the ConfigMap's own namespace, which helm creates as well.
	c.Kubectl("delete", "namespace", "koordinator-system")
	run("install", "polder", chart, "--namespace", "koordinator-system", "--create-namespace", "--set", "policy=koordinator")
	if got := c.Kubectl("-n", "koordinator-system", "get", "rolebinding", "polder-collect", "-o", "jsonpath={.subjects[0].namespace}"); got != "koordinator-system" {
		t.Errorf("the role is bound to an account in namespace %s", got)
	}
	run("uninstall", "polder", "--namespace", "koordinator-system")
	if left := c.Kubectl("get", "mutatingadmissionpolicies,mutatingadmissionpolicybindings,priorityclasses", "-o", "name", "-l", "app.kubernetes.io/name=polder"); left != "" {
		t.Errorf("uninstalling leaves %s", left)
	}
}

// helm upgrade installs no definitions. Without the profiles' definition the policies would refuse every pod, so the chart refuses first.
func TestUpgradeNeedsTheDefinitions(t *testing.T) {
	t.Parallel()
	c := controlplane.Start(t, controlplane.Options{}) // a server that has never had the profiles
	run := func(args ...string) (string, error) { return helmOn(t, c, append(args, "--namespace", namespace)...) }
	c.MakeNamespace(namespace)
	if out, err := run("install", "polder", chart); err != nil {
		t.Fatal(out)
	}
	c.Kubectl("delete", "crd", "clustercolocationprofiles.config.koordinator.sh", "nodemetrics.slo.koordinator.sh")
	c.Undefined("config.koordinator.sh")
	c.Undefined("slo.koordinator.sh")
	enable := []string{"upgrade", "polder", chart, "--set", "policy=koordinator,koordinator.profiles.enabled=true"}
	const first = "kubectl apply --server-side -f deploy/kubernetes/crds"
	if out, err := run(enable...); err == nil || !strings.Contains(out, "helm upgrade installs none: the API server would refuse every pod. First: "+first) {
		t.Errorf("helm returns %v: %s", err, out)
	}
	pod := func(namespace string) string {
		status, answer := c.API("POST", core+"/namespaces/"+namespace+"/pods?dryRun=All", `{"metadata":{"name":"p"},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"none"}]}}`)
		if status != http.StatusCreated {
			return fmt.Sprintf("a pod in %s is answered with %d: %s", namespace, status, answer)
		}
		return ""
	}
	if left := c.Kubectl("get", "mutatingadmissionpolicies", "-o", "name"); left != "" || pod("default") != "" {
		t.Errorf("there is %s, and %s", left, pod("default"))
	}
	// Policy koordinator without the profiles does no harm, and the notes name what is missing.
	if out, err := run("upgrade", "polder", chart, "--set", "policy=koordinator"); err != nil || !strings.Contains(out, "no CRD of NodeMetrics, and helm upgrade installs none: "+first) {
		t.Errorf("helm returns %v: %s", err, out)
	}
	// The remedy that the chart's message names is sufficient.
	c.ApplyFile(manifests + "/crds")
	c.Established()
	if out, err := run(enable...); err != nil || strings.Contains(out, "no CRD of NodeMetrics") {
		t.Fatalf("%v: %s", err, out)
	}
	// If somebody deletes the definition nevertheless, the system's pods and Polder's own can be created. A server that has seen the
	// definition may use it until it is restarted.
	c.Kubectl("delete", "crd", "clustercolocationprofiles.config.koordinator.sh")
	c.StopAPIServer()
	c.StartAPIServer()
	// A server that has just started refuses every pod for some time: what it answers in the end counts, of all three.
	c.Eventually(soon, "other pods are refused, and these are not", func() string {
		for _, exempt := range []string{"kube-system", namespace} {
			if problem := pod(exempt); problem != "" {
				return problem
			}
		}
		if pod("default") == "" {
			return "others are made"
		}
		return ""
	})
}

// checked waits until the server has type-checked the policies.
func checked(t *testing.T, c *controlplane.ControlPlane, policies ...string) {
	t.Helper()
	for _, policy := range policies {
		c.Eventually(soon, "the server has checked "+policy, func() string {
			if c.Kubectl("get", "validatingadmissionpolicy", policy, "-o", "jsonpath={.status.observedGeneration}") == "" {
				return "it has not"
			}
			if warnings := c.Kubectl("get", "validatingadmissionpolicy", policy, "-o", "jsonpath={.status.typeChecking.expressionWarnings}"); warnings != "" {
				t.Fatalf("%s: %s", policy, warnings)
			}
			return ""
		})
	}
}

const (
	nodeMetrics = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
	sloMap      = core + "/namespaces/koordinator-system/configmaps"
)

func nodeMetric(name string) string {
	return fmt.Sprintf(`{"apiVersion":"slo.koordinator.sh/v1alpha1","kind":"NodeMetric","metadata":{"name":%q},"spec":{}}`, name)
}

// With policy koordinator, collect may read the one ConfigMap, and report may write its own node's NodeMetric and resources.
func TestKoordinatorRoles(t *testing.T) {
	c := cluster(t)
	out, err := helm(t, "template", "koord", chart, "--namespace", namespace, "--kube-version", "1.36.0", "--api-versions", "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy",
		"--set", "policy=koordinator,koordinator.sloConfig.create=true")
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(out)
	c.MakeNode("koord-1", "48", "195924424Ki")
	c.MakeNode("koord-2", "48", "195924424Ki")
	c.Apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: koordinator-system}, data: {a: b}}")
	collect, report, katalyst := account(t, c, "koord-polder-collect", "koord-1"), account(t, c, "koord-polder-report", "koord-1"), account(t, c, "polder-collect", "koord-1")
	const node = core + "/nodes/koord-1/status"
	measured := `{"status":{"updateTime":"2026-11-21T12:00:00Z","nodeMetric":{"nodeUsage":{"resources":{"cpu":"138m","memory":"1815637738"}}}}}`
	batch := func(prefix, amount string) string {
		list := fmt.Sprintf(`{"%[1]s/batch-cpu":%[2]s,"%[1]s/batch-memory":%[2]s,"%[1]s/mid-cpu":%[2]s,"%[1]s/mid-memory":%[2]s}`, prefix, amount)
		return `{"status":{"capacity":` + list + `,"allocatable":` + list + `}}`
	}
	answered(t, []attempt{
		{"another node", report, patch("merge", core+"/nodes/koord-2/status", batch("kubernetes.io", `"1k"`)), "Polder's token is of node koord-1: it may not write nodes koord-2"},

		{"the ConfigMap by watch", collect, get(sloMap + "?fieldSelector=metadata.name%3Dslo-controller-config&watch=true"), ""},
		{"the ConfigMap in a list", collect, get(sloMap + "?fieldSelector=metadata.name%3Dslo-controller-config"), ""},
		{"the ConfigMap by name", collect, get(sloMap + "/slo-controller-config"), "cannot get"},
		{"another", collect, get(sloMap + "/other"), "cannot get"},
		{"another in a list", collect, get(sloMap + "?fieldSelector=metadata.name%3Dother"), "cannot list"},
		{"all of the namespace", collect, get(sloMap), "cannot list"},
		{"all of the cluster", collect, get(core + "/configmaps?fieldSelector=metadata.name%3Dslo-controller-config"), "cannot list"},
		{"the same name elsewhere", collect, get(core + "/namespaces/default/configmaps?fieldSelector=metadata.name%3Dslo-controller-config"), "cannot list"},
		{"the ConfigMap's change", collect, patch("merge", sloMap+"/slo-controller-config", `{"data":{}}`), "cannot patch"},
		{"its secrets", collect, get(core + "/namespaces/koordinator-system/secrets"), "cannot list"},
		{"NodeMetrics", collect, get(nodeMetrics), "cannot list"},
		{"the ConfigMap with policy katalyst", katalyst, get(sloMap + "?fieldSelector=metadata.name%3Dslo-controller-config"), "cannot list"},
		{"the ConfigMap by report", report, get(sloMap + "?fieldSelector=metadata.name%3Dslo-controller-config"), "cannot list"},

		{"another node's NodeMetric", report, post(nodeMetrics, nodeMetric("koord-2")), "Polder's token is of node koord-1: it may not write nodemetrics koord-2"},
		{"its NodeMetric", report, post(nodeMetrics, nodeMetric("koord-1")), ""},
		{"its status", report, patch("merge", nodeMetrics+"/koord-1/status", measured), ""},
		{"its own but for the status", report, patch("merge", nodeMetrics+"/koord-1", `{"metadata":{"labels":{"a":"b"}}}`), "cannot patch"},
		{"it", report, get(nodeMetrics + "/koord-1"), "cannot get"},
		{"all of them", report, get(nodeMetrics), "cannot list"},
		{"all of them by watch", report, get(nodeMetrics + "?watch=true"), "cannot watch"},
		{"its end", report, remove(nodeMetrics + "/koord-1"), "cannot delete"},
		{"its whole", report, put(nodeMetrics+"/koord-1", nodeMetric("koord-1")), "cannot update"},

		{"batch and mid", report, patch("merge", node, batch("kubernetes.io", `"1k"`)), ""},
		{"by the old names", report, patch("merge", node, batch("koordinator.sh", `"1k"`)), ""},
		{"removed again", report, patch("merge", node, batch("koordinator.sh", "null")), ""},
		{"a foreign resource", report, patch("merge", node, `{"status":{"capacity":{"koordinator.sh/gpu-core":"100"}}}`), "Polder may change its own resources alone, not koordinator.sh/gpu-core"},
		{"a profile", report, post("/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles", `{}`), "cannot create"},
		{"profiles", report, get("/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"), "cannot list"},
	})
	// Another node's NodeMetric, written by another program, cannot be changed either.
	if status, answer := c.API("POST", nodeMetrics, nodeMetric("koord-2")); status != http.StatusCreated {
		t.Fatalf("status %d: %s", status, answer)
	}
	code, message := report.send(t, patch("merge", nodeMetrics+"/koord-2/status", `{"status":{"updateTime":"2026-11-21T12:00:00Z"}}`), func(int) bool { return false })
	if code != http.StatusForbidden || !strings.Contains(message, "it may not write nodemetrics koord-2") {
		t.Errorf("patching another node's status returns status %d: %s", code, message)
	}
	want := []string{
		" nodes get,list,watch",
		" nodes/status patch",
		"node.katalyst.kubewharf.io customnoderesources create,get,list,patch,watch", // the previous policy's, to withdraw them
		"node.katalyst.kubewharf.io customnoderesources/status patch",
		"slo.koordinator.sh nodemetrics create",
		"slo.koordinator.sh nodemetrics/status patch",
	}
	c.Eventually(soon, "the server knows report's roles", func() string {
		if got := may(t, c, "koord-polder-report"); !slices.Equal(got, want) {
			return fmt.Sprintf("report may\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return ""
	})
}
