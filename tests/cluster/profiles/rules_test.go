package profiles

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// The rules refuse these pods, with Koordinator's messages.
const (
	needsBE    = "labels.koordinator.sh/qosClass: Required value: must specify koordinator QoS BE with koordinator colocation resources"
	needsCPU   = "pod.spec.containers[*].resources.requests: Required value: LSR Pod must declare the requested CPUs"
	notInteger = `pod.spec.containers[*].resources.requests: Invalid value: "%s": the requested CPUs of LSR Pod must be integer`
	together   = "Pod: Forbidden: koordinator.sh/qosClass=%s and priorityClass=%s cannot be used in combination"
)

func TestRulesForPods(t *testing.T) {
	c := cluster(t)
	c.MakeNamespace("rules")
	labels := func(qos, class string) string {
		l := []string{}
		if qos != "" {
			l = append(l, fmt.Sprintf(`"koordinator.sh/qosClass":%q`, qos))
		}
		if after, ok := strings.CutPrefix(class, "label:"); ok {
			l = append(l, fmt.Sprintf(`"koordinator.sh/priority-class":%q`, after))
		}
		return "{" + strings.Join(l, ",") + "}"
	}
	const cpus, batch = `"cpu":"2"`, `"kubernetes.io/batch-cpu":"500"`
	for _, one := range []struct{ qos, class, requests, want string }{
		{"", "", cpus, ""},
		{"BE", "koord-batch", batch, ""},
		{"BE", "koord-batch", "", ""},
		{"BE", "koord-mid", "", ""},
		{"BE", "koord-free", cpus, ""},
		{"BE", "own", batch, ""},
		{"BE", "", "", fmt.Sprintf(together, "BE", "")},
		{"BE", "koord-prod", "", fmt.Sprintf(together, "BE", "koord-prod")},
		{"BE", "label:koord-prod", "", fmt.Sprintf(together, "BE", "koord-prod")},
		{"BE", "label:koord-batch", batch, ""},
		{"BE", "label:other", "", fmt.Sprintf(together, "BE", "")},
		{"LSR", "koord-prod", cpus, ""},
		{"LSR", "", cpus, fmt.Sprintf(together, "LSR", "")},
		{"LSR", "koord-mid", cpus, fmt.Sprintf(together, "LSR", "koord-mid")},
		{"LSR", "koord-batch", cpus, fmt.Sprintf(together, "LSR", "koord-batch")},
		{"LSR", "koord-free", cpus, fmt.Sprintf(together, "LSR", "koord-free")},
		{"LSR", "koord-prod", "", needsCPU},
		{"LSR", "koord-prod", `"cpu":"0"`, needsCPU},
		{"LSR", "koord-prod", `"cpu":"500m"`, fmt.Sprintf(notInteger, "500m")},
		{"LSR", "koord-prod", `"cpu":"2000m"`, ""},
		{"LSE", "koord-prod", cpus, ""},
		{"LSE", "", cpus, ""},
		{"LSE", "koord-prod", "", needsCPU},
		{"LSE", "koord-prod", `"cpu":"1.5"`, fmt.Sprintf(notInteger, "1500m")},
		{"LS", "", "", ""},
		{"LS", "koord-batch", "", ""},
		{"SYSTEM", "", "", ""},
		{"", "koord-batch", batch, needsBE},
		{"LS", "koord-batch", batch, needsBE},
		{"other", "koord-batch", batch, needsBE},
		{"", "", `"kubernetes.io/batch-memory":"1Gi"`, needsBE},
		{"", "", `"kubernetes.io/batch-memory":"0"`, ""},
		{"", "", `"kubernetes.io/mid-cpu":"500"`, ""},
	} {
		t.Run(one.qos+" "+one.class+" "+one.requests, func(t *testing.T) {
			spec := ""
			if one.class != "" && !strings.HasPrefix(one.class, "label:") {
				spec = fmt.Sprintf(`"priorityClassName":%q,`, one.class)
			}
			body := pod("p", labels(one.qos, one.class), spec, container("c", one.requests, ""))
			if one.want == "" {
				try(t, c, "rules", body)
				return
			}
			if message := refused(t, c, "POST", podsOf("rules")+"?dryRun=All", body); !strings.HasSuffix(message, "denied request: "+one.want) {
				t.Errorf("it is refused with\n%s\nwant\n%s", message, one.want)
			}
		})
	}
	// The old names, which the server treats as extended resources.
	old := pod("p", "{}", "", container("c", `"koordinator.sh/batch-cpu":"500"`, `"koordinator.sh/batch-cpu":"500"`))
	if message := refused(t, c, "POST", podsOf("rules")+"?dryRun=All", old); !strings.HasSuffix(message, needsBE) {
		t.Errorf("it is refused with %s", message)
	}
	// CPUs are summed; an init container counts if it has more, a sidecar with the others.
	for _, one := range []struct{ init, containers, want string }{
		{"", container("a", `"cpu":"500m"`, "") + "," + container("b", `"cpu":"1500m"`, ""), ""},
		{container("i", `"cpu":"2500m"`, ""), container("a", `"cpu":"2"`, ""), fmt.Sprintf(notInteger, "2500m")},
		{container("i", `"cpu":"100m"`, ""), container("a", `"cpu":"2"`, ""), ""},
		{strings.Replace(container("i", `"cpu":"100m"`, ""), "{", `{"restartPolicy":"Always",`, 1), container("a", `"cpu":"2"`, ""), fmt.Sprintf(notInteger, "2100m")},
		{strings.Replace(container("i", `"cpu":"500m"`, ""), "{", `{"restartPolicy":"Always",`, 1), container("a", `"cpu":"1500m"`, ""), ""},
	} {
		body := pod("p", `{"koordinator.sh/qosClass":"LSR"}`, `"priorityClassName":"koord-prod","initContainers":[`+one.init+`],`, one.containers)
		if one.want == "" {
			try(t, c, "rules", body)
		} else if message := refused(t, c, "POST", podsOf("rules")+"?dryRun=All", body); !strings.HasSuffix(message, one.want) {
			t.Errorf("it is refused with %s", message)
		}
	}
}

