package deploy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/tests/cluster/controlplane"
)

// caller sends requests to the API server with one token.
type caller struct {
	http          *http.Client
	server, token string
}

// newCaller returns a caller without a token.
func newCaller(t *testing.T, c *controlplane.ControlPlane) *caller {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(read(t, c.CA()))) {
		t.Fatalf("%s has no certificate", c.CA())
	}
	s := &caller{&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, Timeout: soon}, c.Server(), ""}
	t.Cleanup(s.http.CloseIdleConnections)
	return s
}

// account returns a caller with the token of a service account of the chart, bound to the node if one is named.
func account(t *testing.T, c *controlplane.ControlPlane, name, node string) *caller {
	t.Helper()
	s := newCaller(t, c)
	if node == "" {
		s.token = c.Token(namespace, name)
		return s
	}
	var object struct{ Metadata struct{ UID string } }
	c.Get("/api/v1/nodes/"+node, &object)
	s.token = boundToken(t, c, name, "Node", node, object.Metadata.UID)
	return s
}

// boundToken creates a token of a service account that is bound to an object.
func boundToken(t *testing.T, c *controlplane.ControlPlane, account, kind, name, uid string) string {
	t.Helper()
	status, answer := c.API(http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token", fmt.Sprintf(
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"boundObjectRef":{"apiVersion":"v1","kind":%q,"name":%q,"uid":%q}}}`,
		kind, name, uid))
	var request struct{ Status struct{ Token string } }
	if err := json.Unmarshal(answer, &request); err != nil || status != http.StatusCreated {
		t.Fatalf("token of %s for %s %s: status %d: %s", account, kind, name, status, answer)
	}
	return request.Status.Token
}

// podOf returns a caller with a token of a service account bound to a pod on the node, as kubelet requests it for the chart's pods.
func podOf(t *testing.T, c *controlplane.ControlPlane, account, node string) *caller {
	t.Helper()
	pod := account + "-of-" + node
	c.Apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":%q},"spec":{"nodeName":%q,"serviceAccountName":%q,"automountServiceAccountToken":false,"containers":[{"name":"main","image":"none"}]}}`,
		pod, namespace, node, account))
	var object struct{ Metadata struct{ UID string } }
	c.Get(core+"/namespaces/"+namespace+"/pods/"+pod, &object)
	s := newCaller(t, c)
	s.token = boundToken(t, c, account, "Pod", pod, object.Metadata.UID)
	return s
}

// send sends a request and returns the response's status, and its message if it is a failure. The API server learns of new roles and
// policies with some delay: retry reports whether a status means to send it again. It is sent again, too, while the server wants requests
// later, as the first ones for a kind.
func (s *caller) send(t *testing.T, r request, retry func(status int) bool) (status int, message string) {
	t.Helper()
	for deadline := time.Now().Add(soon); ; time.Sleep(50 * time.Millisecond) {
		req, err := http.NewRequest(r.method, s.server+r.path, strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+s.token)
		if r.body != "" {
			req.Header.Set("Content-Type", r.contentType())
		}
		resp, err := s.http.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", r, err)
		}
		var answer []byte
		if !strings.Contains(r.path, "watch=true") || resp.StatusCode != http.StatusOK {
			answer, err = io.ReadAll(resp.Body)
		}
		resp.Body.Close()
		if err != nil {
			t.Fatalf("%s: %v", r, err)
		}
		if resp.StatusCode/100 != 2 {
			var failure struct{ Message string }
			_ = json.Unmarshal(answer, &failure) // the message stays empty if the response has none
			message = failure.Message
		}
		if resp.StatusCode != http.StatusTooManyRequests && !retry(resp.StatusCode) || time.Now().After(deadline) {
			return resp.StatusCode, message
		}
		message = ""
	}
}

// request is one request to the API server; patch is the kind of a PATCH.
type request struct{ method, path, body, patch string }

func (r request) String() string { return strings.TrimSpace(r.method + " " + r.patch + " " + r.path) }

func (r request) contentType() string {
	switch r.patch {
	case "":
		return "application/json"
	case "apply":
		return "application/apply-patch+yaml"
	}
	return "application/" + r.patch + "-patch+json"
}

const (
	core   = "/api/v1"
	cnrs   = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources"
	config = "/apis/config.katalyst.kubewharf.io/v1alpha1"
	events = "/apis/events.k8s.io/v1/namespaces/default/events"
	amount = `{"status":{"capacity":{"resource.katalyst.kubewharf.io/reclaimed_millicpu":"44k"},"allocatable":{"resource.katalyst.kubewharf.io/reclaimed_millicpu":"44k"}}}`
)

func evictionOf(pod string) string {
	return fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":"default"}}`, pod)
}

