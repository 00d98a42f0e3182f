package deploy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/program"
)

// The guide's pods, as it prints them, without the comments.
const (
	guideShared = `apiVersion: v1
kind: Pod
metadata:
  annotations:
    "katalyst.kubewharf.io/qos_level": shared_cores
  name: shared-normal-pod
  namespace: default
spec:
  containers:
    - name: stress
      image: joedval/stress:latest
      command:
        - stress
        - -c
        - "1"
      imagePullPolicy: IfNotPresent
      resources:
        requests:
          cpu: "2"
          memory: 1Gi
        limits:
          cpu: "2"
          memory: 1Gi
  schedulerName: katalyst-scheduler
`
	guideReclaimedPod = `apiVersion: v1
kind: Pod
metadata:
  annotations:
    "katalyst.kubewharf.io/qos_level": reclaimed_cores
  name: reclaimed-normal-pod
  namespace: default
spec:
  containers:
    - name: stress
      image: joedval/stress:latest
      command:
        - stress
        - -c
        - "1"
      imagePullPolicy: IfNotPresent
      resources:
        requests:
          resource.katalyst.kubewharf.io/reclaimed_millicpu: 2k
          resource.katalyst.kubewharf.io/reclaimed_memory: 1Gi
        limits:
          resource.katalyst.kubewharf.io/reclaimed_millicpu: 2k
          resource.katalyst.kubewharf.io/reclaimed_memory: 1Gi
  schedulerName: katalyst-scheduler
`
	millicpu, memory = "resource.katalyst.kubewharf.io/reclaimed_millicpu", "resource.katalyst.kubewharf.io/reclaimed_memory"
)

// renamed is a pod under another name.
func renamed(pod, name string) string {
	return strings.NewReplacer("reclaimed-normal-pod", name, "shared-normal-pod", name).Replace(pod)
}

// scheduled waits until a pod is bound, and returns its node.
func scheduled(t *testing.T, c *controlplane.ControlPlane, name string) string {
	t.Helper()
	var pod struct {
		Spec   struct{ NodeName string }
		Status json.RawMessage
	}
	c.Eventually(soon, name+" is bound", func() string {
		if c.Get("/api/v1/namespaces/default/pods/"+name, &pod); pod.Spec.NodeName == "" {
			return "so far: " + string(pod.Status)
		}
		return ""
	})
	return pod.Spec.NodeName
}

