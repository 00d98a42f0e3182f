package deploy

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"polder/tests/await"
	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
)

const (
	reclaimedPod = `"annotations":{"katalyst.kubewharf.io/qos_level":"reclaimed_cores"}`
	batchPod     = `"labels":{"koordinator.sh/qosClass":"BE"}`
	allowedPod   = `"labels":{"koordinator.sh/qosClass":"LS","koordinator.sh/eviction-enabled":"true"}`
)

// podOn creates a pod on a node without a kubelet, with these fields in its metadata and its spec.
func podOn(c *controlplane.ControlPlane, name, node, metadata, spec string) {
	c.Helper()
	if metadata != "" {
		metadata = "," + metadata
	}
	if spec != "" {
		spec = "," + spec
	}
	c.Apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"default"%s},"spec":{"nodeName":%q,"schedulerName":"none",
		"terminationGracePeriodSeconds":0,"containers":[{"name":"main","image":"none"}]%s}}`, name, metadata, node, spec))
}

// attempt is a request, and the expected refusal; empty if it is allowed.
type attempt struct {
	name string
	as   *caller
	request
	refusal string
}

// try waits for the expected response: the server learns of roles and policies with some delay.
func (a attempt) try(t *testing.T) {
	t.Helper()
	await.Until(t, soon, "the answer to "+a.String(), func() string {
		code, message := a.as.send(t, a.request, func(int) bool { return false })
		switch {
		case a.refusal == "" && code/100 != 2:
			return fmt.Sprintf("it is refused with %d: %s", code, message)
		case a.refusal != "" && (code != http.StatusForbidden || !strings.Contains(message, a.refusal)):
			return fmt.Sprintf("it is answered with %d: %s\nwant %s", code, message, a.refusal)
		}
		return ""
	})
}

// answered tries the attempts in their order. The server learns of each role and policy by itself: the requests that are to be refused
// are first tried in dry runs, which change nothing before the server knows all of them.
func answered(t *testing.T, attempts []attempt) {
	t.Helper()
	for _, one := range attempts {
		if one.refusal == "" || one.method == http.MethodGet || strings.Contains(one.path, "dryRun=All") {
			continue
		}
		separator := "?"
		if strings.Contains(one.path, "?") {
			separator = "&"
		}
		one.path += separator + "dryRun=All"
		one.try(t)
	}
	for _, one := range attempts {
		t.Run(one.name, one.try)
	}
}

// evicted returns the request to evict a pod; dry asks the server only to validate it.
func evicted(pod string, dry bool) request {
	path := core + "/namespaces/default/pods/" + pod + "/eviction"
	if dry {
		path += "?dryRun=All"
	}
	return post(path, evictionOf(pod))
}

// The admission policy allows what the rules in force may evict, and no more, whether they are a list or a text with commas.
func TestRulesNarrowThePolicy(t *testing.T) {
	t.Parallel()
	const (
		batch    = ` || variables.batch || variables.level.orValue("") == "reclaimed_cores" || variables.class.orValue("") == "BE"`
		labelled = ` || params.metadata.?labels[?"koordinator.sh/eviction-enabled"].orValue("") == "true"`
	)
	for rules, want := range map[string]string{
		"reclaimed-resource-pressure-eviction-plugin": "variables.reclaimed",
		"service-waiting":                 "variables.reclaimed",
		"service-io-waiting":              "variables.reclaimed",
		"service-memory-waiting":          "variables.reclaimed",
		"memory-pressure-eviction-plugin": "true",
		"cpu-pressure-eviction-plugin":    "true",
		"rss-overuse-eviction-plugin":     "true",
		"BEMemoryEvict":                   "variables.reclaimed" + batch,
		"BECPUEvict":                      "variables.reclaimed" + batch,
		"MemoryAllocatableEvict":          "variables.reclaimed" + labelled,
		"CPUAllocatableEvict":             "variables.reclaimed" + labelled,
		"MemoryEvict":                     "variables.reclaimed" + labelled,
		"CPUEvict":                        "variables.reclaimed" + labelled,

		"{reclaimed-resource-pressure-eviction-plugin,service-waiting}":    "variables.reclaimed",
		"{reclaimed-resource-pressure-eviction-plugin,BECPUEvict}":         "variables.reclaimed" + batch,
		`service-waiting\, BECPUEvict\, MemoryEvict`:                       "variables.reclaimed" + batch + labelled,
		"{cpu-pressure-eviction-plugin,MemoryEvict}":                       "true",
		`reclaimed-resource-pressure-eviction-plugin\,MemoryEvict`:         "variables.reclaimed" + labelled,
		"{MemoryEvict,reclaimed-resource-pressure-eviction-plugin}":        "variables.reclaimed" + labelled,
		"{reclaimed-resource-pressure-eviction-plugin,service-io-waiting}": "variables.reclaimed",
	} {
		t.Run(rules, func(t *testing.T) {
			_, variables, _ := strings.Cut(part(t, "admission.yaml", "evict.flags.rules="+rules), "- name: byRules\n    expression: >-\n")
			if got, _, _ := strings.Cut(variables, "\n  - name:"); strings.TrimSpace(got) != want {
				t.Errorf("the rules may evict if %s\nwant %s", got, want)
			}
		})
	}
	for _, name := range ruleNames(t) {
		part(t, "admission.yaml", "evict.flags.rules="+name) // the chart knows every rule of evict
	}
}

// ruleNames are the rules that evict has, as it lists them when it refuses another one.
func ruleNames(t *testing.T) []string {
	t.Helper()
	evict := exec.Command(binaries.Path(t, "evict"), "--rules", "none-of-them")
	message, err := evict.CombinedOutput()
	_, list, isListed := strings.Cut(string(message), "want some of ")
	list, _, _ = strings.Cut(list, "\n")
	names := strings.Split(list, ", ")
	if err == nil || !isListed || len(names) < 10 {
		t.Fatalf("evict --rules none-of-them: %v, %s; want its rules", err, message)
	}
	return names
}

// A node's token may evict pods of that node that are reclaimed or that the rules may end, and no others.
func TestEvictOwnReclaimedPodsAlone(t *testing.T) {
	c := cluster(t)
	for _, node := range []string{"ev-1", "ev-2"} {
		c.MakeNode(node, "4", "8Gi")
	}
	podOn(c, "ev-mine", "ev-1", reclaimedPod, "")
	podOn(c, "ev-theirs", "ev-2", reclaimedPod, "")
	podOn(c, "ev-nobodys", "", reclaimedPod, "")
	podOn(c, "ev-service", "ev-1", "", "")
	podOn(c, "ev-both", "ev-1", `"annotations":{"katalyst.kubewharf.io/qos_level":"shared_cores"},`+batchPod, "")
	podOn(c, "ev-batch", "ev-1", batchPod, "")
	podOn(c, "ev-labelled", "ev-1", allowedPod, "")
	podOn(c, "ev-kept", "ev-1", `"annotations":{"katalyst.kubewharf.io/qos_level":"reclaimed_cores","polder/evict":"false"}`, "")
	for name, note := range map[string]string{"ev-no": `"team/evict":"no"`, "ev-yes": `"team/evict":"yes"`, "ev-hold": `"hold":"yes"`} {
		podOn(c, name, "ev-1", `"annotations":{"katalyst.kubewharf.io/qos_level":"reclaimed_cores",`+note+`}`, "")
	}
	podOn(c, "ev-critical", "ev-1", reclaimedPod, `"priorityClassName":"system-node-critical"`)
	owner := fmt.Sprintf(`"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"ev-1","uid":%q}]`,
		c.Kubectl("get", "node", "ev-1", "-o", "jsonpath={.metadata.uid}"))
	const mirror = `"annotations":{"katalyst.kubewharf.io/qos_level":"reclaimed_cores","kubernetes.io/config.mirror":"0"},`
	podOn(c, "ev-static", "ev-1", mirror+owner, "")
	podOn(c, "ev-forged", "ev-1", reclaimedPod+","+owner, "")
	// The policy relies on it: nobody can make a pod that runs look like a static one.
	if status, answer := c.API("PATCH", core+"/namespaces/default/pods/ev-forged",
		`{"metadata":{"annotations":{"kubernetes.io/config.mirror":"0"}}}`); status != http.StatusUnprocessableEntity && status != http.StatusForbidden {
		t.Errorf("the mirror annotation is added: status %d, %s", status, answer)
	}
	c.EnsureNamespace("ev-empty")
	t.Cleanup(func() {
		c.Kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
		c.Kubectl("delete", "pods", "-n", namespace, "polder-evict-of-ev-1", "--grace-period=0", "--force")
		c.Apply(template(t, "form=single", "serviceAccount.perTool=true", "scheduler.enabled=true"))
	})
	mine, bound, unbound := podOf(t, c, "polder-evict", "ev-1"), account(t, c, "polder-evict", "ev-1"), account(t, c, "polder-evict", "")
	const policy = "ValidatingAdmissionPolicy 'polder-own-evictions' with binding 'polder-own-evictions' denied request: "
	const only = policy + "Polder may evict only "
	for _, policies := range []struct {
		set      []string
		attempts []attempt
	}{
		{nil, []attempt{
			{"another node's", mine, evicted("ev-theirs", true), policy + "Polder's token is of node ev-1: it may not evict pods of ev-2"},
			{"another node's, without dry run", mine, evicted("ev-theirs", false), policy + "Polder's token is of node ev-1: it may not evict pods of ev-2"},
			{"no node's", mine, evicted("ev-nobodys", false), "it may not evict pods of no node"},
			{"with a token of no node", unbound, evicted("ev-mine", false), policy + "Polder's token names no node"},
			{"a service", mine, evicted("ev-service", false), only + "reclaimed pods"},
			{"a service that Koordinator's label calls BE", mine, evicted("ev-both", false), only + "reclaimed pods"},
			{"a labelled one, of no rule in force", mine, evicted("ev-labelled", false), only + "reclaimed pods"},
			{"one that opts out", mine, evicted("ev-kept", false), only + "reclaimed pods"},
			{"a critical one", mine, evicted("ev-critical", false), only + "reclaimed pods, neither static nor critical ones"},
			{"a static one", mine, evicted("ev-static", false), only + "reclaimed pods, neither static nor critical ones"},
			{"one that only claims to be of the node", mine, evicted("ev-forged", true), ""},
			{"by the old version of the API", mine, post(core+"/namespaces/default/pods/ev-theirs/eviction",
				`{"apiVersion":"policy/v1beta1","kind":"Eviction","metadata":{"name":"ev-theirs","namespace":"default"}}`), "pods of ev-2"},
			{"by deletion", mine, remove(core + "/namespaces/default/pods/ev-mine"), "cannot delete"},
			{"its own", mine, evicted("ev-mine", false), ""},
			{"a batch pod of its own, by the node's token", bound, evicted("ev-batch", true), ""},
		}},
		{[]string{"evict.flags.rules=cpu-pressure-eviction-plugin"}, []attempt{
			{"a service, which the rule may end", mine, evicted("ev-service", true), ""},
			{"another node's, still", mine, evicted("ev-theirs", false), "it may not evict pods of ev-2"},
			{"a static one, still", mine, evicted("ev-static", false), only + "pods that are neither static nor critical"},
			{"one that opts out, still", mine, evicted("ev-kept", false), only + "pods that are neither static nor critical"},
		}},
		{[]string{"evict.flags.rules={reclaimed-resource-pressure-eviction-plugin,service-waiting}"}, []attempt{
			{"a service, which no rule of the list may end", mine, evicted("ev-service", true), only + "reclaimed pods"},
			{"a batch pod of its own", mine, evicted("ev-batch", true), ""},
		}},
		{[]string{"evict.flags.opt-out={team/evict=no,hold}"}, []attempt{
			{"one that opts out by its value", mine, evicted("ev-no", true), only + "reclaimed pods"},
			{"one that opts out by any value", mine, evicted("ev-hold", true), only + "reclaimed pods"},
			{"one with another value", mine, evicted("ev-yes", true), ""},
			{"one that opts out by the default", mine, evicted("ev-kept", true), ""},
		}},
		{[]string{"policy=koordinator"}, []attempt{
			{"a labelled one", mine, evicted("ev-labelled", true), ""},
			{"a pod that is BE by its label", mine, evicted("ev-both", true), ""},
			{"a BestEffort pod without a mark", mine, evicted("ev-service", true), ""},
			{"another node's, still", mine, evicted("ev-theirs", false), "it may not evict pods of ev-2"},
		}},
	} {
		c.Apply(template(t, append([]string{"form=single", "serviceAccount.perTool=true"}, policies.set...)...))
		for i := range policies.attempts {
			policies.attempts[i].name = strings.Join(append(policies.set, policies.attempts[i].name), ", ")
		}
		answered(t, policies.attempts)
	}
	if got := c.Kubectl("get", "pods", "-o", "name"); strings.Contains(got, "ev-mine\n") || strings.Count(got, "pod/ev-") != 13 {
		t.Errorf("there are\n%s\nwant all but ev-mine", got)
	}
	// For a pod that is gone the server returns 404, not 403: also if the namespace has no pod at all.
	for _, path := range []string{"default/pods/ev-mine", "ev-empty/pods/none"} {
		r := post(core+"/namespaces/"+path+"/eviction", evictionOf(path[strings.LastIndex(path, "/")+1:]))
		r.body = strings.Replace(r.body, `"default"`, `"`+path[:strings.Index(path, "/")]+`"`, 1)
		if code, message := mine.send(t, r, func(status int) bool { return status == http.StatusForbidden }); code != http.StatusNotFound {
			t.Errorf("%s returns status %d: %s", path, code, message)
		}
	}
	// The administrator is not affected.
	if code, answer := c.API(http.MethodPost, core+"/namespaces/default/pods/ev-theirs/eviction", evictionOf("ev-theirs")); code != http.StatusCreated {
		t.Errorf("the administrator's eviction returns status %d: %s", code, answer)
	}
}

