package centre

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

// many is a fleet of nodes without kubelets, with a reclaimed pod each.
type many struct {
	*cluster
	names []string
	pods  map[string]tick.Pod // by node
	since time.Time           // since when the agents that are not ready have not been
}

// fleet creates so many nodes, each with a reclaimed pod in a namespace for the test alone.
func (c *cluster) fleet(prefix string, nodes int) *many {
	c.t.Helper()
	f := &many{c, nil, map[string]tick.Pod{}, time.Now().Add(-30 * time.Minute)}
	c.MakeNamespace(prefix)
	c.t.Cleanup(func() {
		c.API(http.MethodDelete, "/api/v1/namespaces/"+prefix+"/pods?gracePeriodSeconds=0", "")
		c.Kubectl("delete", "namespace", prefix, "--wait=false")
		for _, n := range f.names {
			c.API(http.MethodDelete, nodePath+n, "")
			c.API(http.MethodDelete, cnrPath+n, "")
		}
	})
	for i := range nodes {
		f.names = append(f.names, fmt.Sprintf("%s-%03d", prefix, i))
	}
	var mu sync.Mutex
	controlplane.Each(nodes, func(i int) {
		name := f.names[i]
		if status, answer := c.API(http.MethodPost, "/api/v1/nodes", fmt.Sprintf(`{"metadata":{"name":%q}}`, name)); status != http.StatusCreated {
			c.t.Errorf("make node %s: %s", name, answer)
		}
		amounts := `{"cpu":"48","memory":"1Gi","pods":"110","` + milliCPU + `":"44k"}`
		c.API(http.MethodPatch, nodePath+name+"/status", `{"status":{"capacity":`+amounts+`,"allocatable":`+amounts+`}}`)
		status, answer := c.API(http.MethodPost, "/api/v1/namespaces/"+prefix+"/pods", fmt.Sprintf(
			`{"metadata":{"name":%q,"labels":{"app":"batch"}},"spec":{"nodeName":%q,"terminationGracePeriodSeconds":7,"tolerations":[{"operator":"Exists"}],"containers":[{"name":"c","image":"c"}]}}`, name, name))
		var pod struct{ Metadata struct{ UID string } }
		if err := json.Unmarshal(answer, &pod); err != nil || status != http.StatusCreated {
			c.t.Errorf("make pod %s: %s", name, answer)
		}
		mu.Lock()
		f.pods[name] = tick.Pod{UID: pod.Metadata.UID, Namespace: prefix, Name: name, QoS: tick.QoSReclaimed, Phase: "Running"}
		mu.Unlock()
	})
	return f
}

// leaving are the pods whose deletion the API server has accepted, with their grace periods.
func (f *many) leaving(namespace string) map[string]int64 {
	f.t.Helper()
	var list struct {
		Items []struct {
			Metadata struct {
				Name                       string
				DeletionTimestamp          string
				DeletionGracePeriodSeconds int64
			}
		}
	}
	f.Get("/api/v1/namespaces/"+namespace+"/pods", &list)
	out := map[string]int64{}
	for _, p := range list.Items {
		if p.Metadata.DeletionTimestamp != "" {
			out[p.Metadata.Name] = p.Metadata.DeletionGracePeriodSeconds
		}
	}
	return out
}

// round sends a tick of each node to evict, and evict's output to report, if there is one. The first so many nodes have not been ready
// for half an hour; a pod that terminates is shown as such.
func (f *many) round(evict, report *pipe.Tool, down int) []*tick.Tick {
	f.t.Helper()
	leaving := f.leaving(f.names[0][:strings.LastIndexByte(f.names[0], '-')])
	out := make([]*tick.Tick, len(f.names))
	for i, name := range f.names {
		agent, pod := tick.AgentReady, f.pods[name]
		if i < down {
			agent = tick.AgentNotReady
		}
		_, pod.Terminating = leaving[name]
		in := heard(name, agent, f.since, len(f.names), down, pod)
		evict.Send(in)
		if i%50 == 49 || i == len(f.names)-1 { // not more than fits into the pipe
			for j := i - i%50; j <= i; j++ {
				out[j] = evict.Next()
				if report != nil {
					report.Put(out[j])
				}
			}
		}
	}
	return out
}