func create(t *testing.T, c *controlplane.ControlPlane, yaml string) {
	t.Helper()
	if _, err := c.TryKubectl(yaml, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

func TestStockSchedulerBindsTheGuidesPods(t *testing.T) {
	c := cluster(t)
	t.Cleanup(func() { c.Kubectl("delete", "pods", "--all", "--grace-period=0", "--force") })
	c.MakeNode("plain", "48", "195924424Ki")
	c.MakeNode("node-1", "48", "195924424Ki", millicpu, "44k", memory, "195257901056")
	c.SeenByScheduler("katalyst-scheduler", "plain", "node-1") // and that earlier tests' nodes are gone
	create(t, c, guideShared)
	scheduled(t, c, "shared-normal-pod")
	create(t, c, guideReclaimedPod)
	if node := scheduled(t, c, "reclaimed-normal-pod"); node != "node-1" {
		t.Errorf("the guide's reclaimed pod is on %s, which offers nothing", node)
	}

	// A pod that requests more than is left stays pending, with the reason in its condition. 2k of 44k are taken.
	create(t, c, strings.ReplaceAll(renamed(guideReclaimedPod, "too-large"), millicpu+": 2k", millicpu+": 43k"))
	var condition string
	c.Eventually(soon, "too-large has the reason in its condition", func() string {
		condition = c.Kubectl("get", "pod", "too-large", "-o", `jsonpath={.status.phase} {.status.conditions[?(@.type=="PodScheduled")].reason}: {.status.conditions[?(@.type=="PodScheduled")].message}`)
		for _, want := range []string{"Pending Unschedulable: 0/2 nodes are available: ", "2 Insufficient " + millicpu} {
			if !strings.Contains(condition, want) {
				return fmt.Sprintf("it is %q, want %q", condition, want)
			}
		}
		return ""
	})
	// When the node offers more, the pod is bound.
	c.Kubectl("patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", `{"status":{"allocatable":{"`+millicpu+`":"46k"},"capacity":{"`+millicpu+`":"46k"}}}`)
	scheduled(t, c, "too-large")

	// The scheduler prefers the node with more reclaimed resources left, whatever other pods run there.
	c.MakeNode("node-2", "4", "8Gi", millicpu, "30k", memory, "195257901056")
	c.MakeNode("node-3", "96", "400Gi", millicpu, "20k", memory, "195257901056")
	c.SeenByScheduler("katalyst-scheduler", "node-2", "node-3")
	for _, name := range []string{"a", "b", "c"} {
		create(t, c, strings.ReplaceAll(renamed(guideReclaimedPod, name), millicpu+": 2k", millicpu+": 5k"))
		scheduled(t, c, name)
	}
	// The fractions left: 25 of 30 against 15 of 20; 20 of 30 against 15 of 20; 20 of 30 against 10 of 20.
	var got []string
	for _, name := range []string{"a", "b", "c"} {
		got = append(got, scheduled(t, c, name))
	}
	if want := "node-2 node-3 node-2"; strings.Join(got, " ") != want {
		t.Errorf("the pods are on %v, want %s", got, want)
	}
}

// The second scheduler of the chart has all the roles that it needs.
func TestSecondSchedulerHasTheRolesThatItNeeds(t *testing.T) {
	t.Parallel()
	c := controlplane.Start(t, controlplane.Options{})
	c.MakeNamespace(namespace)
	c.MakeNode("node-1", "48", "195924424Ki", millicpu, "44k", memory, "195257901056")
	for profile, manifest := range map[string]string{"katalyst-scheduler": "scheduler/deployment.yaml", "koord-scheduler": "koordinator/scheduler.yaml"} {
		t.Run(profile, func(t *testing.T) { secondScheduler(t, c.Plane.For(t), profile, manifest) })
	}
}

// knowsRoles waits until the server knows the scheduler's roles, by one of the rules of each binding: the log must not have a refusal.
func knowsRoles(c *controlplane.ControlPlane) {
	c.Helper()
	for _, attributes := range []string{
		`"verb":"list","resource":"nodes"`,
		`"verb":"list","group":"storage.k8s.io","resource":"storageclasses"`,
		`"verb":"create","group":"coordination.k8s.io","resource":"leases","namespace":"` + namespace + `"`,
		`"verb":"list","resource":"configmaps","name":"extension-apiserver-authentication","namespace":"kube-system"`,
	} {
		c.Eventually(soon, "the server knows the scheduler's role for "+attributes, func() string {
			var review struct{ Status struct{ Allowed bool } }
			status, answer := c.API(http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", fmt.Sprintf(
				`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"system:serviceaccount:%s:polder-scheduler","resourceAttributes":{%s}}}`,
				namespace, attributes))
			if err := json.Unmarshal(answer, &review); err != nil || !review.Status.Allowed {
				return fmt.Sprintf("status %d: %s", status, answer)
			}
			return ""
		})
	}
}

func secondScheduler(t *testing.T, c *controlplane.ControlPlane, profile, manifest string) {
	dir := controlplane.Need(t, "kube-scheduler")
	t.Cleanup(func() { // only one of this name can exist at a time
		c.Kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
		c.Kubectl("delete", "-f", filepath.Join(manifests, manifest))
	})
	c.ApplyFile(filepath.Join(manifests, manifest))
	guideReclaimedPod := strings.Replace(guideReclaimedPod, "katalyst-scheduler", profile, 1)
	var deployment struct {
		Spec struct {
			Template struct {
				Spec struct{ Containers []container }
			}
		}
	}
	c.Get("/apis/apps/v1/namespaces/"+namespace+"/deployments/polder-scheduler", &deployment)
	command := deployment.Spec.Template.Spec.Containers[0].Command
	if command[0] != "kube-scheduler" || !strings.HasPrefix(command[1], "--config=") {
		t.Fatalf("its command is %q", command)
	}
	// In a pod it finds the token by itself.
	configuration := c.Kubectl("-n", namespace, "get", "configmap", "polder-scheduler", "-o", "jsonpath={.data."+profile+"\\.yaml}")
	path := filepath.Join(t.TempDir(), "config.yaml")
	kubeconfig := c.KubeconfigFor(namespace, "polder-scheduler")
	if err := os.WriteFile(path, []byte(configuration+"\nclientConnection: {kubeconfig: "+kubeconfig+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	knowsRoles(c)
	// A scheduler that gets no CPU time for ten seconds would lose its lease, and end.
	args := append(command[2:], "--leader-elect-lease-duration=10m", "--leader-elect-renew-deadline=9m", "--config="+path, "--secure-port=0",
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig)
	cmd := exec.Command(filepath.Join(dir, "kube-scheduler"), args...)
	scheduler, err := program.Start(filepath.Join(t.TempDir(), "log"), cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer scheduler.Kill()
	create(t, c, guideReclaimedPod)
	scheduled(t, c, "reclaimed-normal-pod")
	if holder := c.Kubectl("-n", namespace, "get", "lease", profile, "-o", "jsonpath={.spec.holderIdentity}"); holder == "" {
		t.Error("no process holds the lease")
	}
	if err := scheduler.Died(); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(scheduler.Tail(1000)) {
		if strings.Contains(line, "forbidden") {
			t.Errorf("the server refused it: %s", line)
		}
	}
	// The second scheduler leaves the other scheduler's pods alone.
	create(t, c, strings.Replace(renamed(guideReclaimedPod, "others"), "schedulerName: "+profile, "schedulerName: default-scheduler", 1))
	create(t, c, renamed(guideReclaimedPod, "ours"))
	scheduled(t, c, "ours")
	if node := c.Kubectl("get", "pod", "others", "-o", "jsonpath={.spec.nodeName}"); node != "" {
		t.Errorf("it bound a pod of default-scheduler to %s", node)
	}
}
