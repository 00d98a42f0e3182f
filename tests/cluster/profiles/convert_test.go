package profiles

import (
	"fmt"
	"strings"
	"testing"
)

func TestConversion(t *testing.T) {
	c := cluster(t)
	ns := space(t, c, "convert", map[string]string{
		"convert-batch": `{"selector":{"matchLabels":{"to":"batch"}},"qosClass":"BE","priorityClassName":"koord-batch"}`,
		"convert-mid":   `{"selector":{"matchLabels":{"to":"mid"}},"qosClass":"LS","priorityClassName":"koord-mid"}`,
		"convert-prod":  `{"selector":{"matchLabels":{"to":"prod"}},"qosClass":"LS","priorityClassName":"koord-prod"}`,
		"convert-free":  `{"selector":{"matchLabels":{"to":"free"}},"qosClass":"BE","priorityClassName":"koord-free"}`,
		"convert-plain": `{"selector":{"matchExpressions":[{"key":"to","operator":"In","values":["plain","label","label-free","label-bad","guessed"]}]}}`,
		"convert-kept":  `{"selector":{"matchExpressions":[{"key":"to","operator":"In","values":["kept","kept-twice"]}]},"priorityClassName":"koord-mid"};{"config.koordinator.sh/skip-update-resources":"true"}`,
		"convert-also":  `{"selector":{"matchLabels":{"to":"kept-twice"}},"labels":{"also":"1"}}`,
		"convert-unset": `{"selector":{"matchLabels":{"to":"unset"}},"priorityClassName":"koord-mid"};{"config.koordinator.sh/skip-update-resources":"false"}`,
		"convert-own":   `{"selector":{"matchLabels":{"to":"own"}},"qosClass":"BE","priorityClassName":"own"}`,
	})
	for _, one := range []struct{ to, requests, limits, want string }{
		// Exact values, and rounding up: floats would make 2.3 CPUs 2299 or 2301.
		{"batch", `"cpu":"0.1m"`, "", "batch-cpu=1 /"},
		{"batch", `"cpu":"0.0005"`, "", "batch-cpu=1 /"},
		{"batch", `"cpu":"1500m"`, "", "batch-cpu=1500 /"},
		{"batch", `"cpu":"1500100u"`, "", "batch-cpu=1501 /"},
		{"batch", `"cpu":"1e3"`, "", "batch-cpu=1M /"},
		{"batch", `"cpu":"1E-1"`, "", "batch-cpu=100 /"},
		{"batch", `"cpu":"4k"`, "", "batch-cpu=4M /"},
		{"batch", `"cpu":"1Ki"`, "", "batch-cpu=1024k /"},
		{"batch", `"cpu":4`, "", "batch-cpu=4k /"},
		{"batch", `"cpu":"2.3"`, "", "batch-cpu=2300 /"},
		{"batch", `"cpu":"4.35"`, "", "batch-cpu=4350 /"},
		{"batch", `"cpu":"1.001"`, "", "batch-cpu=1001 /"},
		{"batch", `"cpu":"1048576.001"`, "", "batch-cpu=1048576001 /"},
		{"batch", `"cpu":"0"`, "", "batch-cpu=0 /"},
		{"batch", `"memory":"1Gi"`, "", "batch-memory=1Gi /"},
		{"batch", `"memory":"1e9"`, "", "batch-memory=1e9 /"},
		{"batch", `"memory":"1000000001"`, "", "batch-memory=1000000001 /"},
		{"batch", `"memory":0`, "", "batch-memory=0 /"},
		{"batch", "", "", "/"},
		// Limits, and requests that follow from limits alone.
		{"batch", `"cpu":"1"`, `"cpu":"2"`, "batch-cpu=1k / batch-cpu=2k"},
		{"batch", "", `"cpu":"2","memory":"1Gi"`, "batch-cpu=2k batch-memory=1Gi / batch-cpu=2k batch-memory=1Gi"},
		{"batch", `"cpu":"1"`, `"memory":"1Gi"`, "batch-cpu=1k batch-memory=1Gi / batch-memory=1Gi"},
		// An existing value under the name is not overwritten, and other resources stay.
		{"batch", `"cpu":"1","kubernetes.io/batch-cpu":"500"`, `"cpu":"2"`, "batch-cpu=500 / batch-cpu=2k"},
		{"batch", `"ephemeral-storage":"1Gi","example.com/gpu":"1","cpu":"1"`, `"example.com/gpu":"1"`, "ephemeral-storage=1Gi example.com/gpu=1 batch-cpu=1k / example.com/gpu=1"},
		{"batch", `"kubernetes.io/batch-cpu":"500"`, "", "batch-cpu=500 /"},
		// By the class of the priority.
		{"mid", `"cpu":"1","memory":"1Gi"`, `"cpu":"2"`, "mid-cpu=1k mid-memory=1Gi / mid-cpu=2k"},
		{"prod", `"cpu":"1"`, "", "cpu=1 /"},
		{"free", `"cpu":"1"`, "", "cpu=1 /"},
		{"own", `"cpu":"1"`, "", "batch-cpu=1k /"},
		{"plain", `"cpu":"1"`, "", "cpu=1 /"},
		{"label", `"cpu":"1"`, "", "mid-cpu=1k /"},
		{"label-free", `"cpu":"1"`, "", "cpu=1 /"},
		{"label-bad", `"cpu":"1"`, "", "cpu=1 /"},
		// A matching profile keeps the resources, though it is not the last one.
		{"kept", `"cpu":"1"`, "", "cpu=1 /"},
		{"kept-twice", `"cpu":"1"`, "", "cpu=1 /"},
		{"unset", `"cpu":"1"`, "", "mid-cpu=1k /"},
		{"nobody", `"cpu":"1"`, "", "cpu=1 /"},
	} {
		labels := fmt.Sprintf(`{"to":%q}`, one.to)
		switch one.to {
		case "label":
			labels = `{"to":"label","koordinator.sh/priority-class":"koord-mid"}`
		case "label-free":
			labels = `{"to":"label","koordinator.sh/priority-class":"koord-free"}`
		case "label-bad":
			labels = `{"to":"label","koordinator.sh/priority-class":"koord-other"}`
		}
		t.Run(one.to+" "+one.requests+" "+one.limits, func(t *testing.T) {
			got := try(t, c, ns, pod("p", labels, `"initContainers":[`+container("i", one.requests, one.limits)+`],`, container("other", "", "")+","+container("c", one.requests, one.limits)))
			for _, r := range []struct{ Requests, Limits map[string]string }{got.Spec.Containers[1].Resources, got.Spec.InitContainers[0].Resources} {
				if have := strings.TrimSpace(list(r.Requests) + " / " + list(r.Limits)); have != one.want {
					t.Errorf("it has %q, want %q", have, one.want)
				}
			}
		})
	}
	// The annotation for Koordinator's node agent lists batch resources only, of the main containers that have some.
	for to, want := range map[string]string{
		"batch": `{"containers":{"a":{"limits":{"kubernetes.io/batch-cpu":"2k"},"requests":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"1Gi"}},"b":{"requests":{"kubernetes.io/batch-cpu":"1"}}}}`,
		"mid":   "", "prod": "", "kept": "",
	} {
		got := try(t, c, ns, pod("p", fmt.Sprintf(`{"to":%q}`, to), `"initContainers":[`+container("i", `"cpu":"1"`, "")+`],`,
			container("none", "", "")+","+container("a", `"memory":"1Gi"`, `"cpu":"2"`)+","+container("b", `"cpu":"1m"`, "")))
		if have := got.Metadata.Annotations["node.koordinator.sh/extended-resource-spec"]; have != want {
			t.Errorf("%s: the annotation is %s\nwant %s", to, have, want)
		}
	}
}

