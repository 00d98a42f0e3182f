package deploy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"polder/tests/cluster/controlplane"
)

// withCentre is the shared control plane with the fleet controller installed.
func withCentre(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	c := cluster(t)
	c.Apply(template(t, "centre.enabled=true"))
	return c
}

func TestCentreHasNoMoreThanIsSaidHere(t *testing.T) {
	c := withCentre(t)
	want := []string{
		" nodes get,list,patch,watch",
		" nodes/status patch",
		" pods get,list,watch",
		" pods/eviction create",
		"config.katalyst.kubewharf.io adminqosconfigurations list,watch",
		"config.katalyst.kubewharf.io evictionconfigurations list,watch",
		"config.katalyst.kubewharf.io katalystcustomconfigs get,list,watch",
		"config.katalyst.kubewharf.io katalystcustomconfigs/status patch",
		"events.k8s.io events create,patch",
		"node.katalyst.kubewharf.io customnoderesources create,get,list,patch,watch",
		"node.katalyst.kubewharf.io customnoderesources/status patch",
	}
	c.Eventually(soon, "the server knows the roles", func() string {
		if got := may(t, c, "polder-centre"); !slices.Equal(got, want) {
			return fmt.Sprintf("it may\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return ""
	})
	s := account(t, c, "polder-centre", "")
	for _, r := range []request{
		post("/apis/coordination.k8s.io/v1/namespaces/default/leases", `{"metadata":{"name":"polder-centre"}}`),
		put("/apis/coordination.k8s.io/v1/namespaces/"+namespace+"/leases/other", `{"metadata":{"name":"other"}}`),
		remove("/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/polder-centre"),
		remove(core + "/namespaces/default/pods/x"),
		get(core + "/secrets"),
	} {
		if status, message := s.send(t, r, func(int) bool { return false }); status != http.StatusForbidden {
			t.Errorf("%s returns status %d (%s), want it forbidden", r, status, message)
		}
	}
}

// Permission to patch nodes is permission to mark them.
func TestCentreMayMarkNodesAndNothingElse(t *testing.T) {
	c := withCentre(t)
	c.MakeNode("centre-1", "4", "8Gi")
	c.Kubectl("annotate", "node", "centre-1", "other=x")
	s := account(t, c, "polder-centre", "")
	node := core + "/nodes/centre-1"
	forbidden := func(status int) bool { return status == http.StatusForbidden }
	for _, r := range []request{
		patch("merge", node, `{"metadata":{"annotations":{"polder/withdrawn":"agent-health: it is away"}}}`),
		patch("merge", node+"/status", amount),
		patch("merge", node, `{"metadata":{"annotations":{"polder/withdrawn":null}}}`),
		post("/apis/coordination.k8s.io/v1/namespaces/"+namespace+"/leases", `{"metadata":{"name":"polder-centre"}}`),
		get("/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/polder-centre"),
	} {
		if status, message := s.send(t, r, forbidden); status/100 != 2 {
			t.Errorf("%s returns status %d: %s", r, status, message)
		}
	}
	for body, want := range map[string]string{
		`{"spec":{"unschedulable":true}}`:                                          "may not change a node's spec",
		`{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`:                   "may not change a node's spec",
		`{"metadata":{"labels":{"x":"y"}}}`:                                        "may not change a node's spec, labels",
		`{"metadata":{"annotations":{"other":null}}}`:                              "polder/withdrawn alone",
		`{"metadata":{"annotations":{"other":"y"}}}`:                               "polder/withdrawn alone",
		`{"metadata":{"annotations":{"more":"y"}}}`:                                "polder/withdrawn alone",
		`{"metadata":{"finalizers":["example.com/x"]}}`:                            "finalizers",
		`{"metadata":{"annotations":{"polder/withdrawn":"x"},"labels":{"a":"b"}}}`: "labels",
	} {
		// The server may not know all of the policies yet.
		attempt{body, s, patch("merge", node+"?dryRun=All", body), want}.try(t)
	}
	answered(t, []attempt{{
		"more CPUs", s, patch("merge", node+"/status", `{"status":{"capacity":{"cpu":"400"}}}`), "its own resources alone, not cpu",
	}})
}

// The API server's defaults applied to the Deployment: two pods on different nodes, no permission on their nodes, and none by default.
func TestCentreIsApartAndConfined(t *testing.T) {
	c := withCentre(t)
	var d struct {
		Spec struct {
			Replicas int
			Selector struct{ MatchLabels map[string]string }
			Template struct {
				Metadata struct{ Labels map[string]string }
				Spec     struct {
					AutomountServiceAccountToken bool
					HostPID, HostNetwork         bool
					SecurityContext              struct {
						RunAsNonRoot bool
						RunAsUser    int
					}
					Affinity   struct{ PodAntiAffinity map[string]any }
					Containers []container
					Volumes    []map[string]any
				}
			}
		}
	}
	c.Get("/apis/apps/v1/namespaces/"+namespace+"/deployments/polder-centre", &d)
	spec := d.Spec.Template.Spec
	if d.Spec.Replicas != 2 || len(spec.Affinity.PodAntiAffinity) == 0 || len(spec.Containers) != 1 {
		t.Errorf("%+v; want two pods of one container on different nodes", d.Spec)
	}
	if d.Spec.Template.Metadata.Labels["app.kubernetes.io/name"] == "polder" {
		t.Error("the fleet controller has its agents' label, and would count itself as an agent")
	}
	s := spec.Containers[0].SecurityContext
	if spec.HostPID || spec.HostNetwork || !spec.SecurityContext.RunAsNonRoot || spec.SecurityContext.RunAsUser == 0 || spec.AutomountServiceAccountToken ||
		s.Privileged || s.AllowPrivilegeEscalation || !s.ReadOnlyRootFilesystem || len(s.Capabilities.Drop) != 1 {
		t.Errorf("the pod is %+v", spec)
	}
	for _, v := range spec.Volumes {
		if v["hostPath"] != nil {
			t.Errorf("it mounts volumes %v", v)
		}
	}
	var pdb struct {
		Spec struct {
			Selector struct{ MatchLabels map[string]string }
		}
	}
	c.Get("/apis/policy/v1/namespaces/"+namespace+"/poddisruptionbudgets/polder-centre", &pdb)
	if fmt.Sprint(pdb.Spec.Selector.MatchLabels) != fmt.Sprint(d.Spec.Selector.MatchLabels) {
		t.Errorf("the budget selects labels %v, the pods have %v", pdb.Spec.Selector.MatchLabels, d.Spec.Selector.MatchLabels)
	}
	if out := template(t); strings.Contains(out, "kind: Deployment") {
		t.Error("the fleet controller is installed by default")
	}
}

// With restore=true no controller leads any more when the marks are removed: the pods that did have ended before. Helm changes the strategy
// of an existing Deployment, and changes it back.
func controllerEndsBeforeItsMarksAreRemoved(t *testing.T, c *controlplane.ControlPlane) {
	run := func(args ...string) {
		t.Helper()
		if out, err := helmOn(t, c, append(args, "--namespace", namespace)...); err != nil {
			t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	check := func(want string) {
		t.Helper()
		if got := c.Kubectl("get", "deployment", "-n", namespace, "polder-centre", "-o", "jsonpath={.spec.strategy.type} of {.spec.replicas}: {.spec.template.spec.initContainers[*].command}"); got != want {
			t.Errorf("the Deployment is %s; want %s", got, want)
		}
	}
	const running, restored = "RollingUpdate of 2:", `Recreate of 2: ["/usr/local/bin/report","fleet","--withdraw"]`
	run("install", "polder", chart, "--create-namespace", "--set", "centre.enabled=true")
	check(running)
	// An upgrade that does not complete, because no kubelet makes these pods Ready.
	active := func(what, want string) {
		t.Helper()
		c.Eventually(soon, what, func() string {
			got := strings.Fields(c.Kubectl("get", "replicasets", "-n", namespace, "-o",
				"jsonpath={range .items[?(@.spec.replicas>0)]}{.spec.replicas}*{.spec.template.spec.containers[0].name}{\"\\n\"}{end}"))
			slices.Sort(got)
			if all := strings.Join(got, " "); all != want {
				return "there are " + all
			}
			return ""
		})
	}
	active("the pods", "2*centre")
	run("upgrade", "polder", chart, "--reuse-values", "--set", "podAnnotations.revision=second")
	active("a pod of the next revision beside them", "1*centre 2*centre")
	run("upgrade", "polder", chart, "--reuse-values", "--set", "restore=true")
	check(restored)
	active("those alone that take the marks back", "2*done")
	run("upgrade", "polder", chart, "--reuse-values", "--set", "restore=false")
	check(running)
	// The same with server-side apply, for users who render the chart themselves.
	run("uninstall", "polder")
	for _, restore := range []string{"false", "true", "false"} {
		c.Apply(template(t, "centre.enabled=true", "restore="+restore))
		check(map[string]string{"false": running, "true": restored}[restore])
	}
	if _, err := c.TryKubectl(template(t, "centre.enabled=true"), "delete", "-f", "-"); err != nil {
		t.Error(err)
	}
}
