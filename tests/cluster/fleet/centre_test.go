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

	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/program"
)

// centre is one pod of the Deployment: deploy/s6/centre with the three tools.
type centre struct {
	*program.Program
	run string
}

// centre starts a pod. Settings are flags with their tool before them: "collect.interval".
func (l *lab) centre(name string, settings map[string]string) *centre {
	l.t.Helper()
	dir := l.t.TempDir()
	cmd := exec.Command("../../../deploy/s6/centre")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "POLDER_RUN=" + filepath.Join(dir, "run"), "POLDER_BIN=" + binaries.Dir(l.t)}
	release := "podLabels.test=" + l.name // each test's pods have their own account and lease, by another release
	account, lease := l.AccountFor("centre", release), controlplane.Namespace+"/"+l.Release(release)+"-centre"
	all := map[string]string{
		"collect.kubeconfig": account, "evict.kubeconfig": account, "report.kubeconfig": account, "evict.action": "evict",
		"collect.interval": "500ms", "collect.agent-namespace": l.agents, "collect.node-selector": "test=" + l.name,
		// A leader on a busy machine may get no CPU time for some seconds, and must not lose its lease by that.
		"collect.lease": lease, "collect.lease-duration": "3m", "collect.lease-renew-deadline": "150s", "collect.lease-retry-period": "500ms",
	}
	maps.Copy(all, settings)
	for key, value := range all {
		cmd.Env = append(cmd.Env, "POLDER_"+strings.ToUpper(strings.NewReplacer(".", "_FLEET_", "-", "_").Replace(key))+"="+value)
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

// leads waits until this pod leads.
func (c *centre) leads(l *lab) {
	l.t.Helper()
	l.Eventually(controlplane.Soon, "it leads", func() string {
		if log := c.Tail(1000); !strings.Contains(log, "became leader") {
			return "so far: " + log
		}
		return ""
	})
}

// waits waits until this pod is ready to lead, and does not.
func (c *centre) waits(l *lab) {
	l.t.Helper()
	l.Eventually(controlplane.Soon, "it waits for its turn", func() string {
		if _, err := os.Stat(filepath.Join(c.run, "ready")); err != nil {
			return "not ready: " + c.Tail(20)
		}
		return ""
	})
	if log := c.Tail(1000); strings.Contains(log, "became leader") {
		l.t.Errorf("it leads while another one does: %s", log)
	}
}

// taints are a CNR's, as key:effect.
func (l *lab) taints(node string) string {
	var cnr struct {
		Spec struct {
			Taints []struct{ Key, Effect string }
		}
	}
	_, body := l.API(http.MethodGet, cnrPath+node, "")
	_ = json.Unmarshal(body, &cnr) // it may not exist yet
	var out []string
	for _, x := range cnr.Spec.Taints {
		out = append(out, x.Key+":"+x.Effect)
	}
	return strings.Join(out, " ")
}

const closedTaint = "node.kubernetes.io/unschedulable:NoScheduleForReclaimedTasks"

// awaitTaint waits until a node's taint is there, or gone.
func (l *lab) awaitTaint(node, want string) {
	l.t.Helper()
	l.Eventually(controlplane.Soon, fmt.Sprintf("%s's taints are %q", node, want), func() string {
		if got := l.taints(node); got != want {
			return fmt.Sprintf("%q", got)
		}
		return ""
	})
}

// pods counts a node's pods in a namespace, and those that terminate.
func (l *lab) podsOn(node string) (all, leaving int) {
	l.t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ DeletionTimestamp string }
		}
	}
	l.Get("/api/v1/namespaces/"+l.batch+"/pods?fieldSelector=spec.nodeName%3D"+node, &list)
	for _, p := range list.Items {
		if p.Metadata.DeletionTimestamp != "" {
			leaving++
		}
	}
	return len(list.Items), leaving
}

// fleet creates six nodes with agents that have been ready for an hour, and returns the first one's name.
func (l *lab) fleet() (first string) {
	l.t.Helper()
	for i := 1; i <= 6; i++ {
		l.makeNode(l.node(i))
		l.agent(l.node(i), time.Now().Add(-time.Hour))
	}
	return l.node(1)
}

