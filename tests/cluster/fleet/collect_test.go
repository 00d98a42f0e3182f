package fleet

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/lib/tick/ticktest"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

func TestCollectFleet(t *testing.T) {
	t.Parallel()
	l := startAlone(t)
	hour := time.Now().Add(-time.Hour).Truncate(time.Second)
	for _, n := range []string{"n1", "n2", "n3", "bare"} {
		l.makeNode(n)
	}
	l.agent("n1", hour)
	l.agent("n2", hour)
	l.ready("n2", "False", hour.Add(40*time.Minute))
	l.pod("default", "polder-n3", "n3", ofAgent) // not in the agent's namespace
	l.pod(l.batch, "a", "n1", reclaimed)
	l.pod(l.batch, "b", "n1", ofBatch)
	l.pod(l.batch, "service", "n1", `"annotations":{"katalyst.kubewharf.io/qos_level":"shared_cores"}`)
	l.pod(l.batch, "d", "n3", reclaimed)
	// The taint and conditions that an earlier fleet controller has written for n3.
	long := time.Now().Add(-30 * time.Minute).UTC().Truncate(time.Second)
	l.Apply(`{"apiVersion":"node.katalyst.kubewharf.io/v1alpha1","kind":"CustomNodeResource","metadata":{"name":"n3"}}`)
	if status, answer := l.API(http.MethodPatch, cnrPath+"n3/status", fmt.Sprintf(`{"status":{"conditions":[{"type":"AgentReady","status":"Unknown","lastTransitionTime":%q,"lastHeartbeatTime":%q}]}}`,
		long.Format(time.RFC3339), time.Now().Add(-2*time.Minute).UTC().Format(time.RFC3339))); status != http.StatusOK {
		t.Fatalf("%s", answer)
	}

	ready := temp(t, "ready")
	x := l.collect("--ready-file", ready)
	round := l.until(x, "all nodes, without errors", func(round map[string]*tick.Tick) string {
		for n, x := range round {
			if len(x.Sample.Errors) > 0 { // some lists may come later than others
				return fmt.Sprintf("%s: errors %v", n, x.Sample.Errors)
			}
		}
		return want("bare: n1:ready n2:notReady n3:notFound")(round)
	})
	for n, since := range map[string]time.Time{"n1": hour, "n2": hour.Add(40 * time.Minute), "n3": long} {
		if got := sinceOf(round[n]); !got.Equal(since) {
			t.Errorf("%s is %s since %s; want %s", n, round[n].Sample.Agent.State, got, since)
		}
	}
	for n, x := range round {
		if got, want := *x.Sample.Fleet, (tick.Fleet{Nodes: 3, Ready: 1, NotReady: 2, WithoutAgent: 1}); got != want {
			t.Errorf("%s: fleet %+v; want %+v", n, got, want)
		}
		if x.Time != round["n1"].Time {
			t.Errorf("%s: time %s", n, x.Time)
		}
		line, err := tick.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		if err := ticktest.Validate(line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	var pods []string
	for _, p := range round["n1"].Sample.Pods {
		pods = append(pods, p.Namespace+"/"+p.Name+":"+p.QoS)
	}
	if got := strings.Join(pods, " "); got != strings.ReplaceAll("batch/a:reclaimed batch/b:reclaimed", "batch", l.batch) || len(round["n3"].Sample.Pods) != 1 {
		t.Errorf("n1's pods are %s; want the reclaimed ones", got)
	}
	l.Eventually(controlplane.Soon, "--ready-file", func() string { // it may be touched after the tick
		if info, err := os.Stat(ready); err != nil || time.Since(info.ModTime()) > controlplane.Soon {
			return fmt.Sprintf("%v, %v", info, err)
		}
		return ""
	})

	// n1's agent fails, is deleted, and is created again; one node joins; another one is deleted.
	fell := time.Now().UTC().Truncate(time.Second)
	l.ready("n1", "False", fell)
	round = l.until(x, "n1 falls", want("bare: n1:notReady n2:notReady n3:notFound"))
	since := sinceOf(round["n1"])
	if d := since.Sub(fell); d < 0 || since.After(time.Now()) {
		t.Errorf("n1 is not ready since %s; want %s or the next time seen", since, fell)
	}
	l.Kubectl("delete", "-n", l.agents, "pod", "polder-n1", "--grace-period=0", "--force")
	l.until(x, "n1's agent is deleted", want("bare: n1:notFound n2:notReady n3:notFound"))
	l.pod(l.agents, "polder-n1", "n1", ofAgent)
	l.makeNode("n4")
	l.pod(l.agents, "polder-n4", "n4", ofAgent)
	l.Kubectl("delete", "node", "bare")
	round = l.until(x, "n1's agent is created again", want("n1:notReady n2:notReady n3:notFound n4:notReady"))
	if got := sinceOf(round["n1"]); !got.Equal(since) {
		t.Errorf("with another pod, n1 is not ready since %s; want %s as before", got, since)
	}
	l.ready("n1", "True", time.Now())
	l.until(x, "n1 is back", want("n1:ready n2:notReady n3:notFound n4:notReady"))

	// The API server is away: agents are unknown, nothing is forgotten, and the process is not ready to lead.
	l.StopAPIServer()
	isStalePods := func(e tick.SourceError) bool { return strings.Contains(e.Error, "the list of pods is stale") }
	round = l.until(x, "no agent is known", func(round map[string]*tick.Tick) string {
		if lacks := want("n1: n2: n3: n4:")(round); lacks != "" {
			return lacks
		}
		if s := round["n1"].Sample; !slices.ContainsFunc(s.Errors, isStalePods) { // one watch ends first
			return fmt.Sprintf("reported errors %v", s.Errors)
		}
		return ""
	})
	if f := round["n1"].Sample.Fleet; *f != (tick.Fleet{Nodes: 4, Unknown: 4}) {
		t.Errorf("fleet %+v; want four unknown", *f)
	}
	if s := round["n1"].Sample; !strings.Contains(s.Agent.Reason, "is stale: API server ") || len(s.Pods) != 2 {
		t.Errorf("n1: %+v, errors %v, %d pods; want the reason, and the last known pods", *s.Agent, s.Errors, len(s.Pods))
	}
	old, err := os.Stat(ready)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 * 4 { // without the outage each round of four ticks would touch it
		x.Next()
	}
	if now, err := os.Stat(ready); err != nil || !now.ModTime().Equal(old.ModTime()) {
		t.Errorf("--ready-file was touched without a server: %v", err)
	}
	l.StartAPIServer()
	round = l.until(x, "all are known again", want("n1:ready n2:notReady n3:notFound n4:notReady"))
	for n, since := range map[string]time.Time{"n2": hour.Add(40 * time.Minute), "n3": long} {
		if got := sinceOf(round[n]); !got.Equal(since) {
			t.Errorf("after all that %s is so since %s; want %s", n, got, since)
		}
	}

	// An invalid configuration object is in the tick, so that report fleet writes it into the object's status.
	l.Apply(`{"apiVersion":"config.katalyst.kubewharf.io/v1alpha1","kind":"KatalystCustomConfig","metadata":{"name":"evictions","namespace":"default"},
		"spec":{"targetType":{"group":"config.katalyst.kubewharf.io","version":"v1alpha1","resource":"evictionconfigurations"}}}`)
	for _, name := range []string{"one", "two"} {
		l.Apply(fmt.Sprintf(`{"apiVersion":"config.katalyst.kubewharf.io/v1alpha1","kind":"EvictionConfiguration","metadata":{"name":%q,"namespace":"default"},"spec":{"config":{}}}`, name))
	}
	l.until(x, "the objects are found to be invalid", func(round map[string]*tick.Tick) string {
		for _, x := range round { // all have the same
			if !strings.Contains(string(x.Sample.Config), `"valid":false`) {
				return "config " + string(x.Sample.Config)
			}
		}
		return ""
	})

	// An object for a kind that the cluster does not have is an error, too, and does not keep the process from being ready to lead.
	l.Kubectl("delete", "crd", "adminqosconfigurations.config.katalyst.kubewharf.io")
	l.Apply(`{"apiVersion":"config.katalyst.kubewharf.io/v1alpha1","kind":"KatalystCustomConfig","metadata":{"name":"absent","namespace":"default"},
		"spec":{"targetType":{"group":"config.katalyst.kubewharf.io","version":"v1alpha1","resource":"adminqosconfigurations"}}}`)
	round = l.until(x, "the missing kind is an error", func(round map[string]*tick.Tick) string {
		for _, x := range round {
			if !slices.ContainsFunc(x.Sample.Errors, func(e tick.SourceError) bool { return e.Source == "config" }) {
				return fmt.Sprintf("reported errors %v", x.Sample.Errors)
			}
		}
		return ""
	})
	readAt := round["n1"].Time
	l.Eventually(controlplane.Soon, "--ready-file is touched nevertheless", func() string {
		if info, err := os.Stat(ready); err != nil || !info.ModTime().After(readAt) {
			return fmt.Sprintf("%v, %v; want it after %s", info, err, readAt)
		}
		return ""
	})
	if err := x.End(syscall.SIGTERM); err != nil {
		t.Errorf("the end on SIGTERM: %v", err)
	}
}

func TestCollectFleetOnce(t *testing.T) {
	t.Parallel()
	l := start(t)
	one, two := l.node(1), l.node(2)
	for _, n := range []string{one, two} {
		l.makeNode(n)
		l.agent(n, time.Now().Add(-time.Minute))
	}
	l.Kubectl("label", "node", two, "pool=batch")
	var x *pipe.Tool
	// It waits ten seconds for the lists, and no longer.
	l.Eventually(controlplane.Soon, "--once prints the second node's tick", func() string {
		x = l.collect("--once", "--node-selector", "pool in (batch)")
		got := x.Next()
		if err := x.End(); err != nil {
			t.Fatalf("the end of --once: %v", err)
		}
		if got.Node != two {
			t.Fatalf("the tick of %s; want the second node's", got.Node)
		}
		if got.Sample.Agent.State != tick.AgentReady {
			return fmt.Sprintf("%+v", got.Sample.Agent)
		}
		return ""
	})
	// Without permission, the log has the refusal, and no node is known.
	x = l.collect("--kubeconfig", l.KubeconfigFor(l.agents, "default"))
	l.Eventually(controlplane.Soon, "the log has the refusal", func() string {
		if log := x.Log(); !strings.Contains(log, "refuses since") && !strings.Contains(log, "refuses for") {
			return "so far: " + log
		}
		return ""
	})
}