// TestTwoHundredNodes loses the agents of 200 nodes at once: the cause is the network or the controller, which does nothing. When all but a
// fifth are back, it acts on the rest, one node at a time.
func TestTwoHundredNodes(t *testing.T) {
	t.Parallel()
	c := begin(t)
	const nodes, fifth = 200, 40
	f := c.fleet("crowd", nodes)
	evict, report := c.tool("evict", "--action", "evict", "--nodes-per-minute", "60"), c.tool("report")
	for _, down := range []int{nodes, nodes - 1, fifth + 1} {
		for range 3 {
			for i, out := range f.round(evict, report, down) {
				e := out.Eviction
				if len(e.Taints) > 0 || len(e.Evictions) > 0 || e.Fleet == nil || e.Fleet.Protection == "" || e.Fleet.Held != (i < down) {
					t.Fatalf("%d of %d are down, and the eviction of %s is %+v", down, nodes, out.Node, e)
				}
			}
		}
	}
	c.Eventually(controlplane.Soon, "the conditions, under the protection, and nothing else", func() string {
		f.round(evict, report, fifth+1)
		for _, name := range f.names[:3] {
			if s := c.state(name); s.mark != "" || len(s.taints) > 0 || s.offers != "44k" || !strings.HasPrefix(s.conditions["AgentReady"], "False") {
				return fmt.Sprintf("%s: %+v", name, s)
			}
		}
		return ""
	})
	if n := c.Evictions("crowd"); n > 0 || len(f.leaving("crowd")) > 0 {
		t.Fatalf("%d evictions while the protection is on", n)
	}
	if n := strings.Count(evict.Log(), "no new eviction on any node"); n != 1 {
		t.Errorf("the log reports the protection %d times; want once:\n%s", n, evict.Log())
	}

	// A fifth is few enough to act on.
	began := time.Now()
	var leaving map[string]int64
	c.Eventually(controlplane.Soon, "twelve of the fifth's pods are leaving", func() string {
		f.round(evict, report, fifth)
		leaving = f.leaving("crowd")
		// One a second; the interval is 10 s, of which 9 may already have passed between two of the first ones.
		if most := int(time.Since(began)/time.Second) + 10; len(leaving) > most {
			t.Fatalf("%d pods are leaving after %s; want %d at most", len(leaving), time.Since(began), most)
		}
		if len(leaving) < 12 {
			return fmt.Sprint(len(leaving))
		}
		return ""
	})
	for name, grace := range leaving {
		if i, _ := strconv.Atoi(strings.TrimPrefix(name, "crowd-")); i >= fifth || grace != 7 {
			t.Errorf("%s is leaving within %d s; want one of the first %d, with its own 7", name, grace, fifth)
		}
	}
	c.Eventually(controlplane.Soon, "taints on the fifth and on no others", func() string {
		f.round(evict, report, fifth)
		for _, i := range []int{0, fifth - 1, fifth, nodes - 1} {
			s := c.state(f.names[i])
			if down := i < fifth; (len(s.taints) == 1) != down || (s.mark != "") != down || (s.offers == "") != down {
				return fmt.Sprintf("%s: %+v", f.names[i], s)
			}
		}
		return ""
	})
	// All agents are lost again: evict evicts no more pods, and the state stays.
	c.Eventually(controlplane.Soon, "all requests are answered", func() string {
		for _, out := range f.round(evict, report, nodes) {
			for _, e := range out.Eviction.Evictions {
				if e.State == tick.StateRequested {
					return e.Name
				}
			}
		}
		return ""
	})
	asked, since := c.Evictions("crowd"), time.Now()
	c.Eventually(controlplane.Soon, "ticks for longer than the interval between two nodes", func() string {
		f.round(evict, report, nodes)
		if d := time.Since(since); d < 2500*time.Millisecond {
			return d.String()
		}
		return ""
	})
	if n := c.Evictions("crowd") - asked; n > 0 {
		t.Errorf("%d evictions while the protection is on", n)
	}
	if s := c.state(f.names[0]); len(s.taints) != 1 || s.mark == "" || s.offers != "" {
		t.Errorf("while the protection is on, %s has lost its state: %+v", f.names[0], s)
	}
	if s := c.state(f.names[nodes-1]); len(s.taints) != 0 || s.mark != "" || s.offers != "44k" {
		t.Errorf("while the protection is on, %s has got a new state: %+v", f.names[nodes-1], s)
	}
}

