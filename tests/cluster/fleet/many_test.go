package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"polder/lib/fields"
	"polder/tests/cluster/controlplane"
)

// 200 nodes lose their agents at once: the cause is the network or the controller. It does nothing, and reports it. When all but two
// are back, it acts on these two.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const nodes, perNode = 200, 10
	l := start(t)
	name := l.node
	post := func(path, body string) {
		if status, answer := l.API(http.MethodPost, path, body); status != http.StatusCreated {
			t.Errorf("%s: %s", path, answer)
		}
	}
	ready := func(i int) {
		body := fmt.Sprintf(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
		if status, answer := l.API(http.MethodPatch, "/api/v1/namespaces/"+l.agents+"/pods/polder-"+name(i)+"/status", body); status != http.StatusOK {
			t.Errorf("%s", answer)
		}
	}
	agent := func(i int) {
		post("/api/v1/namespaces/"+l.agents+"/pods", fmt.Sprintf(`{"metadata":{"name":"polder-%s",%s},"spec":{"nodeName":%q,"containers":[{"name":"c","image":"none"}]}}`, name(i), ofAgent, name(i)))
		ready(i)
	}
	controlplane.Each(nodes, func(i int) {
		post("/api/v1/nodes", fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"test":%q}}}`, name(i), l.name))
		agent(i)
		for j := range perNode {
			post("/api/v1/namespaces/"+l.batch+"/pods", fmt.Sprintf(`{"metadata":{"name":"%s-%d",%s},"spec":{"nodeName":%q,"containers":[{"name":"c","image":"none","resources":{"limits":{"resource.katalyst.kubewharf.io/reclaimed_millicpu":"1k"},"requests":{"resource.katalyst.kubewharf.io/reclaimed_millicpu":"1k"}}}]}}`,
				name(i), j, reclaimed, name(i)))
		}
	})
	metrics := freeAddr(t)
	c := l.centre("centre", map[string]string{
		"evict.taint-after": "10s", "evict.evict-after": "12s", "collect.interval": "1s", "evict.metrics-addr": metrics,
	})
	written := func(status string) string {
		var list struct {
			Items []struct {
				Metadata struct{ Name string }
				Spec     map[string]any
				Status   struct{ Conditions []map[string]any }
			}
		}
		if status, body := l.API(http.MethodGet, cnrPath, ""); status != http.StatusOK || json.Unmarshal(body, &list) != nil {
			return fmt.Sprintf("status %d", status) // the definition is new
		}
		n, tainted := 0, 0
		for _, x := range list.Items {
			if !strings.HasPrefix(x.Metadata.Name, l.name) {
				continue // another test's
			}
			for _, c := range x.Status.Conditions {
				if c["type"] == "AgentReady" && c["status"] == status {
					n++
				}
			}
			if len(fields.List(x.Spec, "taints")) > 0 {
				tainted++
			}
		}
		return fmt.Sprintf("%d %s, %d tainted", n, status, tainted)
	}
	l.Eventually(controlplane.Soon, "all agents' conditions are written", func() string {
		if got := written("True"); got != "200 True, 0 tainted" {
			return got
		}
		return ""
	})
	t.Logf("with %d nodes and %d reclaimed pods: %s", nodes, nodes*perNode, memory(t, c))

	// All of them are deleted long before the first ones have been away for so long that their nodes are tainted.
	controlplane.Each(nodes, func(i int) {
		path := "/api/v1/namespaces/" + l.agents + "/pods/polder-" + name(i) + "?gracePeriodSeconds=0"
		if status, answer := l.API(http.MethodDelete, path, ""); status != http.StatusOK {
			t.Errorf("%s", answer)
		}
	})
	l.Eventually(controlplane.Soon, "all agents are reported away", func() string {
		if got := written("Unknown"); got != "200 Unknown, 0 tainted" {
			return got
		}
		return ""
	})
	// evict has seen all of them for longer than it takes to taint and to evict.
	looked := ticksOf(t, metrics)
	l.Eventually(controlplane.Soon, "more ticks", func() string {
		if n := ticksOf(t, metrics) - looked; n < 15*nodes {
			return fmt.Sprint(n)
		}
		return ""
	})
	if got := written("Unknown"); got != "200 Unknown, 0 tainted" || l.Evictions(l.batch) != 0 {
		t.Errorf("%s, %d evictions; want no action", got, l.Evictions(l.batch))
	}
	if log := c.Tail(1000); !strings.Contains(log, "no new eviction on any node") {
		t.Error("the log does not report it")
	}
	l.checkProtection(metrics, "1")

	controlplane.Each(nodes-2, func(i int) { agent(i + 2) })
	l.Eventually(controlplane.Soon, "the two that stay away are tainted, and no other", func() string {
		if got := written("True"); got != "198 True, 2 tainted" || l.taints(name(0)) != closedTaint || l.taints(name(1)) != closedTaint {
			return got
		}
		return ""
	})
	l.Eventually(controlplane.Soon, "their pods are evicted, one node after the other", func() string {
		_, a := l.podsOn(name(0))
		_, b := l.podsOn(name(1))
		if a != perNode || b != perNode {
			return fmt.Sprint(a, b)
		}
		return ""
	})
	if got := l.Evictions(l.batch); got != 2*perNode {
		t.Errorf("%d evictions; want %d", got, 2*perNode)
	}
	l.checkProtection(metrics, "0")
	t.Logf("at the end: %s", memory(t, c))
}

// freeAddr is an address at which no program listens, with a port that no client gets.
func freeAddr(t *testing.T) string {
	t.Helper()
	ports, err := controlplane.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0])
}

// checkProtection checks evict's metrics of the protection.
func (l *lab) checkProtection(addr, want string) {
	l.t.Helper()
	line := fmt.Sprintf("polder_fleet_protection_active{node=%q} %s\n", l.node(0), want)
	l.Eventually(controlplane.Soon, "the metrics have "+line, func() string {
		if !strings.Contains(page(l.t, addr), line) {
			return "they lack it"
		}
		return ""
	})
}

func page(t *testing.T, addr string) string {
	t.Helper()
	answer, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ticksOf is how many ticks a tool has read, of all nodes.
func ticksOf(t *testing.T, addr string) (total int) {
	t.Helper()
	for line := range strings.Lines(page(t, addr)) {
		if strings.HasPrefix(line, "polder_ticks_total{") {
			n := 0.0
			_, _ = fmt.Sscan(line[strings.LastIndexByte(line, '}')+1:], &n)
			total += int(n)
		}
	}
	return total
}

// memory is each tool's peak resident memory.
func memory(t *testing.T, c *centre) string {
	t.Helper()
	out, err := exec.Command("pgrep", "-l", "-g", fmt.Sprint(c.PID)).Output()
	if err != nil {
		t.Fatalf("pgrep: %v", err)
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		var pid int
		var name string
		if _, err := fmt.Sscan(line, &pid, &name); err != nil || name == "sh" || name == "centre" {
			continue
		}
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for line := range strings.Lines(string(status)) {
			var kib int
			if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
				all = append(all, fmt.Sprintf("%s %d MiB at most", name, kib>>10))
				if kib > 150<<10 {
					t.Errorf("%s has had %d MiB; want less than 150", name, kib>>10)
				}
			}
		}
	}
	return strings.Join(all, ", ")
}
