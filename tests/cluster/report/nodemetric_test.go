package report

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

const (
	nodeMetricCRD  = "../../../deploy/kubernetes/crds/nodemetrics.yaml"
	nodeMetricPath = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics/"
)

func (c *cluster) toNodeMetric(args ...string) *pipe.Tool {
	c.t.Helper()
	return pipe.Start(c.t, "report", append([]string{"--to", "nodemetric", "--max-age", "0", "--kubeconfig", c.kubeconfig, "--node", c.node}, args...)...)
}

// measured is a tick of so long ago, of a node with the guide's usage.
func (c *cluster) measured(ago time.Duration) *tick.Tick { return c.measuredAt(time.Now().Add(-ago)) }

func (c *cluster) measuredAt(at time.Time) *tick.Tick {
	f := tick.Ptr[float64]
	used := &tick.Memory{RSSBytes: f(17828 * 1024)}
	return &tick.Tick{V: 1, Node: c.node, Time: at.UTC(), Sample: &tick.Sample{
		CPU:    &tick.NodeCPU{UsageMilliCPU: f(438)},
		Memory: &tick.NodeMemory{TotalBytes: f(32611012 * 1024), AvailableBytes: f(32611012*1024 - 1815637738)},
		Pods: []tick.Pod{{
			UID: "u", Namespace: "default", Name: "storage-service-6c7c59f868-k72r5", QoS: tick.QoSShared, KubernetesQOS: "Burstable",
			UsageMilliCPU: f(300), Memory: used, Containers: []tick.Container{{Cgroup: "/c", UsageMilliCPU: f(300), Memory: used}},
		}},
	}}
}

func (c *cluster) nodeMetric() map[string]any {
	c.t.Helper()
	status, body := c.API(http.MethodGet, nodeMetricPath+c.node, "")
	if status == http.StatusNotFound {
		return nil
	}
	var o map[string]any
	if err := json.Unmarshal(body, &o); err != nil {
		c.t.Fatal(err)
	}
	return o
}

// The guide's kubectl get nodemetrics, with the fields of later releases.
func TestGuideNodeMetric(t *testing.T) {
	t.Parallel()
	c := begin(t)
	x := c.toNodeMetric()
	if got := targetStates(x.Put(c.measured(5 * time.Second))); got != "nodemetric unchanged" {
		t.Errorf("the first sample: %s", got)
	}
	second := c.measured(0)
	if got := targetStates(x.Put(second)); got != "nodemetric pending changed" {
		t.Errorf("the second sample: %s", got)
	}
	// The same sample again: a later one, a minute after this on a busy machine, would be due.
	c.until(x, func() *tick.Tick { return second }, "^nodemetric written changed$")
	c.until(x, func() *tick.Tick { return second }, "^nodemetric unchanged$")

	yaml := c.Kubectl("get", "nodemetrics", c.node, "-o", "yaml")
	uid := c.Kubectl("get", "node", c.node, "-o", "jsonpath={.metadata.uid}")
	for pattern, with := range map[string]string{
		`(?m)^  creationTimestamp: .*$`: "  creationTimestamp: T", `(?m)^  resourceVersion: .*$`: "  resourceVersion: V", `(?m)^  uid: .*$`: "  uid: U",
		`(?m)^    uid: ` + uid + `$`: "    uid: THE NODE'S", `(?m)^  updateTime: ` + regexp.QuoteMeta(`"`+second.Time.Format(time.RFC3339)+`"`) + `$`: "  updateTime: THE TICK'S",
	} {
		yaml = regexp.MustCompile(pattern).ReplaceAllString(yaml, with)
	}
	want := `apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeMetric
metadata:
  creationTimestamp: T
  generation: 1
  name: guidenodemetric
  ownerReferences:
  - apiVersion: v1
    kind: Node
    name: guidenodemetric
    uid: THE NODE'S
  resourceVersion: V
  uid: U
spec: {}
status:
  nodeMetric:
    aggregatedNodeUsages:
    - duration: 5m0s
      usage: {}
    - duration: 10m0s
      usage: {}
    - duration: 30m0s
      usage: {}
    aggregatedSystemUsages:
    - duration: 5m0s
      usage: {}
    - duration: 10m0s
      usage: {}
    - duration: 30m0s
      usage: {}
    nodeUsage:
      resources:
        cpu: 438m
        memory: "1815637738"
    systemUsage:
      resources:
        cpu: 138m
        memory: "1797381866"
  podsMetric:
  - name: storage-service-6c7c59f868-k72r5
    namespace: default
    podUsage:
      resources:
        cpu: 300m
        memory: 17828Ki
    priority: koord-prod
    qos: LS
  updateTime: THE TICK'S
`
	if d := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(yaml)); d != "" {
		t.Errorf("kubectl get nodemetrics -o yaml (-want +got):\n%s", d)
	}
	if out := c.Kubectl("get", "nodemetrics"); !regexp.MustCompile(`(?m)^NAME +CPU +MEMORY +UPDATED +AGE\n(.*\n)*?guidenodemetric +438m +1815637738 +\S+ +\S+$`).MatchString(out) {
		t.Errorf("kubectl get nodemetrics:\n%s", out)
	}
	if err := x.End(); err != nil {
		t.Error(err)
	}
}