func cnr(name, rest string) string {
	return fmt.Sprintf(`{"apiVersion":"node.katalyst.kubewharf.io/v1alpha1","kind":"CustomNodeResource","metadata":{"name":%q}%s}`, name, rest)
}

// get, post, patch and remove make requests.
func get(path string) request               { return request{method: "GET", path: path} }
func post(path, body string) request        { return request{"POST", path, body, ""} }
func put(path, body string) request         { return request{"PUT", path, body, ""} }
func patch(kind, path, body string) request { return request{"PATCH", path, body, kind} }
func remove(path string) request            { return request{method: "DELETE", path: path} }

// work is the requests of each tool.
var work = map[string][]request{
	"collect": {
		get(core + "/pods?fieldSelector=spec.nodeName%3Droles-1"),
		get(core + "/pods?fieldSelector=spec.nodeName%3Droles-1&watch=true"),
		get(core + "/nodes?fieldSelector=metadata.name%3Droles-1"),
		get(core + "/nodes?fieldSelector=metadata.name%3Droles-1&watch=true"),
		get(config + "/katalystcustomconfigs"), get(config + "/katalystcustomconfigs?watch=true"),
		get(config + "/adminqosconfigurations"), get(config + "/adminqosconfigurations?watch=true"),
		get(config + "/evictionconfigurations"), get(config + "/evictionconfigurations?watch=true"),
	},
	"evict": {
		get(core + "/namespaces/default/pods/roles"),
		post(events, `{"metadata":{"name":"roles"},"eventTime":"2026-11-21T10:00:00.000000Z","action":"Evicting","reason":"EvictCreated","type":"Normal","note":"n","reportingController":"polder-evict","reportingInstance":"roles-1","regarding":{"kind":"Pod","namespace":"default","name":"roles"}}`),
		patch("merge", events+"/roles", `{"series":{"count":2,"lastObservedTime":"2026-11-21T10:01:00.000000Z"}}`),
		post(core+"/namespaces/default/pods/roles/eviction", evictionOf("roles")),
	},
	"report": {
		get(core + "/nodes/roles-1"),
		get(core + "/nodes?fieldSelector=metadata.name%3Droles-1"),
		get(core + "/nodes?fieldSelector=metadata.name%3Droles-1&watch=true"),
		patch("merge", core+"/nodes/roles-1/status", amount),
		patch("apply", cnrs+"/roles-1?fieldManager=polder-report", cnr("roles-1", "")),
		patch("apply", cnrs+"/roles-1/status?fieldManager=polder-report", cnr("roles-1", `,"status":{"resourceAllocatable":{"katalyst.kubewharf.io/reclaimed_millicpu":"44k"}}`)),
		patch("merge", cnrs+"/roles-1", `{"spec":{"taints":[{"key":"node.katalyst.kubewharf.io/CPUPressure","effect":"NoSchedule"}]}}`),
		get(cnrs + "/roles-1"), get(cnrs), get(cnrs + "?watch=true"),
	},
}

