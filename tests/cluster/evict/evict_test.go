// Package evict shows evict --action evict and delete on the real API.
package evict

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

const node = "n1"

func TestMain(m *testing.M) { os.Exit(pipe.Main(m)) }

// account is a service account that may do what evict's manual says, and no more.
const account = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: evict, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: evict}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get]}
- {apiGroups: [""], resources: [pods/eviction], verbs: [create]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: evict}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: evict}
subjects: [{kind: ServiceAccount, name: evict, namespace: kube-system}]
`

// cluster is a control plane with a node and the account.
type cluster struct {
	*controlplane.ControlPlane
	t          *testing.T
	kubeconfig string
}

func start(t *testing.T, options controlplane.Options) *cluster {
	t.Helper()
	c := &cluster{controlplane.Start(t, options), t, ""}
	c.MakeNode(node, "48", "195924424Ki")
	c.Apply(account)
	c.kubeconfig = c.KubeconfigFor("kube-system", "evict")
	return c
}

// pod makes a reclaimed pod on the node and returns it as collect shows it.
func (c *cluster) pod(name string, milli float64) tick.Pod {
	c.t.Helper()
	return c.podWithGrace(name, milli, 7)
}

// podWithGrace makes one with another grace period, in seconds.
func (c *cluster) podWithGrace(name string, milli float64, grace int) tick.Pod {
	c.t.Helper()
	c.Apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default
  labels: {app: %s}
  annotations: {katalyst.kubewharf.io/qos_level: reclaimed_cores}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: %d
  containers: [{name: stress, image: stress}]
`, name, name, node, grace))
	return tick.Pod{
		UID: c.uid(name), Namespace: "default", Name: name, QoS: tick.QoSReclaimed, Phase: "Running",
		Requests: &tick.Resources{ReclaimedMilliCPU: &milli},
	}
}

func (c *cluster) uid(name string) string {
	c.t.Helper()
	return c.Kubectl("get", "pod", name, "-o", "jsonpath={.metadata.uid}")
}

// leaving reports whether the API server has been told to delete a pod, with the grace period that it was given.
func (c *cluster) leaving(name string) string {
	c.t.Helper()
	out := c.Kubectl("get", "pod", name, "-o", "jsonpath={.metadata.deletionTimestamp} {.metadata.deletionGracePeriodSeconds}")
	_, grace, found := strings.Cut(out, "Z ")
	if !found {
		return ""
	}
	return grace
}

// gone does what the node's kubelet would: it takes a pod that has been deleted away.
func (c *cluster) gone(name string) {
	c.t.Helper()
	c.Kubectl("delete", "pod", name, "--grace-period=0", "--force")
}

// events are the lines that a user sees of a pod, without their age.
func (c *cluster) events(name string) []string {
	c.t.Helper()
	out := c.Kubectl("get", "event", "--no-headers", "--field-selector", "involvedObject.name="+name, "--sort-by", ".eventTime",
		"-o", "custom-columns=T:.type,R:.reason,O:.involvedObject.kind,M:.message,S:.series.count")
	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func (c *cluster) sees(name string, want ...string) {
	c.t.Helper()
	c.Eventually(15*time.Second, "events of "+name, func() string { return cmp.Diff(want, c.events(name)) })
}

// round is a tick of now in which 4 cores are offered to the pods.
func round(pods ...tick.Pod) *tick.Tick {
	return &tick.Tick{
		V: 1, Node: node, Time: time.Now().UTC(),
		Sample: &tick.Sample{Pods: pods, IntervalSeconds: tick.Ptr(1.0)},
		Advice: &tick.Advice{Policy: "katalyst", Reclaimed: &tick.Reclaimed{MilliCPU: tick.Ptr(int64(4000)), MemoryBytes: tick.Ptr(int64(1 << 40))}},
	}
}

// until gives the tool ticks until one pod's eviction is in the state, and returns it.
func until(t *testing.T, x *pipe.Tool, name, state string, within time.Duration, next func() *tick.Tick) tick.PodEviction {
	t.Helper()
	var last []tick.PodEviction
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		last = x.Put(next()).Eviction.Evictions
		for _, e := range last {
			if e.Name == name && e.State == state {
				return e
			}
		}
	}
	t.Fatalf("%s is not %s within %s; last: %+v", name, state, within, last)
	return tick.PodEviction{}
}