// The API server's own plugins run again after the policies: what they add does not undo the conversion, and what they compare
// with stays unchanged.
func TestConversionAmongOtherPlugins(t *testing.T) {
	c := cluster(t)
	ns := space(t, c, "plugins", map[string]string{"plugins-batch": `{"qosClass":"BE","priorityClassName":"koord-batch"}`})
	c.Apply(`
apiVersion: v1
kind: LimitRange
metadata: {name: defaults, namespace: plugins}
spec: {limits: [{type: Container, defaultRequest: {cpu: 200m, memory: 64Mi}, default: {cpu: "1", memory: 128Mi}}]}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: sandboxed}
handler: sandboxed
overhead: {podFixed: {cpu: 250m, memory: 120Mi}}
`)
	var got made
	c.Eventually(soon, "the limits of the namespace are in force", func() string {
		got = try(t, c, ns, pod("p", "{}", `"runtimeClassName":"sandboxed",`, container("c", `"cpu":"100m"`, "")+","+container("d", "", "")))
		if len(got.Spec.Containers[1].Resources.Requests) == 0 {
			return "a container has no requests"
		}
		return ""
	})
	for i, want := range []string{"batch-cpu=100 batch-memory=64Mi / batch-cpu=1k batch-memory=128Mi", "batch-cpu=200 batch-memory=64Mi / batch-cpu=1k batch-memory=128Mi"} {
		if have := list(got.Spec.Containers[i].Resources.Requests) + " / " + list(got.Spec.Containers[i].Resources.Limits); have != want {
			t.Errorf("container %d has %s, want %s", i, have, want)
		}
	}
	// The server refuses a pod whose overhead differs from its RuntimeClass's.
	if have := list(got.Spec.Overhead); have != "cpu=250m memory=120Mi" {
		t.Errorf("the overhead is %s", have)
	}
}