// forbiddenRequests is the requests that no token of Polder's may make.
var forbiddenRequests = []request{
	get(core + "/secrets"), get(core + "/namespaces/kube-system/secrets"), get(core + "/namespaces/polder-system/secrets/x"),
	get(core + "/configmaps"), get(core + "/namespaces"), get(core + "/serviceaccounts"),
	post(core+"/namespaces/polder-system/serviceaccounts/polder/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`),
	post(core+"/namespaces/default/pods", `{"metadata":{"name":"x"},"spec":{"containers":[{"name":"x","image":"x"}]}}`),
	remove(core + "/namespaces/default/pods/other"), remove(core + "/namespaces/default/pods"),
	patch("merge", core+"/namespaces/default/pods/other", `{"metadata":{"labels":{"a":"b"}}}`),
	patch("merge", core+"/namespaces/default/pods/other/status", `{"status":{"phase":"Failed"}}`),
	post(core+"/namespaces/default/pods/other/exec?command=sh", ""), get(core + "/namespaces/default/pods/other/log"),
	post(core+"/namespaces/default/pods/other/binding", `{"target":{"kind":"Node","name":"roles-1"}}`),
	patch("merge", core+"/nodes/roles-1", `{"spec":{"unschedulable":true}}`),
	remove(core + "/nodes/roles-1"), get(core + "/nodes/roles-1/proxy/pods"),
	put(core+"/nodes/roles-1/status", `{"metadata":{"name":"roles-1"}}`),
	remove(cnrs + "/roles-1"), put(cnrs+"/roles-1", cnr("roles-1", "")),
	post(config+"/namespaces/default/evictionconfigurations", `{"apiVersion":"config.katalyst.kubewharf.io/v1alpha1","kind":"EvictionConfiguration","metadata":{"name":"x"},"spec":{}}`),
	patch("merge", config+"/namespaces/default/evictionconfigurations/x", `{"spec":{}}`),
	remove(config + "/namespaces/default/evictionconfigurations/x"),
	remove(events + "/roles"), get(events),
	get("/apis/rbac.authorization.k8s.io/v1/clusterroles"),
	post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"x"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}}`),
	remove("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/polder-own-node"),
	get("/apis/apps/v1/daemonsets"), get("/apis/coordination.k8s.io/v1/leases"),
	remove("/apis/policy/v1/namespaces/default/poddisruptionbudgets/x"),
	get("/metrics"), get("/logs"),
}

func TestEachToolMayDoItsWorkAndNothingElse(t *testing.T) {
	c := cluster(t)
	c.MakeNode("roles-1", "4", "8Gi")
	t.Cleanup(func() { c.Kubectl("delete", "events.v1.events.k8s.io", "--all") })
	for _, pod := range []string{"roles", "other"} {
		c.Apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"default","annotations":{"katalyst.kubewharf.io/qos_level":"reclaimed_cores"}},"spec":{"nodeName":"roles-1","terminationGracePeriodSeconds":0,"containers":[{"name":"main","image":"none"}]}}`, pod))
	}
	for _, tool := range []string{"collect", "evict", "report"} {
		t.Run(tool, func(t *testing.T) {
			s := account(t, c, "polder-"+tool, "roles-1")
			for _, r := range work[tool] {
				// The server may not know the roles yet.
				late := func(status int) bool { return status == http.StatusForbidden }
				if status, message := s.send(t, r, late); status/100 != 2 {
					t.Errorf("%s returns status %d: %s", r, status, message)
				}
			}
			refused := slices.Clone(forbiddenRequests)
			for other, requests := range work {
				if other != tool {
					refused = append(refused, requests...)
				}
			}
			for _, r := range refused {
				if slices.Contains(work[tool], r) || tool == "report" && strings.HasPrefix(r.path, core+"/nodes?") || tool == "collect" && strings.HasPrefix(r.path, core+"/nodes?") {
					continue
				}
				status, message := s.send(t, r, func(int) bool { return false })
				if status != http.StatusForbidden || !strings.Contains(message, "cannot") {
					t.Errorf("%s returns status %d (%s), want it forbidden by RBAC", r, status, message)
				}
			}
		})
	}
}

