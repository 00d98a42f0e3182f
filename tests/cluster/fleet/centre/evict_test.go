package centre

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

// many is a fleet of hand-made nodes with a reclaimed pod each, that nobody runs.
type many struct {
	*cluster
	names []string
	pods  map[string]tick.Pod // by node
	since time.Time           // when agents that are not ready ceased to be
}

// fleet makes so many nodes, each with a reclaimed pod in a namespace of the test's own.
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
	each(nodes, func(i int) {
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

// each calls f for every number under n, 16 at a time.
func each(n int, f func(int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	all.Wait()
}

// leaving are the pods that the API server was told to delete, with their grace periods.
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

// round gives a tick of each node to evict, and what comes out to report, if there is one. The first so many are not ready
// for half an hour; a pod that is leaving is seen to be.
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
				out[j] = evict.Next(10 * time.Second)
				if report != nil {
					report.Put(out[j])
				}
			}
		}
	}
	return out
}

// evictions counts the requests for evictions that the API server has served.
func (c *cluster) evictions() int {
	c.t.Helper()
	status, text := c.API(http.MethodGet, "/metrics", "")
	if status != http.StatusOK {
		c.t.Fatalf("metrics: status %d", status)
	}
	sum := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `subresource="eviction"`) {
			n, _ := strconv.ParseFloat(strings.Fields(line[strings.LastIndexByte(line, '}')+1:])[0], 64)
			sum += int(n)
		}
	}
	return sum
}

