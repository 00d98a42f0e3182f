package profiles

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func profile(spec string) string {
	return fmt.Sprintf(`{"apiVersion":"config.koordinator.sh/v1alpha1","kind":"ClusterColocationProfile","metadata":{"name":"tried"},"spec":%s}`, spec)
}

// The server refuses a profile that is invalid or that the policies cannot apply when it is created.
func TestProfilesAreRefused(t *testing.T) {
	c := cluster(t)
	const probability, name = "probability is not supported: an admission policy throws no dice", "a key must be a name such as app or example.com/app"
	patch := func(p string) string { return `{"patch":` + p + `}` }
	for _, one := range []struct{ spec, want string }{
		{`{"probability":50}`, probability},
		{`{"probability":0}`, probability},
		{`{"probability":"50%"}`, probability},
		{`{"probability":"100"}`, probability},
		{`{"probability":1.5}`, "spec.probability"},
		{`{"selector":{"matchExpressions":[{"key":"a","operator":"Like","values":["b"]}]}}`, `Unsupported value: "Like": supported values: "In", "NotIn", "Exists", "DoesNotExist"`},
		{`{"selector":{"matchExpressions":[{"key":"a","operator":"In"}]}}`, "operator In needs values"},
		{`{"selector":{"matchExpressions":[{"key":"a","operator":"NotIn","values":[]}]}}`, "operator NotIn needs values"},
		{`{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}}`, "operator Exists takes no values"},
		{`{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"DoesNotExist","values":["b"]}]}}`, "operator DoesNotExist takes no values"},
		{`{"namespaceSelector":{"matchExpressions":[{"key":"a b","operator":"Exists"}]}}`, "spec.namespaceSelector.matchExpressions[0].key"},
		{`{"namespaceSelector":{"matchExpressions":[{"operator":"Exists"}]}}`, "key: Required value"},
		{`{"selector":{"matchLabels":{"-a":"b"}}}`, name},
		{`{"selector":{"matchLabels":{"a":"b/c"}}}`, "spec.selector.matchLabels.a"},
		{`{"selector":{"matchLabels":["a"]}}`, "spec.selector.matchLabels"},
		{`{"qosClass":"be"}`, `Unsupported value: "be"`},
		{`{"priorityClassName":"Koord_Batch"}`, "spec.priorityClassName"},
		{`{"priorityClassName":""}`, "spec.priorityClassName"},
		{`{"koordinatorPriority":-1}`, "should be greater than or equal to 0"},
		{`{"koordinatorPriority":2147483648}`, "spec.koordinatorPriority"},
		{`{"qosClass":"BE","priorityClassName":"koord-prod"}`, "koordinator.sh/qosClass=BE and priorityClass=koord-prod cannot be used in combination"},
		{`{"qosClass":"LSR","priorityClassName":"koord-mid"}`, "koordinator.sh/qosClass=LSR and priorityClass=koord-mid cannot be used in combination"},
		{`{"labels":{"a":"with space"}}`, "spec.labels.a"},
		{`{"labels":{"a":"` + strings.Repeat("x", 64) + `"}}`, "spec.labels.a"},
		{`{"labels":{"a b":"c"}}`, name},
		{`{"annotations":{"a~b":"c"}}`, name},
		{`{"annotations":{"a":1}}`, "spec.annotations.a"},
		{`{"labelKeysMapping":{"a":"c","b":"c"}}`, "two keys are copied to the same one"},
		{`{"annotationKeysMapping":{"a":"/"}}`, "spec.annotationKeysMapping.a"},
		{`{"labelSuffixes":{"a":"+"}}`, "spec.labelSuffixes.a"},
		{`{"schedulerName":"Mine!"}`, "spec.schedulerName"},
		{patch(`"text"`), "spec.patch"},
		{patch(`{"status":{"phase":"Running"}}`), "not status"},
		{patch(`{"metadata":{"name":"x","finalizers":["a"]}}`), "not metadata.finalizers, metadata.name"},
		{patch(`{"spec":{"overhead":{"cpu":"1"},"ephemeralContainers":[]}}`), "spec.overhead"},
		{patch(`{"spec":{"priority":1,"preemptionPolicy":null}}`), "not spec.preemptionPolicy, spec.priority"},
		{patch(`{"spec":{"$patch":"replace"}}`), "the directives of strategic merge patches are not supported: $patch"},
		{patch(`{"spec":{"containers":[{"name":"a","$patch":"delete"}]}}`), "not supported: $patch"},
		{patch(`{"spec":{"$setElementOrder/containers":[{"name":"a"}]}}`), "$setElementOrder/containers"},
		{patch(`{"spec":{"containers":[{"name":"a","env":[{"name":"b","$patch":"delete"}]}]}}`), "not supported: $patch"},
		{patch(`{"spec":{"securityContext":{"$patch":"replace"}}}`), "not supported: $patch"},
		{patch(`{"spec":{"affinity":{"nodeAffinity":{"$patch":"replace"}}}}`), "not supported: $patch"},
		{patch(`{"spec":{"containers":[{"image":"a"}]}}`), "spec.patch.spec: each element of containers needs its name"},
		{patch(`{"spec":{"containers":["a"]}}`), "spec.patch.spec: each element of containers needs its name"},
		{patch(`{"spec":{"containers":null}}`), "spec.patch.spec: each element of containers needs its name"},
		{patch(`{"spec":{"volumes":[{"emptyDir":{}}]}}`), "spec.patch.spec: each element of volumes needs its name"},
		{patch(`{"spec":{"hostAliases":{"ip":"127.0.0.1"}}}`), "spec.patch.spec: each element of hostAliases needs its ip"},
		{patch(`{"spec":{"containers":[{"name":"a","volumeMounts":[{"name":"b"}]}]}}`), "spec.patch.spec: each element of volumeMounts needs its mountPath"},
		{patch(`{"spec":{"affinity":{"nodeAffinity":{"a":{"b":{}}}}}}`), "spec.patch: objects are merged four deep, and pods have none below: spec.affinity.nodeAffinity.a.b"},
		{patch(`{"spec":{"initContainers":[{"name":"a","lifecycle":{"preStop":{"httpGet":{"port":{"b":{}}}}}}]}}`), "pods have none below: initContainers.lifecycle.preStop.httpGet.port"},
		{patch(`{"spec":null}`), "not a spec that is no object"},
		{patch(`{"metadata":[]}`), "not a metadata that is no object"},
	} {
		t.Run(one.spec, func(t *testing.T) {
			if message := refused(t, c, "POST", profilesPath+"?dryRun=All", profile(one.spec)); !strings.Contains(message, one.want) {
				t.Errorf("it is refused with\n%s\nwant\n%s", message, one.want)
			}
		})
	}
	// The fields that docs/profiles.md lists.
	for field, most := range map[string]int{
		"selector.matchLabels": 64, "namespaceSelector.matchLabels": 64, "labels": 64, "annotations": 64, "labelSuffixes": 64, "labelKeysMapping": 32, "annotationKeysMapping": 32,
	} {
		var pairs []string
		for i := range most + 1 {
			pairs = append(pairs, fmt.Sprintf(`"k%d":"v%d"`, i, i))
		}
		outer, inner, nested := strings.Cut(field, ".")
		spec := func(pairs []string) string {
			object := "{" + strings.Join(pairs, ",") + "}"
			if nested {
				object = fmt.Sprintf(`{%q:%s}`, inner, object)
			}
			return fmt.Sprintf(`{%q:%s}`, outer, object)
		}
		if message := refused(t, c, "POST", profilesPath+"?dryRun=All", profile(spec(pairs))); !strings.Contains(message, fmt.Sprintf("spec.%s: Too many: %d: must have at most %d items", field, most+1, most)) {
			t.Errorf("%s: it is refused with %s", field, message)
		}
		if status, answer := c.API("POST", profilesPath+"?dryRun=All", profile(spec(pairs[1:]))); status != http.StatusCreated {
			t.Errorf("%s: status %d: %s", field, status, answer)
		}
	}
	for _, spec := range []string{
		`{}`, `{"probability":100}`, `{"probability":"100%"}`, `{"qosClass":"LSE","priorityClassName":"koord-mid"}`, `{"qosClass":"LSR","priorityClassName":"own"}`,
		`{"selector":null,"namespaceSelector":{"matchLabels":{}},"patch":null}`, patch(`{}`), patch(`{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"a"}]}]}}}}}`),
		patch(`{"metadata":{"labels":{"a":null}},"spec":{"containers":[{"name":"a","command":["$(X)"]}]}}`),
	} {
		if status, answer := c.API("POST", profilesPath+"?dryRun=All", profile(spec)); status != http.StatusCreated {
			t.Errorf("%s: status %d: %s", spec, status, answer)
		}
	}
	// The message that kubectl prints.
	_, err := c.TryKubectl(strings.Replace(guideProfile, "spec:\n", "spec:\n  probability: 50\n", 1), "create", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), `The ClusterColocationProfile "colocation-profile-example" is invalid: spec.probability: Invalid value: 50: `+probability) {
		t.Errorf("kubectl returns %v", err)
	}
}