// The API server's own list of a token's permissions, rule by rule: it contains nothing but what is listed here.
func TestRolesHaveNoMoreThanIsSaidHere(t *testing.T) {
	c := cluster(t)
	want := map[string][]string{
		"polder-collect": {
			"config.katalyst.kubewharf.io adminqosconfigurations list,watch",
			"config.katalyst.kubewharf.io evictionconfigurations list,watch",
			"config.katalyst.kubewharf.io katalystcustomconfigs list,watch",
			" nodes list,watch",
			" pods list,watch",
		},
		"polder-evict": {
			" pods get",
			" pods/eviction create",
			"events.k8s.io events create,patch",
		},
		"polder-report": {
			" nodes get,list,watch",
			" nodes/status patch",
			"node.katalyst.kubewharf.io customnoderesources create,get,list,patch,watch",
			"node.katalyst.kubewharf.io customnoderesources/status patch",
		},
		"polder": {
			" nodes get,list,watch",
			" nodes/status patch",
			" pods get,list,watch",
			" pods/eviction create",
			"config.katalyst.kubewharf.io adminqosconfigurations list,watch",
			"config.katalyst.kubewharf.io evictionconfigurations list,watch",
			"config.katalyst.kubewharf.io katalystcustomconfigs list,watch",
			"events.k8s.io events create,patch",
			"node.katalyst.kubewharf.io customnoderesources create,get,list,patch,watch",
			"node.katalyst.kubewharf.io customnoderesources/status patch",
		},
	}
	for name, rules := range want {
		t.Run(name, func(t *testing.T) {
			slices.Sort(rules)
			var got []string
			c.Eventually(soon, "the server knows the roles", func() string {
				got = may(t, c, name)
				if slices.Equal(got, rules) {
					return ""
				}
				return fmt.Sprintf("it may\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(rules, "\n"))
			})
		})
	}
}

// may lists a service account's permissions beyond those of every account.
func may(t *testing.T, c *controlplane.ControlPlane, name string) []string {
	t.Helper()
	s := account(t, c, name, "")
	req, err := http.NewRequest("POST", s.server+"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", strings.NewReader(`{"spec":{"namespace":"default"}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var review struct {
		Status struct {
			ResourceRules []struct {
				Verbs, APIGroups, Resources, ResourceNames []string
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&review); err != nil {
		t.Fatal(err)
	}
	verbs := map[string][]string{}
	for _, rule := range review.Status.ResourceRules {
		for _, group := range rule.APIGroups {
			if group == "authorization.k8s.io" || group == "authentication.k8s.io" {
				continue // every account may review its own identity and permissions
			}
			for _, resource := range rule.Resources {
				key := group + " " + resource
				verbs[key] = append(verbs[key], rule.Verbs...)
			}
		}
	}
	var list []string
	for key, v := range verbs {
		slices.Sort(v)
		list = append(list, key+" "+strings.Join(slices.Compact(v), ","))
	}
	slices.Sort(list)
	return list
}

// A token bound to a node is valid for that node only, and for Polder's own resources there.
func TestTokenIsGoodForItsNodeAlone(t *testing.T) {
	c := cluster(t)
	c.MakeNode("own-1", "48", "195924424Ki")
	c.MakeNode("own-2", "48", "195924424Ki")
	mine, unbound := account(t, c, "polder", "own-1"), account(t, c, "polder", "")
	status := func(node string) string { return core + "/nodes/" + node + "/status" }
	const own, resources = "ValidatingAdmissionPolicy 'polder-own-node'", "ValidatingAdmissionPolicy 'polder-own-resources'"
	answered(t, []attempt{
		{"another node", mine, patch("merge", status("own-2"), amount), own + " with binding 'polder-own-node' denied request: Polder's token is of node own-1: it may not write nodes own-2"},
		{"a token of no node", unbound, patch("merge", status("own-1"), amount), "Polder's token names no node: it must be a pod's, or be bound to a node"},
		{"another node's object", mine, patch("apply", cnrs+"/own-2?fieldManager=r", cnr("own-2", "")), "Polder's token is of node own-1: it may not write customnoderesources own-2"},
		{"the machine's CPUs", mine, patch("merge", status("own-1"), `{"status":{"allocatable":{"cpu":"480"}}}`), resources + " with binding 'polder-own-resources' denied request: Polder may change its own resources alone, not cpu"},
		{"without pods", mine, patch("merge", status("own-1"), `{"status":{"capacity":{"pods":null}}}`), "Polder may change its own resources alone, not pods"},
		{"another program's device", mine, patch("merge", status("own-1"), `{"status":{"capacity":{"example.com/gpu":"4"}}}`), "not example.com/gpu"},
		{"a name that looks like ours", mine, patch("merge", status("own-1"), `{"status":{"capacity":{"evil.katalyst.kubewharf.io/x":"4"}}}`), "not evil.katalyst.kubewharf.io/x"},
		{"readiness", mine, patch("strategic-merge", status("own-1"), `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`), "Polder may change capacity and allocatable alone of a node's status"},
		{"addresses", mine, patch("merge", status("own-1"), `{"status":{"addresses":[{"type":"InternalIP","address":"10.6.6.6"}]}}`), "Polder may change capacity and allocatable alone of a node's status"},
		{"a label", mine, patch("merge", status("own-1"), `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`), "Polder may not change a node's labels"},
		{"an annotation", mine, patch("merge", status("own-1"), `{"metadata":{"annotations":{"a":"b"}}}`), "Polder may not change a node's labels"},

		{"its own", mine, patch("merge", status("own-1"), amount), ""},
		{"batch resources", mine, patch("merge", status("own-1"), `{"status":{"capacity":{"kubernetes.io/batch-cpu":"1k","koordinator.sh/mid-memory":"1Gi"},"allocatable":{"kubernetes.io/batch-cpu":"1k"}}}`), ""},
		{"its object", mine, patch("apply", cnrs+"/own-1?fieldManager=r", cnr("own-1", "")), ""},
		{"its object's status", mine, patch("apply", cnrs+"/own-1/status?fieldManager=r", cnr("own-1", `,"status":{"resourceCapacity":{"a":"1"}}`)), ""},
		{"removed again", mine, patch("json", status("own-1"), `[{"op":"remove","path":"/status/capacity/resource.katalyst.kubewharf.io~1reclaimed_millicpu"},{"op":"remove","path":"/status/allocatable/resource.katalyst.kubewharf.io~1reclaimed_millicpu"}]`), ""},
	})
	// Refused requests have changed nothing, and other accounts are not affected.
	if got := c.Kubectl("get", "node", "own-1", "-o", "jsonpath={.status.capacity}"); got != `{"cpu":"48","koordinator.sh/mid-memory":"1Gi","kubernetes.io/batch-cpu":"1k","memory":"195924424Ki","pods":"110"}` {
		t.Errorf("the node has %s", got)
	}
	c.Kubectl("patch", "node", "own-2", "--subresource=status", "--type=merge", "-p", `{"status":{"capacity":{"example.com/gpu":"4"}}}`)
}
