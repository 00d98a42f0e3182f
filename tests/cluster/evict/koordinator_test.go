package evict

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/qos"
	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

// satisfactionGuide and memoryGuide are the ConfigMaps of Koordinator's guides: of eviction by CPU satisfaction, with a key in
// another case, and of the memory threshold.
const satisfactionGuide = `
apiVersion: v1
kind: ConfigMap
metadata:
  name: slo-controller-config
  namespace: koordinator-system
data:
  resource-threshold-config: |
    {
      "clusterStrategy": {
        "enable": true,
        "cpuEvictBESatisfactionLowerPercent": 60,
        "cpuEvictBESatisfactionUpperPercent": 80,
        "cpuEvictBEUsageThresholdPercent": 90,
        "CPUEvictTimeWindowSeconds": 60
      }
    }
`

const memoryGuide = `
apiVersion: v1
kind: ConfigMap
metadata:
  name: slo-controller-config
  namespace: koordinator-system
data:
  colocation-config: |
    {
      "enable": true
    }
  resource-threshold-config: |
    {
      "clusterStrategy": {
        "enable": true,
        "memoryEvictThresholdPercent": 70%s
      }
    }
`

const batchClass = `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: koord-batch}
value: 5000
preemptionPolicy: PreemptLowerPriority
`

// guidePod is the guide's pod, named be-pod-demo, for the test's own node.
const guidePod = `
apiVersion: v1
kind: Pod
metadata:
  name: %[1]s
  namespace: %[2]s
  labels:
    koordinator.sh/qosClass: 'BE' # set Pod QoS as BE
    app: %[1]s
spec:
  containers:
  - args: ['-c', '4', '--vm', '1']
    command: [stress]
    image: polinux/stress
    imagePullPolicy: Always
    name: stress
    resources:
      limits:
        kubernetes.io/batch-cpu: 4k
        kubernetes.io/batch-memory: 4Gi
      requests:
        kubernetes.io/batch-cpu: 4k
        kubernetes.io/batch-memory: 4Gi
  restartPolicy: Always
  schedulerName: default-scheduler
  priorityClassName: koord-batch
  nodeSelector: {kubernetes.io/hostname: %[3]s}
`