// A restart evicts no pod twice, and does not shorten the interval. A budget that allows nothing is not overridden.
func TestRestartAndBudget(t *testing.T) {
	t.Parallel()
	c := &cluster{controlplane.Start(t, controlplane.Options{ControllerManager: true}), t} // which computes the status of budgets
	define(c.ControlPlane)
	f := c.fleet("restart", 15)
	c.Apply(`
apiVersion: v1
kind: Pod
metadata: {name: precious, namespace: restart, labels: {app: precious}}
spec:
  nodeName: restart-000
  containers: [{name: c, image: c}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: precious, namespace: restart}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: precious}}}
`)
	c.SetPodReady("restart", "precious")
	c.Eventually(controlplane.Soon, "the budget", func() string {
		if n := c.Kubectl("get", "pdb", "precious", "-n", "restart", "-o", "jsonpath={.status.observedGeneration}"); n != "1" {
			return "observed: " + n
		}
		return ""
	})
	precious := tick.Pod{
		UID:       c.Kubectl("get", "pod", "precious", "-n", "restart", "-o", "jsonpath={.metadata.uid}"),
		Namespace: "restart", Name: "precious", QoS: tick.QoSReclaimed, Phase: "Running",
	}
	first := f.names[0]
	state := filepath.Join(t.TempDir(), "state.json")
	args := []string{"--action", "evict", "--nodes-per-minute", "12", "--state", state}
	evict := c.tool("evict", args...)
	hour := time.Now().Add(-time.Hour)
	next := func(name string) *tick.Tick {
		pod := f.pods[name]
		_, pod.Terminating = f.leaving("restart")[name]
		pods := []tick.Pod{pod}
		if name == first {
			pods = append(pods, precious)
		}
		in := heard(name, tick.AgentNotReady, hour, 15, 2, pods...)
		in.Sample.IntervalSeconds = new(2.0) // less than the interval between two nodes
		return in
	}
	began := time.Now()
	c.Eventually(controlplane.Soon, "the first node's pod is evicted", func() string {
		evict.Put(next(first))
		if _, ok := f.leaving("restart")[first]; !ok {
			return "it stays"
		}
		return ""
	})
	// An event that is being written when the tool is killed is lost; this test is not about it.
	c.Eventually(controlplane.Soon, "the event of "+first, func() string {
		if events := c.Kubectl("get", "events", "-n", "restart", "--field-selector", "involvedObject.name="+first, "-o", "name"); events == "" {
			return "none yet"
		}
		return ""
	})
	c.Eventually(controlplane.Soon, "the state is saved", func() string {
		saved, err := os.ReadFile(state)
		if err != nil || !strings.Contains(string(saved), f.pods[first].UID) {
			return fmt.Sprintf("%.500s, %v", saved, err)
		}
		return ""
	})
	evict.Kill()
	evict = c.tool("evict", args...)
	const pause = 4500 * time.Millisecond // of 5 s: rounds that come a little sooner are accepted
	c.Eventually(controlplane.Soon, "the interval between two nodes", func() string {
		for _, name := range f.names[:2] {
			evictions := evict.Put(next(name)).Eviction.Evictions
			if d := time.Since(began); name == f.names[1] && len(evictions) > 0 && d < pause {
				t.Fatalf("%s after the start, within the interval after the first node: %+v", d, evictions)
			}
		}
		if d := time.Since(began); d < pause {
			return d.String()
		}
		return ""
	})
	c.Eventually(controlplane.Soon, "the second node's pod is evicted", func() string {
		evict.Put(next(first))
		evict.Put(next(f.names[1]))
		if _, ok := f.leaving("restart")[f.names[1]]; !ok {
			return "it stays"
		}
		return ""
	})
	// The eviction of the precious pod was asked for several times, and the pod remains. Those of the others were asked for once.
	c.Eventually(controlplane.Soon, "the refusal is reported", func() string {
		for _, x := range evict.Put(next(first)).Eviction.Evictions {
			if x.Name == "precious" && strings.Contains(x.Error, "disruption budget") {
				return ""
			}
		}
		return "not yet"
	})
	if leaving := f.leaving("restart"); len(leaving) != 2 {
		t.Errorf("leaving: %v; want the first two nodes' pods", leaving)
	}
	one, two, kept := c.Evictions("restart", first), c.Evictions("restart", f.names[1]), c.Evictions("restart", "precious")
	if one != 1 || two != 1 || kept < 1 {
		t.Errorf("%d and %d evictions of the nodes' pods were asked for, and %d of the precious one; want one each, and some", one, two, kept)
	}
	for _, name := range f.names[:2] {
		c.Eventually(controlplane.Soon, "one event of "+name, func() string {
			events := c.Kubectl("get", "events", "-n", "restart", "--field-selector", "involvedObject.name="+name,
				"-o", "jsonpath={range .items[*]}{.reason} {.note}{.message} {.series.count}{\"\\n\"}{end}")
			const reason = "Successfully create eviction; reason: met threshold in scope: AgentReady from plugin: agent-health"
			if strings.Count(events, "EvictCreated") == 1 && strings.Contains(events, reason) {
				return ""
			}
			return events
		})
	}
	// The agent is back: no further eviction is asked for.
	ready := func() []tick.PodEviction {
		return evict.Put(heard(first, tick.AgentReady, time.Now(), 15, 1, precious)).Eviction.Evictions
	}
	c.Eventually(controlplane.Soon, "the eviction in progress ends: it is asked for three times, 5 seconds apart", func() string {
		for _, e := range ready() {
			if e.State == tick.StateRequested {
				return fmt.Sprintf("%+v", e)
			}
		}
		return ""
	})
	before := c.Evictions("restart")
	third := f.names[2]
	c.Eventually(controlplane.Soon, "the third node's pod is evicted", func() string { // shows that evict continues
		ready()
		evict.Put(next(third))
		if _, ok := f.leaving("restart")[third]; !ok {
			return "it stays"
		}
		return ""
	})
	if now := c.Evictions("restart"); now != before+1 {
		t.Errorf("%d evictions; want the third node's one, and none from a node whose agent is ready", now-before)
	}
}