// The leader is killed with its memory, and its successor has just started: the cluster's objects have the time since when an agent is
// away. No pod is evicted twice.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	l := start(t)
	n1 := l.fleet()
	for _, name := range []string{"a", "b", "c"} {
		l.pod(l.batch, name, n1, reclaimed)
	}
	l.pod(l.batch, "service", n1, `"annotations":{"katalyst.kubewharf.io/qos_level":"shared_cores"}`)
	const evictAfter = 75 * time.Second
	settings := map[string]string{
		"evict.taint-after": "3s", "evict.evict-after": evictAfter.String(),
		"collect.lease-duration": "20s", "collect.lease-renew-deadline": "18s", // after which the next one leads
	}
	first := l.centre("first", settings)
	first.leads(l)
	l.Eventually(controlplane.Soon, "the agents' conditions are written", func() string {
		if c := l.conditions(n1)["AgentReady"]; c["status"] != "True" {
			return fmt.Sprint(c)
		}
		return ""
	})

	gone := time.Now() // at the earliest
	l.Kubectl("delete", "-n", l.agents, "pod", "polder-"+n1, "--grace-period=0", "--force")
	l.awaitTaint(n1, closedTaint)
	since := l.conditions(n1)["AgentReady"]["lastTransitionTime"]
	// The second one sees no pod of an agent, and not when that pod ended: by itself it would evict later than it should, by this time.
	// It may be slow by as much.
	const later = 40 * time.Second
	l.Eventually(controlplane.Soon, "the agent is away for some time", func() string {
		if away := time.Since(gone); away < later {
			return away.String()
		}
		return ""
	})
	begun := time.Now()
	second := l.centre("second", settings)
	second.waits(l)
	first.Kill()
	second.leads(l)
	l.Eventually(controlplane.Soon, "pods are evicted", func() string { // and the taint stays all the time
		if got := l.taints(n1); got != closedTaint {
			t.Fatalf("%s's taints are %q", n1, got)
		}
		if _, leaving := l.podsOn(n1); leaving == 0 {
			return "no pod is leaving"
		}
		return ""
	})
	if now := time.Now(); now.Sub(gone) < evictAfter-time.Second || now.Sub(begun) >= evictAfter {
		t.Errorf("the pods are evicted %s after the agent ended, and %s after the second one began; want %s after that, as if the leader lived",
			now.Sub(gone), now.Sub(begun), evictAfter)
	}
	if now := l.conditions(n1)["AgentReady"]["lastTransitionTime"]; now != since {
		t.Errorf("the condition is of %v; it was of %v", now, since)
	}
	l.Eventually(controlplane.Soon, "all three are evicted", func() string {
		if all, leaving := l.podsOn(n1); all != 4 || leaving != 3 {
			return fmt.Sprintf("%d of %d", leaving, all)
		}
		return ""
	})
	// Each event follows its eviction: if the second one is killed before, its event is lost.
	l.Eventually(controlplane.Soon, "three events EvictCreated", func() string {
		events := l.Kubectl("get", "events", "-n", l.batch, "-o", "jsonpath={.items[*].reason}")
		if strings.Count(events, "EvictCreated") == 3 {
			return ""
		}
		return events
	})
	// The next leader finds the evictions in progress: that it evicts from another node shows that it acts.
	delete(settings, "collect.lease-duration")
	delete(settings, "collect.lease-renew-deadline")
	third := l.centre("third", settings)
	second.Kill()
	third.leads(l)
	l.ready(l.node(2), "False", time.Now())
	l.awaitTaint(l.node(2), closedTaint)
	if got := l.Evictions(l.batch); got != 3 {
		t.Errorf("%d evictions were asked for; want 3", got)
	}
	if events := l.Kubectl("get", "events", "-n", l.batch, "-o", "jsonpath={.items[*].reason}"); strings.Count(events, "EvictCreated") != 3 {
		t.Errorf("events %s; want no further EvictCreated", events)
	}

	// A clean stop releases the lease: the next one need not wait until it expires, three minutes later.
	fourth := l.centre("fourth", settings)
	fourth.waits(l)
	if err := syscall.Kill(third.PID, syscall.SIGTERM); err != nil { // the shell alone, as kubelet does
		t.Fatal(err)
	}
	stopped := time.Now()
	closed(t, "the third one ends", third.Done(), controlplane.Soon)
	fourth.leads(l)
	if took := time.Since(stopped); took > 150*time.Second {
		t.Errorf("the fourth one leads after %s; want it at once", took)
	}
	// If one of the pipe's tools ends, all end, also in a pod that waits for the lease.
	fifth := l.centre("fifth", settings)
	fifth.waits(l)
	for _, x := range []*centre{fourth, fifth} {
		l.killOne(x, "evict")
		closed(t, "the pipe ends", x.Done(), controlplane.Soon)
	}
}

// The lease is lost, and another program reverts this leader's writes at that moment: the pipe ends, and restores nothing.
func TestLostLeaseWritesNothing(t *testing.T) {
	t.Parallel()
	l := start(t)
	n1 := l.fleet()
	c := l.centre("centre", map[string]string{"evict.taint-after": "2s"})
	c.leads(l)
	l.ready(n1, "False", time.Now())
	l.awaitTaint(n1, closedTaint)
	l.Eventually(controlplane.Soon, n1+" is marked", func() string {
		if l.mark(n1) == "" {
			return "it is not"
		}
		return ""
	})
	l.Kubectl("annotate", "node", n1, "polder/withdrawn-")
	l.Kubectl("patch", "lease", "-n", controlplane.Namespace, l.Release("podLabels.test="+l.name)+"-centre", "--type=merge",
		"-p", `{"spec":{"holderIdentity":"somebody"}}`)
	closed(t, "the pipe ends", c.Done(), controlplane.Soon)
	log := c.Tail(1000)
	before, after, lost := strings.Cut(log, "held by somebody")
	if !lost {
		t.Errorf("it has not ended after losing the lease:\n%s", log)
	}
	// It may have begun to restore the mark while it still had the lease.
	const restoring = "restoring the object after an external change"
	if got := l.mark(n1); strings.Contains(after, restoring) || got != "" && !strings.Contains(before, restoring) {
		t.Errorf("it restored the mark when it ended: %q\n%s", got, log)
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
