// Package evict tests evict --action evict and delete on the real API.
package evict

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

// The tests share a control plane, with a scheduler, and the controllers that compute the status of disruption budgets.
func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Options{Scheduler: true, ControllerManager: true}, func(c *controlplane.ControlPlane) {
		c.Apply(batchClass)
		c.KnowsPriorityClasses("koord-batch")
	})
}

// cluster is the control plane with a node, a namespace and an account for the test.
type cluster struct {
	*controlplane.ControlPlane
	t                           *testing.T
	node, namespace, kubeconfig string
}

// start creates the test's node in the shared control plane.
func start(t *testing.T) *cluster {
	t.Helper()
	return startOn(t, controlplane.Shared(t), "48", "195924424Ki")
}

func startOn(t *testing.T, plane *controlplane.ControlPlane, cpu, memory string, more ...string) *cluster {
	t.Helper()
	c := &cluster{plane, t, plane.OwnName(), plane.OwnNamespace(), plane.AccountFor("evict")}
	c.MakeNode(c.node, cpu, memory, more...)
	return c
}

// in returns the cluster for a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	return &cluster{c.Plane.For(t), t, c.node, c.namespace, c.kubeconfig}
}

// kubectl is Kubectl in the test's namespace.
func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	return c.Kubectl(append([]string{"-n", c.namespace}, args...)...)
}

// pod creates a reclaimed pod on the node and returns it as collect writes it.
func (c *cluster) pod(name string, milli float64) tick.Pod {
	c.t.Helper()
	return c.podWithGrace(name, milli, 7)
}

// podWithGrace creates one with another grace period, in seconds.
func (c *cluster) podWithGrace(name string, milli float64, grace int) tick.Pod {
	c.t.Helper()
	c.Apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: %s
  labels: {app: %s}
  annotations: {katalyst.kubewharf.io/qos_level: reclaimed_cores}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: %d
  containers: [{name: stress, image: stress}]
`, name, c.namespace, name, c.node, grace))
	return tick.Pod{
		UID: c.uid(name), Namespace: c.namespace, Name: name, QoS: tick.QoSReclaimed, Phase: "Running",
		Requests: &tick.Resources{ReclaimedMilliCPU: &milli},
	}
}

func (c *cluster) uid(name string) string {
	c.t.Helper()
	return c.kubectl("get", "pod", name, "-o", "jsonpath={.metadata.uid}")
}

// budget creates a disruption budget that allows no eviction of this app, and waits until the controllers have counted its pods.
func (c *cluster) budget(app string) {
	c.t.Helper()
	c.Apply(fmt.Sprintf(`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: %s, namespace: %s}