// The fleet controller may evict, and with centre.action=delete delete, reclaimed pods of any node, and no others.
func TestFleetControllerEndsReclaimedPodsAlone(t *testing.T) {
	c := cluster(t)
	for _, node := range []string{"fleet-1", "fleet-2"} {
		c.MakeNode(node, "4", "8Gi")
	}
	note := func(note string) string {
		return `"annotations":{"katalyst.kubewharf.io/qos_level":"reclaimed_cores",` + note + `}`
	}
	podOn(c, "fleet-first", "fleet-1", reclaimedPod, "")
	podOn(c, "fleet-second", "fleet-2", reclaimedPod, "")
	podOn(c, "fleet-batch", "fleet-2", batchPod, "")
	podOn(c, "fleet-service", "fleet-1", "", "")
	podOn(c, "fleet-both", "fleet-1", `"annotations":{"katalyst.kubewharf.io/qos_level":"shared_cores"},`+batchPod, "")
	podOn(c, "fleet-labelled", "fleet-1", allowedPod, "")
	podOn(c, "fleet-kept", "fleet-1", note(`"polder/evict":"false"`), "")
	podOn(c, "fleet-hold", "fleet-1", note(`"hold":"x"`), "")
	podOn(c, "fleet-critical", "fleet-1", reclaimedPod, `"priorityClassName":"system-cluster-critical"`)
	owner := fmt.Sprintf(`"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"fleet-1","uid":%q}]`,
		c.Kubectl("get", "node", "fleet-1", "-o", "jsonpath={.metadata.uid}"))
	podOn(c, "fleet-static", "fleet-1", note(`"kubernetes.io/config.mirror":"0"`)+","+owner, "")
	t.Cleanup(func() {
		c.Kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
		c.Kubectl("delete", "pods", "-n", namespace, "polder-centre-of-fleet-2", "--grace-period=0", "--force", "--ignore-not-found")
		c.Apply(template(t, "centre.enabled=true"))
		c.Apply(template(t, "form=single", "serviceAccount.perTool=true", "scheduler.enabled=true"))
		c.Kubectl("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", "polder-centre-pods", "--ignore-not-found")
	})
	deleted := func(pod string) request { return remove(core + "/namespaces/default/pods/" + pod) }
	for _, one := range []struct {
		set      []string
		attempts func(s, inPod *caller) []attempt
	}{
		// The rules of the nodes' evict are not the fleet controller's.
		{[]string{"evict.flags.rules=cpu-pressure-eviction-plugin"}, func(s, inPod *caller) []attempt {
			const only = "ValidatingAdmissionPolicy 'polder-centre-evictions' with binding 'polder-centre-evictions' denied request: " +
				"the fleet controller may evict only reclaimed pods"
			return []attempt{
				{"a service", s, evicted("fleet-service", false), only + ", neither static nor critical ones"},
				{"a service that Koordinator's label calls BE", s, evicted("fleet-both", false), only},
				{"a labelled one", s, evicted("fleet-labelled", false), only},
				{"one that opts out", s, evicted("fleet-kept", false), only},
				{"a critical one", s, evicted("fleet-critical", false), only},
				{"a static one", s, evicted("fleet-static", false), only},
				{"by deletion", s, deleted("fleet-first"), "cannot delete"},
				{"a service, by the pod's token", inPod, evicted("fleet-service", false), only},
				{"a reclaimed one of its own node, by the pod's token", inPod, evicted("fleet-second", true), ""},
				{"a reclaimed one of another node, by the pod's token", inPod, evicted("fleet-first", true), ""},
				{"a batch pod", s, evicted("fleet-batch", true), ""},
				{"a reclaimed one", s, evicted("fleet-first", false), ""},
			}
		}},
		{[]string{"policy=koordinator", "centre.action=delete", "centre.evict.flags.opt-out={hold}"}, func(s, inPod *caller) []attempt {
			const only = "ValidatingAdmissionPolicy 'polder-centre-pods' with binding 'polder-centre-pods' denied request: " +
				"the fleet controller may delete only reclaimed pods"
			return []attempt{
				{"a service", s, deleted("fleet-service"), only + ", neither static nor critical ones"},
				{"a labelled one", s, deleted("fleet-labelled"), only},
				{"one that opts out", s, deleted("fleet-hold"), only},
				{"a critical one", s, deleted("fleet-critical"), only},
				{"a static one", s, deleted("fleet-static"), only},
				{"all at once", s, remove(core + "/namespaces/default/pods"), "cannot deletecollection"},
				{"a service, by eviction", s, evicted("fleet-service", false), "the fleet controller may evict only reclaimed pods"},
				{"one that opts out by eviction", s, evicted("fleet-hold", false), "the fleet controller may evict only reclaimed pods"},
				{"one with an annotation that is not the opt-out", inPod, deleted("fleet-kept"), ""},
				{"a reclaimed one", s, deleted("fleet-second"), ""},
			}
		}},
	} {
		c.Apply(template(t, append([]string{"centre.enabled=true"}, one.set...)...))
		attempts := one.attempts(account(t, c, "polder-centre", ""), podOf(t, c, "polder-centre", "fleet-2"))
		for i := range attempts {
			attempts[i].name = strings.Join(append(one.set, attempts[i].name), ", ")
		}
		answered(t, attempts)
	}
	want := "pod/fleet-batch pod/fleet-both pod/fleet-critical pod/fleet-hold pod/fleet-labelled pod/fleet-service pod/fleet-static"
	if got := strings.Join(strings.Fields(c.Kubectl("get", "pods", "-o", "name")), " "); got != want {
		t.Errorf("there are %s; want %s", got, want)
	}
	for action, policy := range map[string]string{"log": "polder-centre-evictions", "evict": "polder-centre-pods"} {
		if strings.Contains(template(t, "centre.enabled=true", "centre.action="+action), policy) {
			t.Errorf("with centre.action=%s there is the policy %s without the permission", action, policy)
		}
	}
}