// Forty minutes of samples: reports in their interval, aggregates, and values that are unknown now are removed.
func TestNodeMetricOverTime(t *testing.T) {
	t.Parallel()
	c := begin(t)
	x := c.toNodeMetric()
	written, begun := 0, time.Now().Add(-40*time.Minute)
	for i := range 481 {
		in := c.measuredAt(begun.Add(time.Duration(i) * 5 * time.Second))
		*in.Sample.CPU.UsageMilliCPU += float64(i % 100)
		if strings.Contains(targetStates(x.Put(in)), "pending") {
			c.until(x, func() *tick.Tick { return in }, "written") // gives the write the time that it has in a live pipe
			written++
		}
	}
	if written != 40 {
		t.Errorf("written %d times in 40 minutes; want once a minute", written)
	}
	usage := func(i int, key string) string {
		list, _ := at(c.nodeMetric(), "status", "nodeMetric", "aggregatedNodeUsages").([]any)
		return fmt.Sprint(at(list[i], "usage", key, "resources", "cpu"))
	}
	c.Eventually(controlplane.Soon, "the aggregates over half an hour", func() string {
		got := fmt.Sprint(usage(2, "avg"), " ", usage(2, "p50"), " ", usage(2, "p99"), " ", usage(0, "p90"))
		if !regexp.MustCompile(`^48\dm 48\dm 53\dm 5\d\dm$`).MatchString(got) {
			return got
		}
		return ""
	})

	// While a pod's memory is unknown, so is the system's. Another program's prediction stays.
	if status, body := c.API(http.MethodPatch, nodeMetricPath+c.node+"/status", `{"status":{"prodReclaimableMetric":{"resource":{"resources":{"cpu":"1"}}}}}`); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	y := c.toNodeMetric() // with its own history
	for ago := 10 * time.Second; ago >= 0; ago -= 5 * time.Second {
		in := c.measured(ago)
		in.Sample.Pods[0].Containers[0].Memory = nil
		y.Put(in)
	}
	if err := y.End(); err != nil { // waits for the write
		t.Fatal(err)
	}
	status, _ := at(c.nodeMetric(), "status").(map[string]any)
	if got := fmt.Sprint(at(status, "nodeMetric", "systemUsage")); got != "map[resources:map[cpu:138m]]" {
		t.Errorf("the system's use: %s", got)
	}
	if got := at(status, "podsMetric"); got != nil {
		t.Errorf("pods: %v", got)
	}
	if got := at(status, "prodReclaimableMetric", "resource", "resources", "cpu"); got != "1" {
		t.Errorf("another program's prediction: %v", got)
	}
}