spec: {minAvailable: 1, selector: {matchLabels: {app: %s}}}
`, app, c.namespace, app))
	c.Eventually(controlplane.Soon, "the budget's status", func() string {
		if out := c.kubectl("get", "pdb", app, "-o", "jsonpath={.status.expectedPods} {.status.disruptionsAllowed}"); out != "1 0" {
			return "status " + out
		}
		return ""
	})
}

// leaving reports whether the API server has accepted the deletion of a pod, with its grace period.
func (c *cluster) leaving(name string) string {
	c.t.Helper()
	out := c.kubectl("get", "pod", name, "-o", "jsonpath={.metadata.deletionTimestamp} {.metadata.deletionGracePeriodSeconds}")
	_, grace, found := strings.Cut(out, "Z ")
	if !found {
		return ""
	}
	return grace
}

// gone does kubelet's part: it removes a deleted pod.
func (c *cluster) gone(name string) {
	c.t.Helper()
	c.kubectl("delete", "pod", name, "--grace-period=0", "--force")
}

// events are the lines of kubectl describe for a pod, without their age.
func (c *cluster) events(name string) []string {
	c.t.Helper()
	out := c.kubectl("get", "event", "--no-headers", "--field-selector", "involvedObject.name="+name, "--sort-by", ".eventTime",
		"-o", "custom-columns=T:.type,R:.reason,O:.involvedObject.kind,M:.message,S:.series.count")
	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func (c *cluster) sees(name string, want ...string) {
	c.t.Helper()
	c.Eventually(controlplane.Soon, "events of "+name, func() string { return cmp.Diff(want, c.events(name)) })
}

// round is a current tick in which 4 cores are offered to the pods.
func (c *cluster) round(pods ...tick.Pod) *tick.Tick {
	return &tick.Tick{
		V: 1, Node: c.node, Time: time.Now().UTC(),
		Sample: &tick.Sample{Pods: pods, IntervalSeconds: new(1.0)},
		Advice: &tick.Advice{Policy: "katalyst", Reclaimed: &tick.Reclaimed{MilliCPU: new(int64(4000)), MemoryBytes: new(int64(1 << 40))}},
	}
}

// until sends ticks to the tool until a pod's eviction is in the state, and returns it.
func until(t *testing.T, x *pipe.Tool, name, state string, next func() *tick.Tick) tick.PodEviction {
	t.Helper()
	return untilError(t, x, name, state, "", next)
}

// untilError is until, where the eviction's error has to contain the message, too.
func untilError(t *testing.T, x *pipe.Tool, name, state, message string, next func() *tick.Tick) (found tick.PodEviction) {
	t.Helper()
	controlplane.Eventually(t, controlplane.Soon, name+" is "+state+" "+message, func() string {
		last := x.Put(next()).Eviction.Evictions
		for _, e := range last {
			if e.Name == name && e.State == state && strings.Contains(e.Error, message) {
				found = e
				return ""
			}
		}
		return fmt.Sprintf("last: %+v", last)
	})
	return found
}

// evict starts evict for the node, for ticks of any age: on a busy machine a tick may wait for the tool for longer than ticks usually may.
func (c *cluster) evict(args ...string) *pipe.Tool {
	return pipe.Start(c.t, "evict", append([]string{"--max-age", "0", "--action", "evict", "--kubeconfig", c.kubeconfig, "--node", c.node, "--reclaimed-tolerance", "0s"}, args...)...)
}

const reason = "met threshold in scope: katalyst.kubewharf.io/reclaimed_millicpu from plugin: reclaimed-resource-pressure-eviction-plugin"

// TestOvercommit is the guide's example: the offer falls to 4k, the second pod and the first request more than 5 times that, and evict
// evicts the second one, with the guide's texts.
func TestOvercommit(t *testing.T) {
	t.Parallel()
	c := start(t)
	one, two := c.pod("reclaimed-large-pod-1", 8000), c.pod("reclaimed-large-pod-2", 16000)
	both := func() *tick.Tick { return c.round(one, two) }
	x := c.evict()
	e := until(t, x, two.Name, tick.StateCreated, both)
	if e.Reason != reason {
		t.Errorf("reason %q; want %q", e.Reason, reason)
	}
	if got := c.leaving(two.Name); got != "60" {
		t.Errorf("the pod is deleted with a grace period of %q s; want 60", got)
	}
	c.sees(two.Name, "Normal EvictCreated Pod Successfully create eviction; reason: "+reason+" <none>")
	c.gone(two.Name)
	until(t, x, two.Name, tick.StateSucceeded, func() *tick.Tick { return c.round(one) })
	c.sees(two.Name,
		"Normal EvictCreated Pod Successfully create eviction; reason: "+reason+" <none>",
		"Normal EvictSucceeded Pod Evicted pod has been deleted physically; reason: "+reason+" <none>")
	if got := c.leaving(one.Name); got != "" {
		t.Error("the other pod is evicted, too")
	}
	if err := x.End(); err != nil {
		t.Error(err)
	}
	// The guide's command: kubectl get event -A | grep evict.
	out := c.Kubectl("get", "event", "-A")
	if !regexp.MustCompile(`(?m)^` + c.namespace + ` +\S+ +Normal +EvictCreated +pod/reclaimed-large-pod-2 +Successfully create eviction; reason: ` + regexp.QuoteMeta(reason)).MatchString(out) {
		t.Errorf("kubectl get event -A:\n%s", out)
	}
}

// TestBudget: an eviction that a disruption budget forbids is retried and never forced, and another pod is tried.
func TestBudget(t *testing.T) {
	t.Parallel()
	c := start(t)
	kept, other := c.pod("kept", 40000), c.pod("other", 30000)
	c.SetPodReady(c.namespace, "kept")
	c.budget("kept")
	x := c.evict()
	var ahead time.Duration // how far the ticks' clock is ahead
	both := func() *tick.Tick {
		r := c.round(kept, other)
		r.Time = r.Time.Add(ahead)
		return r
	}
	untilError(t, x, kept.Name, tick.StateRequested, "disruption budget", both)
	failed := until(t, x, kept.Name, tick.StateFailed, both)
	if !strings.Contains(failed.Error, "refused 3 times") {
		t.Errorf("the eviction's error is %q", failed.Error)
	}
	until(t, x, other.Name, tick.StateCreated, both)
	c.gone(other.Name)
	// The need persists: evict tries the first pod again after its backoff, and is refused again.
	ahead = 31 * time.Second
	alone := func() *tick.Tick {
		r := c.round(kept)
		r.Time = r.Time.Add(ahead)
		return r
	}
	until(t, x, kept.Name, tick.StateRequested, alone)
	until(t, x, kept.Name, tick.StateFailed, alone)
	c.Eventually(controlplane.Soon, "one event for both failures", func() string {
		lines := c.events(kept.Name)
		if len(lines) != 1 || !strings.HasPrefix(lines[0], "Warning EvictFailed Pod Evict failed: eviction refused 3 times: ") || !strings.HasSuffix(lines[0], " 2") {
			return strings.Join(lines, "\n")
		}
		return ""
	})
	if got := c.leaving(kept.Name); got != "" {
		t.Error("the pod was deleted against its budget")
	}
	// --action delete explicitly ignores the budget.
	d := pipe.Start(t, "evict", "--max-age", "0", "--action", "delete", "--kubeconfig", c.AccountFor("evict", "evict.action=delete"), "--node", c.node)
	until(t, d, kept.Name, tick.StateCreated, func() *tick.Tick { return c.round(kept) })
	if got := c.leaving(kept.Name); got != "60" {
		t.Errorf("deleted with a grace period of %q; want 60", got)
	}
}

// TestReplaced: a pod of the same name that was created after the sample is not the victim.
func TestReplaced(t *testing.T) {
	t.Parallel()
	c := start(t)
	old := c.pod("batch", 40000)
	c.gone("batch")
	c.pod("batch", 40000)
	x := c.evict()
	until(t, x, "batch", tick.StateSucceeded, func() *tick.Tick { return c.round(old) })
	if got := c.leaving("batch"); got != "" {
		t.Error("the new pod is evicted")
	}
	if got := c.events("batch"); len(got) != 0 {
		t.Errorf("events: %v; want none: nothing was evicted", got)
	}
}

// TestForbidden: the eviction's error names the missing permission, and nothing else breaks.
func TestForbidden(t *testing.T) {
	t.Parallel()
	c := start(t)
	pod := c.pod("batch", 40000)
	c.kubeconfig = c.KubeconfigFor(c.namespace, "default")
	x := c.evict()
	e := until(t, x, pod.Name, tick.StateFailed, func() *tick.Tick { return c.round(pod) })
	if !strings.Contains(e.Error, "forbidden") || !strings.Contains(e.Error, "pods/eviction") {
		t.Errorf("evict a pod without the right: %q; want the forbidden request", e.Error)
	}
	x.AwaitLog("event not written", 1)
	if err := x.End(); err != nil {
		t.Error(err)
	}
}
