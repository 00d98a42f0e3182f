package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"polder/lib/fields"
)

// 200 nodes lose their agents at once: it is the network, or us. Nothing happens, and it is said. When all but two are back,
// these two are no longer many.
func TestManyAtOnce(t *testing.T) {
	const nodes, perNode = 200, 10
	l := start(t)
	name := func(i int) string { return fmt.Sprintf("n%03d", i) }
	post := func(path, body string) {
		if status, answer := l.API(http.MethodPost, path, body); status != http.StatusCreated {
			t.Errorf("%s: %s", path, answer)
		}
	}
	ready := func(i int) {
		body := fmt.Sprintf(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
		if status, answer := l.API(http.MethodPatch, "/api/v1/namespaces/polder-system/pods/polder-"+name(i)+"/status", body); status != http.StatusOK {
			t.Errorf("%s", answer)
		}
	}
	agent := func(i int) {
		post("/api/v1/namespaces/polder-system/pods", fmt.Sprintf(`{"metadata":{"name":"polder-%s",%s},"spec":{"nodeName":%q,"containers":[{"name":"c","image":"none"}]}}`, name(i), ofAgent, name(i)))
		ready(i)
	}
	each(nodes, func(i int) {
		post("/api/v1/nodes", fmt.Sprintf(`{"metadata":{"name":%q}}`, name(i)))
		agent(i)
		for j := range perNode {
			post("/api/v1/namespaces/batch/pods", fmt.Sprintf(`{"metadata":{"name":"%s-%d",%s},"spec":{"nodeName":%q,"containers":[{"name":"c","image":"none","resources":{"limits":{"resource.katalyst.kubewharf.io/reclaimed_millicpu":"1k"},"requests":{"resource.katalyst.kubewharf.io/reclaimed_millicpu":"1k"}}}]}}`,
				name(i), j, reclaimed, name(i)))
		}
	})
	metrics := freeAddr(t)
	c := l.centre("centre", map[string]string{
		"evict.taint-after": "3s", "evict.evict-after": "6s", "collect.interval": "1s", "evict.metrics-addr": metrics,
	})
	written := func(status string) string {
		var list struct {
			Items []struct {
				Spec   map[string]any
				Status struct{ Conditions []map[string]any }
			}
		}
		if status, body := l.API(http.MethodGet, cnrPath, ""); status != http.StatusOK || json.Unmarshal(body, &list) != nil {
			return fmt.Sprintf("status %d", status) // the definition is new
		}
		n, tainted := 0, 0
		for _, x := range list.Items {
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
	l.Eventually(time.Minute, "all agents' conditions are written", func() string {
		if got := written("True"); got != "200 True, 0 tainted" {
			return got
		}
		return ""
	})
	t.Logf("with %d nodes and %d reclaimed pods: %s", nodes, nodes*perNode, memory(t, c))

	l.Kubectl("delete", "pods", "-n", "polder-system", "--all", "--grace-period=0", "--force")
	l.Eventually(time.Minute, "all agents are seen to be away", func() string {
		if got := written("Unknown"); got != "200 Unknown, 0 tainted" {
			return got
		}
		return ""
	})
	time.Sleep(10 * time.Second)
	if got := written("Unknown"); got != "200 Unknown, 0 tainted" || l.evictions() != 0 {
		t.Errorf("%s, %d evictions; want nothing done", got, l.evictions())
	}
	if log := c.Tail(100); !strings.Contains(log, "nothing new is done to any node") {
		t.Error("the log does not say so")
	}
	l.checkProtection(metrics, "1")

	each(nodes-2, func(i int) { agent(i + 2) })
	l.Eventually(time.Minute, "the two that stay away are tainted, and nobody else", func() string {
		if got := written("True"); got != "198 True, 2 tainted" || l.taints(name(0)) != closed_ || l.taints(name(1)) != closed_ {
			return got
		}
		return ""
	})
	l.Eventually(time.Minute, "their pods go, one node after the other", func() string {
		_, a := l.podsOn(name(0))
		_, b := l.podsOn(name(1))
		if a != perNode || b != perNode {
			return fmt.Sprint(a, b)
		}
		return ""
	})
	if got := l.evictions(); got != 2*perNode {
		t.Errorf("%d evictions; want %d", got, 2*perNode)
	}
	l.checkProtection(metrics, "0")
	t.Logf("at the end: %s", memory(t, c))
}

// freeAddr is an address that nobody listens at.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// checkProtection looks at what evict's metrics say of the protection.
func (l *lab) checkProtection(addr, want string) {
	l.t.Helper()
	answer, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		l.t.Fatal(err)
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	if line := `polder_fleet_protection_active{node="n000"} ` + want + "\n"; !strings.Contains(string(page), line) {
		l.t.Errorf("the metrics lack %s", line)
	}
}

// memory is what each tool of the pipe has had at most.
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
