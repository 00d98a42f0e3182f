package profiles

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// annotated is a pod with annotations, too.
func annotated(t *testing.T, body string, annotations map[string]string) string {
	var o map[string]any
	if err := json.Unmarshal([]byte(body), &o); err != nil {
		t.Fatal(err)
	}
	o["metadata"].(map[string]any)["annotations"] = annotations
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// advise ignores, and admission refuses, what a tenant would write in the name of Koordinator's webhook and scheduler.
func TestForgedAnnotationsAreRefused(t *testing.T) {
	c := cluster(t)
	c.MakeNamespace("forged-annotations")
	const spec, status = "node.koordinator.sh/extended-resource-spec", "scheduling.koordinator.sh/resource-status"
	const noBatch = "metadata.annotations." + spec + ": Forbidden: it is written for pods that request batch resources, when they are created"
	tooMany := func(milli int) string {
		return fmt.Sprintf("metadata.annotations.%s: Forbidden: cpuset may name no more CPUs than an LSE or LSR pod requests, which is %dm", status, milli)
	}
	native := container("c", `"cpu":"100m","memory":"100Mi"`, `"cpu":"100m","memory":"100Mi"`)
	batch := container("c", `"kubernetes.io/batch-cpu":"500"`, "")
	two := container("c", `"cpu":"2"`, `"cpu":"2"`)
	for _, one := range []struct{ name, qos, class, container, key, value, want string }{
		{"batch CPU of a pod that requests none", "BE", "koord-batch", native, spec, `{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"400k"}}}}`, noBatch},
		{"of one that does", "BE", "koord-batch", batch, spec, `{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"500"}}}}`, ""},
		{"all of the machine", "LSE", "koord-prod", two, status, `{"cpuset":"0-47"}`, tooMany(2000)},
		{"as many as requested", "LSE", "koord-prod", two, status, `{"cpuset":"0,24","numaNodeResources":[{"node":0}]}`, ""},
		{"as many in two ranges", "LSR", "koord-prod", two, status, `{"numaNodeResources":[{"node":0}], "cpuset" : "0-0,24-24"}`, ""},
		{"one more", "LSR", "koord-prod", two, status, `{"cpuset":"0-1,24"}`, tooMany(2000)},
		{"of a pod that is not LSE", "LS", "koord-prod", two, status, `{"cpuset":"0"}`, tooMany(2000)},
		{"named twice", "LSE", "koord-prod", two, status, `{"cpuset":"0","cpuset":"0-47"}`, tooMany(2000)},
		{"written otherwise", "LSE", "koord-prod", two, status, `{"cpu\u0073et":"0-47"}`, tooMany(2000)},
		{"in another case", "LSE", "koord-prod", two, status, `{"CPUSet":"0-47"}`, tooMany(2000)},
		{"backwards", "LSE", "koord-prod", two, status, `{"cpuset":"40-2"}`, tooMany(2000)},
		{"a bomb", "LSE", "koord-prod", two, status, `{"cpuset":"` + strings.Repeat("0-8191,", 250) + `0"}`, tooMany(2000)},
		{"NUMA nodes alone", "LS", "koord-prod", two, status, `{"numaNodeResources":[{"node":0}]}`, ""},
	} {
		t.Run(one.name, func(t *testing.T) {
			body := annotated(t, pod("p", fmt.Sprintf(`{"koordinator.sh/qosClass":%q}`, one.qos), fmt.Sprintf(`"priorityClassName":%q,`, one.class), one.container), map[string]string{one.key: one.value})
			if one.want == "" {
				try(t, c, "forged-annotations", body)
			} else if message := refused(t, c, "POST", podsOf("forged-annotations")+"?dryRun=All", body); !strings.HasSuffix(message, one.want) {
				t.Errorf("it is refused with\n%s\nwant\n%s", message, one.want)
			}
		})
	}
	// Nor later; the scheduler's writes, and changes of other fields, are accepted.
	if code, answer := c.API("POST", podsOf("forged-annotations"), pod("later", `{"koordinator.sh/qosClass":"LSE"}`, `"priorityClassName":"koord-prod",`, two)); code != http.StatusCreated {
		t.Fatalf("status %d: %s", code, answer)
	}
	patch := func(key, value string) string {
		text, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
		return string(text)
	}
	if message := refused(t, c, "PATCH", podsOf("forged-annotations")+"/later", patch(status, `{"cpuset":"0-47"}`)); !strings.HasSuffix(message, tooMany(2000)) {
		t.Errorf("it is refused with %s", message)
	}
	if message := refused(t, c, "PATCH", podsOf("forged-annotations")+"/later", patch(spec, `{"containers":{}}`)); !strings.HasSuffix(message, noBatch) {
		t.Errorf("it is refused with %s", message)
	}
	for _, body := range []string{patch(status, `{"cpuset":"3,27"}`), patch("example.com/x", "y")} {
		if code, answer := c.API("PATCH", podsOf("forged-annotations")+"/later", body); code != http.StatusOK {
			t.Errorf("status %d: %s", code, answer)
		}
	}
}
