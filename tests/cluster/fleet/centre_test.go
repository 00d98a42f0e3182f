package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"polder/tests/cluster/pipe"
	"polder/tests/cluster/program"
)

// centre is one pod of the Deployment: deploy/s6/centre with the three tools.
type centre struct {
	*program.Program
	run string
}

// centre starts one. Settings are flags with their tool before them: "collect.interval".
func (l *lab) centre(name string, settings map[string]string) *centre {
	l.t.Helper()
	dir := l.t.TempDir()
	bin := filepath.Dir(pipe.Binary(l.t, "collect"))
	pipe.Binary(l.t, "evict")
	pipe.Binary(l.t, "report")
	cmd := exec.Command("../../../deploy/s6/centre")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "POLDER_RUN=" + filepath.Join(dir, "run"), "POLDER_BIN=" + bin}
	if l.asCentre == "" { // it may do what the chart gives it, and no more
		l.ApplyFile(manifests + "/polder.yaml")
		l.ApplyFile(manifests + "/centre.yaml")
		l.asCentre = l.KubeconfigFor("polder-system", "polder-centre")
	}
	all := map[string]string{
		"collect.kubeconfig": l.asCentre, "evict.kubeconfig": l.asCentre, "report.kubeconfig": l.asCentre, "evict.action": "evict",
		"collect.interval": "500ms", "collect.agent-namespace": "polder-system",
		"collect.lease": "polder-system/polder-centre", "collect.lease-duration": "5s", "collect.lease-renew-deadline": "3s", "collect.lease-retry-period": "500ms",
	}
	maps.Copy(all, settings)
	for key, value := range all {
		cmd.Env = append(cmd.Env, "POLDER_"+strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))+"="+value)
	}
	p, err := program.Start(filepath.Join(dir, name+".log"), cmd)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		p.Kill()
		if l.t.Failed() {
			l.t.Logf("%s:\n%s", name, p.Tail(60))
		}
	})
	return &centre{p, filepath.Join(dir, "run")}
}

// leads waits until this one leads.
func (c *centre) leads(l *lab, within time.Duration) {
	l.t.Helper()
	l.Eventually(within, "it leads", func() string {
		if log := c.Tail(100); !strings.Contains(log, "leading from now on") {
			return "so far: " + log
		}
		return ""
	})
}

// taints are a CNR's, as key:effect.
func (l *lab) taints(node string) string {
	var cnr struct {
		Spec struct {
			Taints []struct{ Key, Effect string }
		}
	}
	_, body := l.API(http.MethodGet, cnrPath+node, "")
	_ = json.Unmarshal(body, &cnr) // there may be none yet
	var out []string
	for _, x := range cnr.Spec.Taints {
		out = append(out, x.Key+":"+x.Effect)
	}
	return strings.Join(out, " ")
}

const closed_ = "node.kubernetes.io/unschedulable:NoScheduleForReclaimedTasks"

// awaitTaint waits for a node's taint, or for its end.
func (l *lab) awaitTaint(node, want string, within time.Duration) {
	l.t.Helper()
	l.Eventually(within, fmt.Sprintf("%s's taints are %q", node, want), func() string {
		if got := l.taints(node); got != want {
			return fmt.Sprintf("%q", got)
		}
		return ""
	})
}

// pods are those of a node in a namespace, and how many of them are on their way out.
func (l *lab) podsOn(node string) (all, leaving int) {
	l.t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ DeletionTimestamp string }
		}
	}
	l.Get("/api/v1/namespaces/batch/pods?fieldSelector=spec.nodeName%3D"+node, &list)
	for _, p := range list.Items {
		if p.Metadata.DeletionTimestamp != "" {
			leaving++
		}
	}
	return len(list.Items), leaving
}

// evictions are the requests that the API server has had to evict a pod.
func (l *lab) evictions() int {
	l.t.Helper()
	_, text := l.API(http.MethodGet, "/metrics", "")
	total := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `subresource="eviction"`) {
			n := 0
			_, _ = fmt.Sscan(line[strings.LastIndexByte(line, '}')+1:], &n)
			total += n
		}
	}
	return total
}

