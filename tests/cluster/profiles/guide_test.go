package profiles

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// The guide's profile, unchanged.
const guideProfile = `apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata:
  name: colocation-profile-example
spec:
  namespaceSelector:
    matchLabels:
      koordinator.sh/enable-colocation: "true"
  selector:
    matchLabels:
      sparkoperator.k8s.io/launched-by-spark-operator: "true"
  qosClass: BE
  priorityClassName: koord-batch
  koordinatorPriority: 1000
  schedulerName: koord-scheduler
  labels:
    koordinator.sh/mutated: "true"
  annotations:
    koordinator.sh/intercepted: "true"
  patch:
    spec:
      terminationGracePeriodSeconds: 30
`

// A Spark operator's pods, as far as this test needs them.
const spark = `apiVersion: v1
kind: Pod
metadata:
  name: spark-pi-driver
  labels: {spark-role: driver, sparkoperator.k8s.io/launched-by-spark-operator: "true"}
  annotations: {note: kept}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  automountServiceAccountToken: false
  initContainers:
  - {name: jars, image: none, resources: {requests: {cpu: 100m, memory: 64Mi}}}
  containers:
  - name: spark-kubernetes-driver
    image: none
    env: [{name: SPARK_USER, value: root}]
    resources: {requests: {cpu: "1", memory: 896Mi}, limits: {cpu: 1200m, memory: 896Mi}}
`

func TestGuidesProfile(t *testing.T) {
	c := cluster(t)
	// With its label from the start: the policies may see the namespace late, but not without it.
	c.Apply(`{apiVersion: v1, kind: Namespace, metadata: {name: spark, labels: {koordinator.sh/enable-colocation: "true"}}}`)
	for _, name := range []string{"spark", "elsewhere"} {
		c.EnsureNamespace(name)
	}
	if _, err := c.TryKubectl(guideProfile, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.API("DELETE", profilesPath+"/colocation-profile-example", "") })
	settle(t, c)
	if got := strings.Join(strings.Fields(c.Kubectl("get", "clustercolocationprofiles", "colocation-profile-example")), " "); !strings.HasPrefix(got, "NAME QOS PRIORITY SCHEDULER AGE colocation-profile-example BE koord-batch koord-scheduler ") {
		t.Errorf("kubectl get prints %s", got)
	}
	get := func(namespace string) made {
		t.Helper()
		status, answer := c.API("GET", podsOf(namespace)+"/spark-pi-driver", "")
		if status != http.StatusOK {
			t.Fatalf("status %d: %s", status, answer)
		}
		return read(t, answer)
	}
	create := map[string][]string{"create": {"create"}, "server-side apply": {"apply", "--server-side"}}
	for how, args := range create {
		t.Run(how, func(t *testing.T) {
			for _, namespace := range []string{"spark", "elsewhere"} {
				if _, err := c.TryKubectl(spark, append(args, "-n", namespace, "-f", "-")...); err != nil {
					t.Fatal(err)
				}
			}
			plain, got := get("elsewhere"), get("spark")
			// Elsewhere it is the pod that was submitted.
			if l := plain.Metadata.Labels; len(l) != 2 || len(plain.Metadata.Annotations) != 1 || plain.Spec.SchedulerName != "default-scheduler" || plain.Spec.Priority != 0 ||
				list(plain.Spec.Containers[0].Resources.Requests) != "cpu=1 memory=896Mi" {
				t.Errorf("the pod elsewhere is %+v", plain)
			}
			// In the labelled namespace it differs in these fields, and in no others.
			metadata := map[string]any{
				"labels": map[string]any{
					"spark-role": "driver", "sparkoperator.k8s.io/launched-by-spark-operator": "true",
					"koordinator.sh/qosClass": "BE", "koordinator.sh/priority": "1000", "koordinator.sh/mutated": "true",
				},
				"annotations": map[string]any{
					"note": "kept", "koordinator.sh/intercepted": "true", "polder/profiles": "colocation-profile-example",
					"node.koordinator.sh/extended-resource-spec": `{"containers":{"spark-kubernetes-driver":{` +
						`"limits":{"kubernetes.io/batch-cpu":"1200","kubernetes.io/batch-memory":"896Mi"},"requests":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/batch-memory":"896Mi"}}}}`,
				},
			}
			var want map[string]any
			copied, err := json.Marshal(plain.raw["spec"])
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(copied, &want); err != nil {
				t.Fatal(err)
			}
			want["schedulerName"], want["priorityClassName"], want["priority"], want["terminationGracePeriodSeconds"] = "koord-scheduler", "koord-batch", 5000.0, 30.0
			want["containers"].([]any)[0].(map[string]any)["resources"] = map[string]any{
				"requests": map[string]any{"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "896Mi"},
				"limits":   map[string]any{"kubernetes.io/batch-cpu": "1200", "kubernetes.io/batch-memory": "896Mi"},
			}
			want["initContainers"].([]any)[0].(map[string]any)["resources"] = map[string]any{
				"requests": map[string]any{"kubernetes.io/batch-cpu": "100", "kubernetes.io/batch-memory": "64Mi"},
			}
			have := got.raw["metadata"].(map[string]any)
			for key, value := range metadata {
				if !reflect.DeepEqual(have[key], value) {
					t.Errorf("its %s are %v\nwant %v", key, have[key], value)
				}
			}
			if !reflect.DeepEqual(got.raw["spec"], want) {
				t.Errorf("its spec is\n%v\nwant\n%v", got.raw["spec"], want)
			}
			if uid, _ := have["uid"].(string); len(uid) != 36 || strings.Contains(uid, "polder") {
				t.Errorf("its uid is %q", uid)
			}
			for _, namespace := range []string{"spark", "elsewhere"} {
				c.Kubectl("delete", "pod", "-n", namespace, "spark-pi-driver", "--force", "--grace-period=0")
			}
		})
	}
}

// A copy of a pod's YAML contains the annotation.
func TestSubmittedAnnotationCountsForNothing(t *testing.T) {
	c := cluster(t)
	ns := space(t, c, "forged", map[string]string{"forged-1": `{"selector":{"matchLabels":{"take":"me"}},"labels":{"got":"it"}}`})
	with := func(labels, note string) string {
		return strings.Replace(pod("p", labels, "", container("c", "", "")), `"metadata":{`, `"metadata":{"uid":"polder/noted:x","annotations":{"polder/profiles":"`+note+`"},`, 1)
	}
	for _, note := range []string{"forged-1", "0|forged-1", "|forged-1", "forged-1,zz", "|"} {
		got := try(t, c, ns, with(`{"take":"me"}`, note))
		if got.Metadata.Labels["got"] != "it" || got.Metadata.Annotations["polder/profiles"] != "forged-1" {
			t.Errorf("%s: it is %+v", note, got.Metadata)
		}
	}
	if got := try(t, c, ns, with(`{"leave":"me"}`, "forged-1")); got.Metadata.Labels["got"] != "" {
		t.Errorf("the profile was applied to %+v", got.Metadata)
	}
	if message := refused(t, c, "POST", podsOf(ns)+"?dryRun=All", with(`{}`, "|forged-1")); !strings.Contains(message, "try again without it") {
		t.Errorf("it was refused with %s", message)
	}
}