// TestTwoHundredNodes loses the agents of 200 nodes at once: that is the network or us, and nothing is done. When all but a
// fifth are back, the rest is acted on, a node at a time.
func TestTwoHundredNodes(t *testing.T) {
	c := begin(t)
	const nodes, fifth = 200, 40
	f := c.fleet("crowd", nodes)
	evict, report := c.tool("evict", "--action", "evict", "--nodes-per-minute", "60"), c.tool("report")
	asked := c.evictions()

	for _, down := range []int{nodes, nodes - 1, fifth + 1} {
		for range 3 {
			for i, out := range f.round(evict, report, down) {
				e := out.Eviction
				if len(e.Taints) > 0 || len(e.Evictions) > 0 || e.Fleet == nil || e.Fleet.Protection == "" || e.Fleet.Held != (i < down) {
					t.Fatalf("%d of %d are down, and of %s it says %+v", down, nodes, out.Node, e)
				}
			}
		}
	}
	time.Sleep(time.Second)
	if n := c.evictions() - asked; n > 0 || len(f.leaving("crowd")) > 0 {
		t.Fatalf("%d evictions under the protection", n)
	}
	c.Eventually(20*time.Second, "the conditions, under the protection, and nothing else", func() string {
		f.round(evict, report, fifth+1)
		for _, name := range f.names[:3] {
			if s := c.state(name); s.mark != "" || len(s.taints) > 0 || s.offers != "44k" || !strings.HasPrefix(s.conditions["AgentReady"], "False") {
				return fmt.Sprintf("%s: %+v", name, s)
			}
		}
		return ""
	})
	if n := strings.Count(evict.Log(), "nothing new is done to any node"); n != 1 {
		t.Errorf("the log says %d times that nothing is done; want once:\n%s", n, evict.Log())
	}

	// A fifth is a matter of the nodes.
	began := time.Now()
	var leaving map[string]int64
	c.Eventually(time.Minute, "twelve of the fifth's pods are leaving", func() string {
		f.round(evict, report, fifth)
		leaving = f.leaving("crowd")
		// One a second; the interval is 10 s, of which 9 are not between two of the first ones.
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
	c.Eventually(30*time.Second, "taints on the fifth and on nobody else", func() string {
		f.round(evict, report, fifth)
		for _, i := range []int{0, fifth - 1, fifth, nodes - 1} {
			s := c.state(f.names[i])
			if down := i < fifth; (len(s.taints) == 1) != down || (s.mark != "") != down || (s.offers == "") != down {
				return fmt.Sprintf("%s: %+v", f.names[i], s)
			}
		}
		return ""
	})
	// All are lost again: nobody goes any more, and what holds stays.
	f.round(evict, report, nodes)
	time.Sleep(2 * time.Second) // for what was asked
	asked = c.evictions()
	for range 4 {
		time.Sleep(500 * time.Millisecond)
		f.round(evict, report, nodes)
	}
	if n := c.evictions() - asked; n > 0 {
		t.Errorf("%d evictions under the protection", n)
	}
	if s := c.state(f.names[0]); len(s.taints) != 1 || s.mark == "" || s.offers != "" {
		t.Errorf("under the protection %s has not kept what it had: %+v", f.names[0], s)
	}
	if s := c.state(f.names[nodes-1]); len(s.taints) != 0 || s.mark != "" || s.offers != "44k" {
		t.Errorf("under the protection %s has got something: %+v", f.names[nodes-1], s)
	}
}

// A restart evicts nobody twice, and does not make it faster. A budget that allows nothing is not passed by force.
func TestRestartAndBudget(t *testing.T) {
	c := furnish(t, controlplane.Start(t, controlplane.Options{ControllerManager: true})) // which counts for budgets
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
	c.Eventually(30*time.Second, "the budget", func() string {
		if n := c.Kubectl("get", "pdb", "precious", "-n", "restart", "-o", "jsonpath={.status.observedGeneration}"); n != "1" {
			return "observed: " + n
		}
		return ""
	})
	precious := tick.Pod{UID: c.Kubectl("get", "pod", "precious", "-n", "restart", "-o", "jsonpath={.metadata.uid}"),
		Namespace: "restart", Name: "precious", QoS: tick.QoSReclaimed, Phase: "Running"}
	first := f.names[0]
	args := []string{"--action", "evict", "--nodes-per-minute", "12", "--state", filepath.Join(t.TempDir(), "state.json")}
	evict := c.tool("evict", args...)
	asked := c.evictions()
	hour := time.Now().Add(-time.Hour)
	next := func(name string) *tick.Tick {
		pod := f.pods[name]
		_, pod.Terminating = f.leaving("restart")[name]
		pods := []tick.Pod{pod}
		if name == first {
			pods = append(pods, precious)
		}
		in := heard(name, tick.AgentNotReady, hour, 15, 2, pods...)
		in.Sample.IntervalSeconds = tick.Ptr(2.0) // less than the pause between two nodes
		return in
	}
	began := time.Now()
	c.Eventually(10*time.Second, "the first node's pod goes", func() string {
		evict.Put(next(first))
		if _, ok := f.leaving("restart")[first]; !ok {
			return "it stays"
		}
		return ""
	})
	evict.Kill()
	evict = c.tool("evict", args...)
	for time.Since(began) < 4500*time.Millisecond {
		for _, name := range f.names[:2] {
			for _, x := range evict.Put(next(name)).Eviction.Evictions {
				if name == f.names[1] {
					t.Fatalf("%s after the start, within 5 s of the first node: %+v", time.Since(began), x)
				}
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.Eventually(10*time.Second, "the second node's pod goes", func() string {
		evict.Put(next(first))
		evict.Put(next(f.names[1]))
		if _, ok := f.leaving("restart")[f.names[1]]; !ok {
			return "it stays"
		}
		return ""
	})
	// The precious one was asked for some times, and is there. The others were asked for once.
	c.Eventually(30*time.Second, "the refusal is said", func() string {
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
	if n := c.evictions() - asked; n < 3 || n > 12 {
		t.Errorf("%d evictions were asked for; want one each of two pods, and some of the precious one", n)
	}
	for _, name := range f.names[:2] {
		events := c.Kubectl("get", "events", "-n", "restart", "--field-selector", "involvedObject.name="+name, "-o", "jsonpath={range .items[*]}{.reason} {.note}{.message} {.series.count}{\"\\n\"}{end}")
		if strings.Count(events, "EvictCreated") != 1 || !strings.Contains(events, "Successfully create eviction; reason: met threshold in scope: AgentReady from plugin: agent-health") {
			t.Errorf("events of %s:\n%s", name, events)
		}
	}
	// Its agent is back: nothing more is asked.
	ready := func() { evict.Put(heard(first, tick.AgentReady, time.Now(), 15, 1, precious)) }
	ready()
	time.Sleep(20 * time.Second) // what was begun is asked for three times, 5 seconds apart
	before := c.evictions()
	for range 30 {
		ready()
		time.Sleep(200 * time.Millisecond)
	}
	if now := c.evictions(); now != before {
		t.Errorf("%d evictions from a node whose agent is ready", now-before)
	}
}