func (c *cluster) evict(args ...string) *pipe.Tool {
	return pipe.Start(c.t, "evict", append([]string{"--action", "evict", "--kubeconfig", c.kubeconfig, "--node", node}, args...)...)
}

const reason = "met threshold in scope: katalyst.kubewharf.io/reclaimed_millicpu from plugin: reclaimed-resource-pressure-eviction-plugin"

// TestOvercommit is the guide's: what is offered falls to 4k, the second pod asks for more than 5 times that together with the
// first one, and goes, with the guide's texts.
func TestOvercommit(t *testing.T) {
	c := start(t, controlplane.Options{})
	one, two := c.pod("reclaimed-large-pod-1", 8000), c.pod("reclaimed-large-pod-2", 16000)
	both := func() *tick.Tick { return round(one, two) }
	x := c.evict()
	e := until(t, x, two.Name, tick.StateCreated, 20*time.Second, both)
	if e.Reason != reason {
		t.Errorf("reason %q; want %q", e.Reason, reason)
	}
	if got := c.leaving(two.Name); got != "60" {
		t.Errorf("the pod leaves with a grace period of %q s; want 60", got)
	}
	c.sees(two.Name, "Normal EvictCreated Pod Successfully create eviction; reason: "+reason+" <none>")
	c.gone(two.Name)
	until(t, x, two.Name, tick.StateSucceeded, 20*time.Second, func() *tick.Tick { return round(one) })
	c.sees(two.Name,
		"Normal EvictCreated Pod Successfully create eviction; reason: "+reason+" <none>",
		"Normal EvictSucceeded Pod Evicted pod has been deleted physically; reason: "+reason+" <none>")
	if got := c.leaving(one.Name); got != "" {
		t.Error("the other pod goes too")
	}
	if err := x.End(); err != nil {
		t.Error(err)
	}
	// As in the guide: kubectl get event -A | grep evict.
	out := c.Kubectl("get", "event", "-A")
	if !regexp.MustCompile(`(?m)^default +\S+ +Normal +EvictCreated +pod/reclaimed-large-pod-2 +Successfully create eviction; reason: ` + regexp.QuoteMeta(reason)).MatchString(out) {
		t.Errorf("kubectl get event -A:\n%s", out)
	}
}

// TestBudget: what a disruption budget forbids is asked for again and never forced, and another pod is tried.
func TestBudget(t *testing.T) {
	c := start(t, controlplane.Options{ControllerManager: true})
	kept, other := c.pod("kept", 40000), c.pod("other", 30000)
	c.SetPodReady("default", "kept")
	c.Apply(`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: kept, namespace: default}
spec: {minAvailable: 1, selector: {matchLabels: {app: kept}}}
`)
	c.Eventually(30*time.Second, "the budget's status", func() string {
		if out := c.Kubectl("get", "pdb", "kept", "-o", "jsonpath={.status.expectedPods} {.status.disruptionsAllowed}"); out != "1 0" {
			return "status " + out
		}
		return ""
	})
	x := c.evict("--max-age", "0")
	var ahead time.Duration // of the ticks' clock
	both := func() *tick.Tick {
		r := round(kept, other)
		r.Time = r.Time.Add(ahead)
		return r
	}
	waiting := until(t, x, kept.Name, tick.StateRequested, 10*time.Second, both)
	for deadline := time.Now().Add(5 * time.Second); waiting.Error == "" && time.Now().Before(deadline); {
		waiting = until(t, x, kept.Name, tick.StateRequested, 5*time.Second, both)
	}
	if !strings.Contains(waiting.Error, "disruption budget") {
		t.Errorf("while it is refused: %+v; want the budget's name", waiting)
	}
	failed := until(t, x, kept.Name, tick.StateFailed, 30*time.Second, both)
	if !strings.Contains(failed.Error, "refused 3 times") {
		t.Errorf("failed with %q", failed.Error)
	}
	until(t, x, other.Name, tick.StateCreated, 10*time.Second, both)
	c.gone(other.Name)
	// The need persists: the first one is asked again after its rest, and refused again.
	ahead = 31 * time.Second
	alone := func() *tick.Tick {
		r := round(kept)
		r.Time = r.Time.Add(ahead)
		return r
	}
	until(t, x, kept.Name, tick.StateRequested, 10*time.Second, alone)
	until(t, x, kept.Name, tick.StateFailed, 30*time.Second, alone)
	c.Eventually(15*time.Second, "one event for both failures", func() string {
		lines := c.events(kept.Name)
		if len(lines) != 1 || !strings.HasPrefix(lines[0], "Warning EvictFailed Pod Evict failed: refused 3 times: ") || !strings.HasSuffix(lines[0], " 2") {
			return strings.Join(lines, "\n")
		}
		return ""
	})
	if got := c.leaving(kept.Name); got != "" {
		t.Error("the pod was deleted against its budget")
	}
	// --action delete is the explicit choice against it.
	d := pipe.Start(t, "evict", "--action", "delete", "--kubeconfig", c.Kubeconfig(), "--node", node)
	until(t, d, kept.Name, tick.StateCreated, 10*time.Second, func() *tick.Tick { return round(kept) })
	if got := c.leaving(kept.Name); got != "60" {
		t.Errorf("deleted with a grace period of %q; want 60", got)
	}
}