// Koordinator's manager creates the object, and owns its spec; report creates a deleted one again.
func TestNodeMetricOfTheManager(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.Apply(`{"apiVersion":"slo.koordinator.sh/v1alpha1","kind":"NodeMetric","metadata":{"name":"` + c.node + `"},"spec":{"metricCollectPolicy":{"aggregateDurationSeconds":300,"reportIntervalSeconds":60,"nodeAggregatePolicy":{"durations":["5m0s"]},"nodeMemoryCollectPolicy":"usageWithPageCache"}}}`)
	before := fmt.Sprint(at(c.nodeMetric(), "spec"))
	x := c.toNodeMetric()
	x.Put(c.measured(5 * time.Second))
	c.until(x, func() *tick.Tick { return c.measured(0) }, "written")
	o := c.nodeMetric()
	if got := fmt.Sprint(at(o, "spec")); got != before {
		t.Errorf("spec: %s; want %s", got, before)
	}
	if got := at(o, "metadata", "generation"); got != 1.0 {
		t.Errorf("generation %v", got)
	}
	if got := at(o, "status", "nodeMetric", "nodeUsage", "resources", "memory"); got != "1815637738" {
		t.Errorf("memory %v", got)
	}
	c.API(http.MethodDelete, nodeMetricPath+c.node, "")
	c.until(x, func() *tick.Tick { return c.measured(-time.Minute) }, "written") // a minute later
	if o := c.nodeMetric(); at(o, "status", "updateTime") == nil || at(o, "metadata", "ownerReferences") == nil {
		t.Errorf("created again: %v", o)
	}
}

// With the CRD of an earlier Koordinator, which lacks fields, report writes the fields that it has.
func TestNodeMetricOfAnotherCRD(t *testing.T) {
	t.Parallel()
	c := bare(t, "old")
	x := c.toNodeMetric("--node", "old")
	next := func() *tick.Tick { return c.measured(0) }
	c.until(x, next, `nodemetric failed changed: .*forbidden.*for --to nodemetric nodes: get; nodemetrics: create; nodemetrics/status: patch`)
	c.Grant("default", "default", "report", toAll)
	c.until(x, next, `nodemetric failed changed: .*does the cluster have the kind NodeMetric\? Install the CRDs`)
	c.Apply(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodemetrics.slo.koordinator.sh}
spec:
  group: slo.koordinator.sh
  scope: Cluster
  names: {kind: NodeMetric, listKind: NodeMetricList, plural: nodemetrics, singular: nodemetric}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object}
          status:
            type: object
            properties:
              updateTime: {type: string, format: date-time}
              nodeMetric: {type: object, properties: {nodeUsage: {type: object, properties: {resources: {type: object, additionalProperties: {anyOf: [{type: integer}, {type: string}], x-kubernetes-int-or-string: true}}}}}}
`)
	c.until(x, next, "written")
	status, err := json.Marshal(at(c.nodeMetric(), "status"))
	if match := `^\{"nodeMetric":\{"nodeUsage":\{"resources":\{"cpu":"438m","memory":"1815637738"\}\}\},"updateTime":"[^"]+"\}$`; err != nil || !regexp.MustCompile(match).Match(status) {
		t.Errorf("status: %s, %v", status, err)
	}
	// A server that does not answer delays no tick, and the newest figures are written when it is back.
	c.FreezeAPIServer()
	began, slowest := time.Now(), time.Duration(0)
	busy := func(later time.Duration) *tick.Tick {
		in := c.measured(-later)
		*in.Sample.CPU.UsageMilliCPU = 1000
		return in
	}
	for i := range 100 {
		in := busy(time.Minute + time.Duration(i)*time.Second)
		put := time.Now()
		x.Put(in)
		slowest = max(slowest, time.Since(put))
	}
	t.Logf("a tick took %s at most, of %s", slowest, time.Since(began))
	if slowest > 20*time.Second { // shorter than a request's timeout
		t.Errorf("a tick took %s", slowest)
	}
	c.ThawAPIServer()
	// The write may contain this tick alone: the earlier ones have left its window.
	c.until(x, func() *tick.Tick { return busy(10 * time.Minute) }, "written")
	c.Eventually(controlplane.Soon, "newer figures", func() string {
		if got := fmt.Sprint(at(c.nodeMetric(), "status", "nodeMetric", "nodeUsage", "resources", "cpu")); got == "438m" {
			return got
		}
		return ""
	})

	// A node that does not exist in the cluster.
	c.node = "nobody"
	y := c.toNodeMetric()
	y.Put(c.measured(5 * time.Second))
	c.until(y, func() *tick.Tick { return c.measured(0) }, `nodemetric failed changed: the cluster has no node "nobody"`)
	if err := y.End(); err == nil || !strings.Contains(y.Log(), "nodemetric: not written at the end of the input: the cluster has no node") {
		t.Errorf("exit %v, log %s", err, y.Log())
	}
}