// koordinated is a cluster whose node offers batch resources, with a ConfigMap as the API server returns it, in a file.
func koordinated(t *testing.T, configMap string) (c *cluster, config string) {
	t.Helper()
	c = startOn(t, controlplane.Shared(t), "8", "32611012Ki", "kubernetes.io/batch-cpu", "9k", "kubernetes.io/batch-memory", "16Gi")
	c.Apply(strings.ReplaceAll(configMap, "koordinator-system", c.namespace))
	config = filepath.Join(t.TempDir(), "slo.yaml")
	if err := os.WriteFile(config, []byte(c.kubectl("get", "configmap", "slo-controller-config", "-o", "yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	return c, config
}

// bePod creates the guide's pod, which the scheduler binds, and returns it as collect writes it, with its usage.
func (c *cluster) bePod(name string, usedMilli, usedBytes float64) tick.Pod {
	c.t.Helper()
	c.Apply(fmt.Sprintf(guidePod, name, c.namespace, c.node))
	c.Eventually(controlplane.Soon, name+" to be bound", func() string {
		if on := c.kubectl("get", "pod", name, "-o", "jsonpath={.spec.nodeName} {.spec.priority}"); on != c.node+" 5000" {
			return "it is on " + on
		}
		return ""
	})
	c.SetPodReady(c.namespace, name)
	return tick.Pod{
		UID: c.uid(name), Namespace: c.namespace, Name: name, QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromKoordinator, Phase: "Running", Priority: new(int64(5000)),
		KubernetesQOS: qos.BestEffort, Labels: map[string]string{qos.KoordinatorClass: qos.BE},
		Requests:      &tick.Resources{ReclaimedMilliCPU: new(4000.0), ReclaimedMemoryBytes: new(4.0 * (1 << 30))},
		UsageMilliCPU: &usedMilli, Memory: &tick.Memory{RSSBytes: &usedBytes},
	}
}

// suppressed is the node's tick at a time: this many CPUs are left to the BE pods, which use all of them, and this much memory is used.
func (c *cluster) suppressed(at time.Time, cpus string, usedMilli, usedBytes float64, pods ...tick.Pod) *tick.Tick {
	const memory = 32611012 * 1024.0
	return &tick.Tick{V: 1, Node: c.node, Time: at.UTC(), Sample: &tick.Sample{
		IntervalSeconds: new(5.0), Pods: pods,
		Memory:   &tick.NodeMemory{TotalBytes: tick.Ptr(memory), AvailableBytes: new(memory - usedBytes)},
		Capacity: &tick.Resources{MilliCPU: new(8000.0), MemoryBytes: tick.Ptr(memory)},
		Tiers:    []tick.Tier{{Name: tick.TierBestEffort, Cgroup: "/kubepods/besteffort", CPUSetCPUs: cpus, CPUMaxMilliCPU: new(int64(-1)), UsageMilliCPU: &usedMilli}},
	}}
}

// evictBy starts evict with the ConfigMap.
func (c *cluster) evictBy(config string) *pipe.Tool {
	return c.evict("--config", config, "--rules", "BEMemoryEvict,BECPUEvict,MemoryAllocatableEvict,CPUAllocatableEvict,MemoryEvict,CPUEvict")
}

// watch sends the ticks of the 20 seconds in which evict evicts no pod yet.
func watch(t *testing.T, x *pipe.Tool, next func(at time.Time) *tick.Tick) {
	t.Helper()
	now := time.Now()
	for ago := 20 * time.Second; ago > 0; ago -= 5 * time.Second {
		if e := x.Put(next(now.Add(-ago))).Eviction; len(e.Evictions) > 0 || len(e.Errors) > 0 {
			t.Fatalf("%s before: %+v", ago, e)
		}
	}
}

// printed asserts that kubectl get event prints the line, after its age.
func (c *cluster) printed(line string) {
	c.t.Helper()
	want := regexp.MustCompile(`(?m)^\S+ +` + strings.ReplaceAll(regexp.QuoteMeta(line), " ", " +") + `$`)
	c.Eventually(controlplane.Soon, "an event", func() string {
		if out := c.kubectl("get", "event"); !want.MatchString(out) {
			return "kubectl get event does not print " + line + ":\n" + out
		}
		return ""
	})
}

// podEvents are a pod's events except the scheduler's, which may first see the node without its resources.
func (c *cluster) podEvents(name string) []string {
	return slices.DeleteFunc(c.events(name), func(line string) bool {
		return strings.HasPrefix(line, "Normal Scheduled ") || strings.HasPrefix(line, "Warning FailedScheduling ")
	})
}

// TestKoordinatorSatisfaction is the guide "Eviction Strategy base on CPU Satisfaction": its ConfigMap, its pod, and the event that it
// prints.
func TestKoordinatorSatisfaction(t *testing.T) {
	t.Parallel()
	c, config := koordinated(t, satisfactionGuide)
	demo := c.bePod("be-pod-demo", 1990, 1<<30)
	at := func(at time.Time) *tick.Tick { return c.suppressed(at, "0-1", 1990, 1<<30, demo) }
	now := func() *tick.Tick { return at(time.Now()) }
	x := c.evictBy(config)
	watch(t, x, at)
	e := until(t, x, demo.Name, tick.StateCreated, now)
	if e.Rule != "BECPUEvict" || e.Reason != "EvictPodByBECPUSatisfaction" || e.GracePeriodSeconds != nil {
		t.Errorf("%+v", e)
	}
	if got := c.leaving(demo.Name); got != "30" {
		t.Errorf("the pod is deleted with a grace period of %q s; want its own 30", got)
	}
	note := "evict Pod:be-pod-demo, reason: EvictPodByBECPUSatisfaction, message: killAndEvictBEPodsRelease for node(" + c.node + "), need realase CPU : 1200"
	c.printed("Warning   evictPodSuccess   pod/be-pod-demo   " + note)
	c.gone(demo.Name)
	until(t, x, demo.Name, tick.StateSucceeded, func() *tick.Tick { return c.suppressed(time.Now(), "0-1", 0, 1<<30) })
	if err := x.End(); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"Warning evictPodSuccess Pod " + note + " <none>"}, c.podEvents(demo.Name)); d != "" { // the only event
		t.Errorf("events (-want +got):\n%s", d)
	}
	if out, err := c.TryKubectl("", "-n", c.namespace, "get", "pod", "be-pod-demo"); err == nil || !strings.Contains(out+err.Error(), `Error from server (NotFound): pods "be-pod-demo" not found`) {
		t.Errorf("kubectl get pod be-pod-demo: %s, %v", out, err)
	}
}

// TestKoordinatorBudget: at a satisfaction of 30 % one of two pods has to be evicted. The first one's disruption budget protects it: one
// event has the server's reason, and evict evicts the next one.
func TestKoordinatorBudget(t *testing.T) {
	t.Parallel()
	c, config := koordinated(t, satisfactionGuide)
	kept, other := c.bePod("kept", 1500, 1<<30), c.bePod("other", 900, 1<<30)
	kept.Labels["app"] = "kept"
	c.budget("kept")
	// 2.4 of 8 cores, by a quota because no CPU list has that size: 8000 x 0.8 - 2400 = 4000 are too many, which is one pod.
	at := func(at time.Time) *tick.Tick {
		x := c.suppressed(at, "0-3", 2400, 1<<30, kept, other)
		x.Sample.Tiers[0].CPUMaxMilliCPU = new(int64(2400))
		return x
	}
	now := func() *tick.Tick { return at(time.Now()) }
	x := c.evictBy(config)
	watch(t, x, at)
	failed := until(t, x, kept.Name, tick.StateFailed, now)
	if !strings.Contains(failed.Error, "refused 3 times") || !strings.Contains(failed.Error, "disruption budget") {
		t.Errorf("the eviction's error is %q", failed.Error)
	}
	until(t, x, other.Name, tick.StateCreated, now)
	message := ", reason: EvictPodByBECPUSatisfaction, message: killAndEvictBEPodsRelease for node(" + c.node + "), need realase CPU : 4000"
	c.printed("Warning   evictPodSuccess   pod/other   evict Pod:other" + message)
	c.Eventually(controlplane.Soon, "one event for all refusals", func() string {
		lines := c.podEvents(kept.Name)
		if len(lines) != 1 || !strings.HasPrefix(lines[0], "Warning evictPodFail Pod evict Pod:kept"+message+": eviction refused 3 times: ") || !strings.Contains(lines[0], "violate the pod's disruption budget") {
			return strings.Join(lines, "\n")
		}
		return ""
	})
	if c.leaving(kept.Name) != "" || c.leaving(other.Name) == "" {
		t.Errorf("deleted with a grace period: kept %q, other %q", c.leaving(kept.Name), c.leaving(other.Name))
	}
}

// TestKoordinatorMemory is the release notes' memory threshold of 70 %: evict evicts the BE pod of lowest priority that uses most. With a
// priority set, it evicts any pod that allows it for the rest, with the newer rule's texts.
func TestKoordinatorMemory(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	c, config := koordinated(t, fmt.Sprintf(memoryGuide, `, "evictEnabledPriorityThreshold": 9999`))
	small, large := c.bePod("small", 10, 1*gib), c.bePod("large", 10, 2*gib)
	c.Apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: service
  namespace: %s
  labels: {koordinator.sh/qosClass: LS, koordinator.sh/eviction-enabled: "true"}
spec:
  nodeName: %s
  containers: [{name: stress, image: polinux/stress}]
`, c.namespace, c.node))
	service := tick.Pod{
		UID: c.uid("service"), Namespace: c.namespace, Name: "service", QoS: tick.QoSShared, QoSSource: tick.QoSFromKoordinator, Phase: "Running", Priority: new(int64(0)),
		Labels: map[string]string{qos.KoordinatorClass: qos.LS, qos.EvictionEnabled: "true"}, Memory: &tick.Memory{RSSBytes: tick.Ptr(20.0 * gib)},
	}
	// 22.4 GiB of 31.1 are 72 %: 4 % have to be released, and evicting the larger pod is enough.
	x := c.evictBy(config)
	until(t, x, large.Name, tick.StateCreated, func() *tick.Tick { return c.suppressed(time.Now(), "0-3", 10, 22.4*gib, small, large, service) })
	c.printed("Warning   evictPodSuccess   pod/large   evict Pod:large, reason: EvictPodByNodeMemoryUsage, message: killAndEvictBEPods for node(" + c.node + "), need to release memory: 1335747051")
	for _, name := range []string{small.Name, service.Name} {
		if got := c.leaving(name); got != "" {
			t.Errorf("%s is evicted, too", name)
		}
	}
	// The service grows: without the BE pods, memory usage is still above the threshold.
	grown := func() *tick.Tick {
		return later(c.suppressed(time.Now(), "0-3", 10, 27*gib, small, service), 10*time.Second)
	}
	until(t, x, service.Name, tick.StateCreated, grown)
	c.printed("Warning   evictPodSuccess   pod/service   evict Pod:" + c.namespace + "/service, reason: evicted, message: trigger by koordlet feature MemoryEvict, kill pod: service")
}