// TestReplaced: a pod of the same name that came after the sample is not the one that was meant.
func TestReplaced(t *testing.T) {
	c := start(t, controlplane.Options{})
	old := c.pod("batch", 40000)
	c.gone("batch")
	c.pod("batch", 40000)
	x := c.evict()
	until(t, x, "batch", tick.StateSucceeded, 20*time.Second, func() *tick.Tick { return round(old) })
	if got := c.leaving("batch"); got != "" {
		t.Error("the new pod goes")
	}
	if got := c.events("batch"); len(got) != 0 {
		t.Errorf("events: %v; want none: nothing was evicted", got)
	}
}

// TestOutage: while the API server is away the need is kept and nothing doubled, and the stream goes on; a killed evict goes on
// where it was.
func TestOutage(t *testing.T) {
	c := start(t, controlplane.Options{})
	pod := c.pod("batch", 40000)
	state := filepath.Join(t.TempDir(), "evict.json")
	now := func() *tick.Tick { return round(pod) }
	x := c.evict("--state", state)
	x.Put(round())
	c.StopAPIServer()
	e := until(t, x, pod.Name, tick.StateRequested, 10*time.Second, now)
	for deadline := time.Now().Add(10 * time.Second); e.Error == "" && time.Now().Before(deadline); {
		e = until(t, x, pod.Name, tick.StateRequested, 5*time.Second, now)
	}
	if !strings.Contains(e.Error, "connection refused") {
		t.Errorf("while the server is away: %+v; want to be told so", e)
	}
	x.Kill()
	x = c.evict("--state", state)
	if got := x.Put(now()).Eviction.Evictions; len(got) != 1 || got[0].State != tick.StateRequested {
		t.Errorf("after a crash: %+v; want the same eviction going on", got)
	}
	c.StartAPIServer()
	until(t, x, pod.Name, tick.StateCreated, 20*time.Second, now)
	for range 5 {
		x.Put(now())
	}
	c.sees(pod.Name, "Normal EvictCreated Pod Successfully create eviction; reason: "+reason+" <none>")
	x.Kill()
	x = c.evict("--state", state)
	x.Put(now())
	c.gone(pod.Name)
	until(t, x, pod.Name, tick.StateSucceeded, 10*time.Second, func() *tick.Tick { return round() })
}

// TestForbidden: what the account may not do is said, and nothing else breaks.
func TestForbidden(t *testing.T) {
	c := start(t, controlplane.Options{})
	pod := c.pod("batch", 40000)
	c.Kubectl("delete", "clusterrolebinding", "evict")
	x := c.evict()
	e := until(t, x, pod.Name, tick.StateFailed, 20*time.Second, func() *tick.Tick { return round(pod) })
	if !strings.Contains(e.Error, "forbidden") || !strings.Contains(e.Error, "pods/eviction") {
		t.Errorf("error %q; want what is forbidden", e.Error)
	}
	if err := x.End(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(x.Log(), "event not written") {
		t.Errorf("the log does not tell that no event was written:\n%s", x.Log())
	}
}