// A node's token may write evict's events about pods of that node, and change no others.
func TestEventsAboutOwnPodsAlone(t *testing.T) {
	c := cluster(t)
	for _, node := range []string{"event-1", "event-2"} {
		c.MakeNode(node, "4", "8Gi")
	}
	podOn(c, "event-mine", "event-1", reclaimedPod, "")
	podOn(c, "event-theirs", "event-2", reclaimedPod, "")
	t.Cleanup(func() {
		c.Kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
		c.Kubectl("delete", "pods", "-n", namespace, "polder-evict-of-event-1", "--grace-period=0", "--force", "--ignore-not-found")
		c.Kubectl("delete", "events.v1.events.k8s.io", "--all")
	})
	uid := func(pod string) string { return c.Kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid}") }
	event := func(name, controller, instance, regarding string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"eventTime":"2026-11-21T10:00:00.000000Z","action":"Evicting","reason":"EvictCreated","type":"Normal","note":"n",
			"reportingController":%q,"reportingInstance":%q,"regarding":{%s}}`, name, controller, instance, regarding)
	}
	about := func(pod, uid string) string {
		return fmt.Sprintf(`"apiVersion":"v1","kind":"Pod","namespace":"default","name":%q,"uid":%q`, pod, uid)
	}
	ours := func(name, pod, uid string) request {
		return post(events, event(name, "polder-evict", "event-1", about(pod, uid)))
	}
	if status, answer := c.API(http.MethodPost, events, event("event-kubelets", "kubelet", "event-1", about("event-mine", uid("event-mine")))); status != http.StatusCreated {
		t.Fatalf("status %d: %s", status, answer)
	}
	mine, unbound := podOf(t, c, "polder-evict", "event-1"), account(t, c, "polder-evict", "")
	const policy = "ValidatingAdmissionPolicy 'polder-own-events' with binding 'polder-own-events' denied request: "
	series := `{"series":{"count":2,"lastObservedTime":"2026-11-21T10:01:00.000000Z"}}`
	dry := func(r request) request {
		r.path += "?dryRun=All"
		return r
	}
	answered(t, []attempt{
		{"another node's pod, in a dry run", mine, dry(ours("event-0", "event-theirs", "")), "about pods of event-2"},
		{"as another node, in a dry run", mine, dry(post(events, event("event-0", "polder-evict", "event-2", about("event-mine", "")))), policy},
		{"another node's pod", mine, ours("event-0", "event-theirs", uid("event-theirs")), "'polder-own-event-pods' denied request: Polder's token is of node event-1: it may not write events about pods of event-2"},
		{"another node's pod without its UID", mine, ours("event-0", "event-theirs", ""), "about pods of event-2"},
		{"as another node", mine, post(events, event("event-0", "polder-evict", "event-2", about("event-mine", ""))), policy + "Polder's token is of node event-1: its events have that as reportingInstance"},
		{"as kubelet", mine, post(events, event("event-0", "kubelet", "event-1", about("event-mine", ""))), "a reportingController of Polder's"},
		{"with a token of no node", unbound, ours("event-0", "event-mine", ""), "Polder's token names no node"},
		{"about a node", mine, post(events, event("event-0", "polder-evict", "event-1", `"apiVersion":"v1","kind":"Node","name":"event-1","namespace":"default"`)), policy + "Polder's events are about pods"},
		{"kubelet's", mine, patch("merge", events+"/event-kubelets", series), "a reportingController of Polder's"},
		{"its own", mine, ours("event-1", "event-mine", uid("event-mine")), ""},
		{"its own, again", mine, patch("merge", events+"/event-1", series), ""},
		{"one that is gone", mine, ours("event-2", "event-gone", "7a8b"), ""},
		{"an earlier pod with the name of another node's", mine, ours("event-3", "event-theirs", "7a8b"), ""},
	})
	if got := c.Kubectl("get", "events.v1.events.k8s.io", "-o", `jsonpath={.items[?(@.reportingInstance=="event-1")].metadata.name}`); got != "event-1 event-2 event-3 event-kubelets" {
		t.Errorf("there are the events %s", got)
	}
}