func TestClassesStay(t *testing.T) {
	c := cluster(t)
	c.MakeNamespace("stay")
	for name, labels := range map[string]string{"batch": `{"koordinator.sh/qosClass":"BE","koordinator.sh/priority":"5"}`, "bare": "{}"} {
		spec := ""
		if name == "batch" {
			spec = `"priorityClassName":"koord-batch",`
		}
		if status, answer := c.API("POST", podsOf("stay"), pod(name, labels, spec, container("c", "", ""))); status != http.StatusCreated {
			t.Fatalf("status %d: %s", status, answer)
		}
	}
	for _, one := range []struct{ pod, labels, want string }{
		{"batch", `"koordinator.sh/qosClass":"LS"`, `labels.koordinator.sh/qosClass: Invalid value: "LS": field is immutable`},
		{"batch", `"koordinator.sh/qosClass":null`, `labels.koordinator.sh/qosClass: Invalid value: "": field is immutable`},
		{"bare", `"koordinator.sh/qosClass":"BE"`, `labels.koordinator.sh/qosClass: Invalid value: "BE": field is immutable`},
		{"bare", `"koordinator.sh/qosClass":"other"`, ""}, // no class before and after
		{"batch", `"koordinator.sh/priority-class":"koord-prod"`, `spec.priority: Invalid value: "koord-prod": field is immutable`},
		{"batch", `"koordinator.sh/priority-class":"koord-batch"`, ""},
		{"batch", `"koordinator.sh/priority":"6"`, `labels.koordinator.sh/priority: Invalid value: "6": field is immutable`},
		{"batch", `"koordinator.sh/priority":null`, `labels.koordinator.sh/priority: Invalid value: "": field is immutable`},
		{"bare", `"koordinator.sh/priority":"6"`, `labels.koordinator.sh/priority: Invalid value: "6": field is immutable`},
		{"batch", `"other":"6"`, ""},
	} {
		path, body := podsOf("stay")+"/"+one.pod, `{"metadata":{"labels":{`+one.labels+`}}}`
		if one.want == "" {
			if status, answer := c.API("PATCH", path, body); status != http.StatusOK {
				t.Errorf("%s: status %d: %s", body, status, answer)
			}
		} else if message := refused(t, c, "PATCH", path, body); !strings.HasSuffix(message, "denied request: "+one.want) {
			t.Errorf("%s is refused with\n%s\nwant\n%s", body, message, one.want)
		}
	}
}

// A pod from before the rules can still be changed in fields that they do not cover, and so be deleted.
func TestOlderPodsAreNotHeld(t *testing.T) {
	c := cluster(t)
	c.MakeNamespace("older")
	c.Kubectl("delete", "validatingadmissionpolicybinding", "polder-pods")
	t.Cleanup(func() { c.ApplyFile(manifests + "/koordinator/profiles.yaml") })
	c.Eventually(soon, "the rules are gone", func() string {
		status, answer := c.API("POST", podsOf("older"), strings.Replace(pod("old", `{"koordinator.sh/qosClass":"BE"}`, "", container("c", "", "")), `"metadata":{`, `"metadata":{"finalizers":["example.com/x"],`, 1))
		if status != http.StatusCreated {
			return string(answer)
		}
		return ""
	})
	c.ApplyFile(manifests + "/koordinator/profiles.yaml")
	c.Eventually(soon, "the rules are back", func() string {
		if status, _ := c.API("POST", podsOf("older")+"?dryRun=All", pod("new", `{"koordinator.sh/qosClass":"BE"}`, "", container("c", "", ""))); status == http.StatusCreated {
			return "a pod that breaks them is taken"
		}
		return ""
	})
	if status, answer := c.API("PATCH", podsOf("older")+"/old", `{"metadata":{"finalizers":null,"labels":{"x":"y"}}}`); status != http.StatusOK {
		t.Errorf("its finalizers stay: status %d: %s", status, answer)
	}
}
