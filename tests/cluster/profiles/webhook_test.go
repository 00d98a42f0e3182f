package profiles

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"polder/tests/cluster/controlplane"
)

// Without the definition of the profiles the server refuses pods with the reason, except the system's and Polder's own.
func TestWithoutTheDefinition(t *testing.T) {
	t.Parallel()
	c := controlplane.Start(t, controlplane.Options{})
	c.ApplyFile(manifests + "/koordinator/profiles.yaml")
	body := pod("p", "{}", "", container("c", "", ""))
	c.Eventually(soon, "the server knows the policy", func() string {
		if status, answer := c.API("POST", podsOf("default")+"?dryRun=All", body); status != http.StatusForbidden || !strings.Contains(string(answer), "find resource referenced by paramKind") {
			return fmt.Sprintf("status %d: %s", status, answer)
		}
		return ""
	})
	try(t, c, "kube-system", body)
	c.MakeNamespace("polder-system")
	try(t, c, "polder-system", body)
}

// A webhook runs after the policies: the container that it adds is converted as well, and it sees the pod as the profile changed it.
func TestContainersThatAWebhookAdds(t *testing.T) {
	c := cluster(t)
	seen := make(chan string, 100)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Request struct {
				UID    string
				Object struct {
					Metadata struct{ Labels map[string]string }
				}
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		seen <- review.Request.Object.Metadata.Labels["koordinator.sh/qosClass"]
		patch := base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/spec/containers/-","value":` + container("sidecar", `"cpu":"50m"`, `"cpu":"100m"`) + `}]`))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true,"patchType":"JSONPatch","patch":%q}}`, review.Request.UID, patch)
	}))
	defer server.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	ns := space(t, c, "webhook", map[string]string{"webhook-batch": `{"qosClass":"BE","priorityClassName":"koord-batch"}`})
	c.Apply(fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: sidecars}, webhooks: [{
		name: sidecars.example.com, sideEffects: None, timeoutSeconds: 30, admissionReviewVersions: [v1], clientConfig: {url: %q, caBundle: %s},
		namespaceSelector: {matchLabels: {test: webhook}}, rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}]}`, server.URL, ca))
	t.Cleanup(func() { c.Kubectl("delete", "mutatingwebhookconfiguration", "sidecars") })
	var got made
	c.Eventually(soon, "the webhook is in force", func() string {
		if got = try(t, c, ns, pod("p", "{}", "", container("c", `"cpu":"1"`, ""))); len(got.Spec.Containers) != 2 {
			return "there is no sidecar"
		}
		return ""
	})
	if class := <-seen; class != "BE" {
		t.Errorf("the webhook saw a pod of class %q", class)
	}
	for i, want := range []string{"batch-cpu=1k / ", "batch-cpu=50 / batch-cpu=100"} {
		if have := list(got.Spec.Containers[i].Resources.Requests) + " / " + list(got.Spec.Containers[i].Resources.Limits); have != want {
			t.Errorf("container %d has %s, want %s", i, have, want)
		}
	}
	if have, want := got.Metadata.Annotations["node.koordinator.sh/extended-resource-spec"],
		`{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"1k"}},"sidecar":{"limits":{"kubernetes.io/batch-cpu":"100"},"requests":{"kubernetes.io/batch-cpu":"50"}}}}`; have != want {
		t.Errorf("the annotation is %s\nwant %s", have, want)
	}
}
