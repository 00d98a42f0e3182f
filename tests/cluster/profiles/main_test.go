// Package profiles tests ClusterColocationProfiles, which admission policies apply, Koordinator's rules for pods, and the shipped
// profile of the scheduler, on Kubernetes' own control plane.
package profiles

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"polder/tests/cluster/controlplane"
)

// The path from here to the files.
const manifests = "../../../deploy/kubernetes"

const soon = controlplane.Soon

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Options{SchedulerConfig: manifests + "/scheduler/koord-scheduler.yaml"}, setUp)
}

// setUp applies the objects that a user of profiles applies.
func setUp(c *controlplane.ControlPlane) {
	c.ApplyFile(manifests + "/crds/clustercolocationprofiles.yaml")
	c.Established()
	c.ApplyFile(manifests + "/koordinator/priorityclasses.yaml")
	c.ApplyFile(manifests + "/koordinator/profiles.yaml")
	c.Apply(`{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: own}, value: 5123, preemptionPolicy: Never}`)
	c.KnowsPriorityClasses("koord-prod", "koord-mid", "koord-batch", "koord-free", "own")
	c.MakeNamespace("probe")
	settle(c.TB, c)
	// The rules for pods are another policy, which the server learns of separately.
	c.Eventually(soon, "the server knows the rules for pods", func() string {
		if status, _ := c.API("POST", podsOf("probe")+"?dryRun=All", pod("BE", `{"koordinator.sh/qosClass":"BE"}`, "", container("c", "", ""))); status != http.StatusUnprocessableEntity {
			return fmt.Sprintf("a pod that breaks them is answered with %d", status)
		}
		return ""
	})
}

// cluster is the control plane of the package. Its tests run one after the other: settle counts the changes of all profiles.
func cluster(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	return controlplane.Shared(t)
}

const profilesPath = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"

func podsOf(namespace string) string { return "/api/v1/namespaces/" + namespace + "/pods" }

// space creates a namespace with the label test=name, and the profiles, each a spec in JSON (";" and its annotations behind it), with a
// namespaceSelector for it where they have none. The profiles are in force when it returns, and deleted at the end of the test.
func space(t *testing.T, c *controlplane.ControlPlane, name string, profiles map[string]string) string {
	t.Helper()
	// With its label from the start: the policies may see the namespace late, but not without it.
	labelled := fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"test":%q}}}`, name, name)
	if status, answer := c.API("POST", "/api/v1/namespaces", labelled); status != http.StatusCreated {
		t.Fatalf("namespace %s: status %d: %s", name, status, answer)
	}
	c.EnsureNamespace(name)
	for _, key := range slices.Sorted(maps.Keys(profiles)) {
		text, annotations, _ := strings.Cut(profiles[key], ";")
		var spec map[string]any
		if err := json.Unmarshal([]byte(text), &spec); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if _, ok := spec["namespaceSelector"]; !ok {
			spec["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{"test": name}}
		}
		if annotations == "" {
			annotations = "{}"
		}
		body, err := json.Marshal(map[string]any{
			"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile", "spec": spec,
			"metadata": map[string]any{"name": key, "annotations": json.RawMessage(annotations)},
		})
		if err != nil {
			t.Fatal(err)
		}
		if status, answer := c.API("POST", profilesPath, string(body)); status != http.StatusCreated {
			t.Fatalf("profile %s: status %d: %s", key, status, answer)
		}
		t.Cleanup(func() { c.API("DELETE", profilesPath+"/"+key, "") })
	}
	settle(t, c)
	return name
}

var settled int

// settle waits until the server applies the current profiles: it receives the changes in their order.
func settle(t testing.TB, c *controlplane.ControlPlane) {
	t.Helper()
	settled++
	body := fmt.Sprintf(`{"apiVersion":"config.koordinator.sh/v1alpha1","kind":"ClusterColocationProfile","metadata":{"name":"probe"},
		"spec":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"probe"}},"labels":{"probe":"%d"}}}`, settled)
	if status, answer := c.API("PATCH", profilesPath+"/probe", body); status == http.StatusNotFound {
		if status, answer := c.API("POST", profilesPath, body); status != http.StatusCreated {
			t.Fatalf("profile probe: status %d: %s", status, answer)
		}
	} else if status != http.StatusOK {
		t.Fatalf("profile probe: status %d: %s", status, answer)
	}
	want := fmt.Sprint(settled)
	c.Eventually(soon, "the profiles are in force", func() string {
		_, answer := c.API("POST", podsOf("probe")+"?dryRun=All", pod("probe", "{}", "", container("c", "", "")))
		if got := read(t, answer); got.Metadata.Labels["probe"] != want {
			return string(answer)
		}
		return ""
	})
}

// container is a container in JSON with requests and limits, each the inside of an object.
func container(name, requests, limits string) string {
	return fmt.Sprintf(`{"name":%q,"image":"none","resources":{"requests":{%s},"limits":{%s}}}`, name, requests, limits)
}

// pod is a pod in JSON; spec is more of its spec, with a comma behind it, and containers are joined by commas.
func pod(name, labels, spec, containers string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":%s},"spec":{%s"containers":[%s]}}`, strings.ToLower(name), labels, spec, containers)
}

// made is a pod as the server has it.
type made struct {
	Metadata struct{ Labels, Annotations map[string]string }
	Spec     struct {
		SchedulerName, PriorityClassName, PreemptionPolicy string
		Priority                                           int
		TerminationGracePeriodSeconds                      int
		Overhead                                           map[string]string
		Containers, InitContainers                         []struct {
			Name, Image string
			Env         []struct{ Name, Value string }
			Resources   struct{ Requests, Limits map[string]string }
		}
	}
	raw map[string]any
}

func read(t testing.TB, answer []byte) made {
	t.Helper()
	var m made
	if err := json.Unmarshal(answer, &m); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	if err := json.Unmarshal(answer, &m.raw); err != nil {
		t.Fatal(err)
	}
	return m
}

// try submits a pod in a dry run.
func try(t *testing.T, c *controlplane.ControlPlane, namespace, body string) made {
	t.Helper()
	status, answer := c.API("POST", podsOf(namespace)+"?dryRun=All", body)
	if status != http.StatusCreated {
		t.Fatalf("status %d: %s\n%s", status, answer, body)
	}
	return read(t, answer)
}

// refused submits what has to be refused, and returns the message.
func refused(t *testing.T, c *controlplane.ControlPlane, method, path, body string) string {
	t.Helper()
	status, answer := c.API(method, path, body)
	var failure struct{ Message string }
	if err := json.Unmarshal(answer, &failure); err != nil || status/100 == 2 {
		t.Errorf("%s returns status %d: %s (%v)", body, status, answer, err)
	}
	return failure.Message
}

// list is a resource list in one line.
func list(l map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(l)) {
		parts = append(parts, k+"="+l[k])
	}
	return strings.NewReplacer("kubernetes.io/", "").Replace(strings.Join(parts, " "))
}