// The leader is killed with all that it remembers, and the one that takes over has just begun: since when an agent is away is
// in the cluster's objects. Nobody is evicted twice.
func TestLeaderKilled(t *testing.T) {
	l := start(t)
	for i := 1; i <= 6; i++ {
		node := fmt.Sprintf("n%d", i)
		l.MakeNode(node, "48", "192Gi")
		l.agent(node, time.Now().Add(-time.Hour))
	}
	for _, name := range []string{"a", "b", "c"} {
		l.pod("batch", name, "n1", reclaimed)
	}
	l.pod("batch", "service", "n1", `"annotations":{"katalyst.kubewharf.io/qos_level":"shared_cores"}`)
	settings := map[string]string{"evict.taint-after": "5s", "evict.evict-after": "40s"}
	first := l.centre("first", settings)
	first.leads(l, 30*time.Second)
	l.Eventually(20*time.Second, "the agents' conditions are written", func() string {
		if c := l.conditions("n1")["AgentReady"]; c["status"] != "True" {
			return fmt.Sprint(c)
		}
		return ""
	})

	l.Kubectl("delete", "-n", "polder-system", "pod", "polder-n1", "--grace-period=0", "--force")
	gone := time.Now()
	l.awaitTaint("n1", closed_, 15*time.Second)
	since := l.conditions("n1")["AgentReady"]["lastTransitionTime"]
	time.Sleep(time.Until(gone.Add(18 * time.Second)))
	second := l.centre("second", settings) // it sees no pod of an agent, and nothing of when that went
	l.Eventually(30*time.Second, "the second one waits for its turn", func() string {
		if _, err := os.Stat(filepath.Join(second.run, "ready")); err != nil {
			return "not ready: " + second.Tail(20)
		}
		return ""
	})
	first.Kill()
	killed := time.Now()
	second.leads(l, 15*time.Second)
	if took := time.Since(killed); took > 12*time.Second {
		t.Errorf("the second one leads after %s; want the lease's 5 s and a moment", took)
	}
	for { // and the taint stays all the time
		if got := l.taints("n1"); got != closed_ {
			t.Fatalf("n1's taints are %q", got)
		}
		if _, leaving := l.podsOn("n1"); leaving > 0 {
			break
		}
		if time.Since(gone) > 55*time.Second {
			t.Fatalf("nobody is evicted %s after the agent went", time.Since(gone))
		}
		time.Sleep(100 * time.Millisecond)
	}
	if after := time.Since(gone); after < 39*time.Second || after > 55*time.Second {
		t.Errorf("the pods are evicted %s after the agent went; want 40 s, as if the leader lived", after)
	}
	if now := l.conditions("n1")["AgentReady"]["lastTransitionTime"]; now != since {
		t.Errorf("the condition is of %v; it was of %v", now, since)
	}
	l.Eventually(10*time.Second, "all three go", func() string {
		if all, leaving := l.podsOn("n1"); all != 4 || leaving != 3 {
			return fmt.Sprintf("%d of %d", leaving, all)
		}
		return ""
	})
	// The next leader finds them on their way out.
	third := l.centre("third", settings)
	second.Kill()
	third.leads(l, 20*time.Second)
	time.Sleep(5 * time.Second)
	if got := l.evictions(); got != 3 {
		t.Errorf("%d evictions were asked for; want 3", got)
	}
	if events := l.Kubectl("get", "events", "-n", "batch", "-o", "jsonpath={.items[*].reason}"); strings.Count(events, "EvictCreated") != 3 {
		t.Errorf("events %s; want EvictCreated of each", events)
	}

	// A clean stop gives the lease up: the next one need not wait until it runs out.
	fourth := l.centre("fourth", settings)
	l.Eventually(30*time.Second, "the fourth one waits for its turn", func() string {
		if _, err := os.Stat(filepath.Join(fourth.run, "ready")); err != nil {
			return "not ready: " + fourth.Tail(20)
		}
		return ""
	})
	if err := syscall.Kill(third.PID, syscall.SIGTERM); err != nil { // the shell alone, as kubelet does
		t.Fatal(err)
	}
	stopped := time.Now()
	closed(t, "the third one ends", third.Done(), 10*time.Second)
	fourth.leads(l, 10*time.Second)
	if took := time.Since(stopped); took > 4500*time.Millisecond {
		t.Errorf("the fourth one leads after %s; want it at once", took)
	}
	// Where one of the pipe's tools dies all end, in a pod that waits for its turn too.
	fifth := l.centre("fifth", settings)
	l.Eventually(30*time.Second, "the fifth one waits for its turn", func() string {
		if _, err := os.Stat(filepath.Join(fifth.run, "ready")); err != nil {
			return "not ready: " + fifth.Tail(20)
		}
		return ""
	})
	for _, x := range []*centre{fourth, fifth} {
		l.killOne(x, "evict")
		closed(t, "the pipe ends", x.Done(), 10*time.Second)
	}
}

// The lease is lost, and what this leader wrote is taken back at that moment: the pipe ends, and puts nothing back.
func TestLostLeaseWritesNothing(t *testing.T) {
	l := start(t)
	for i := 1; i <= 6; i++ {
		node := fmt.Sprintf("n%d", i)
		l.MakeNode(node, "48", "192Gi")
		l.agent(node, time.Now().Add(-time.Hour))
	}
	c := l.centre("centre", map[string]string{"evict.taint-after": "2s"})
	c.leads(l, 30*time.Second)
	l.ready("n1", "False", time.Now())
	l.awaitTaint("n1", closed_, 20*time.Second)
	l.Eventually(10*time.Second, "n1 is marked", func() string {
		if l.mark("n1") == "" {
			return "it is not"
		}
		return ""
	})
	l.Kubectl("annotate", "node", "n1", "polder/withdrawn-")
	l.Kubectl("patch", "lease", "-n", "polder-system", "polder-centre", "--type=merge", "-p", `{"spec":{"holderIdentity":"somebody"}}`)
	closed(t, "the pipe ends", c.Done(), 15*time.Second)
	if log := c.Tail(50); !strings.Contains(log, "held by somebody") {
		t.Errorf("it has not ended for the lease:\n%s", log)
	}
	if got := l.mark("n1"); got != "" {
		t.Errorf("the end has put the mark back: %q", got)
	}
}

// killOne kills one tool of a pipe.
func (l *lab) killOne(c *centre, tool string) {
	l.t.Helper()
	out, err := exec.Command("pgrep", "-l", "-g", fmt.Sprint(c.PID)).Output()
	if err != nil {
		l.t.Fatalf("pgrep: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		var pid int
		var name string
		if _, err := fmt.Sscan(line, &pid, &name); err == nil && name == tool {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				l.t.Fatal(err)
			}
			return
		}
	}
	l.t.Fatalf("no %s in\n%s", tool, out)
}
