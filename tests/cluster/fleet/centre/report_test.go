package centre

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

// ownReport is the report on the node itself, which offers 44 cores with each tick.
func (c *cluster) ownReport(node string) func() {
	c.t.Helper()
	x := pipe.Start(c.t, "report", "--max-age", "10m", "--to", "cnr,node", "--kubeconfig", c.AccountFor("report"), "--node", node)
	milli, bytes := int64(44000), int64(195257901056)
	return func() {
		c.t.Helper()
		x.Put(&tick.Tick{
			V: 1, Node: node, Time: time.Now().UTC(), Eviction: &tick.Eviction{},
			Advice: &tick.Advice{Policy: "katalyst", Reclaimed: &tick.Reclaimed{MilliCPU: &milli, MemoryBytes: &bytes}},
		})
	}
}

// TestStages takes a node through the failure and the return of its agent, whose report may still run meanwhile. Other programs'
// values stay.
func TestStages(t *testing.T) {
	t.Parallel()
	c := begin(t)
	const node = "stages"
	c.node(node)
	own := c.ownReport(node)
	c.Eventually(controlplane.Soon, "the node's own report", func() string {
		own()
		return cmp.Diff("44k", c.state(node).cnrOffers)
	})
	c.Apply(fmt.Sprintf(`
apiVersion: node.katalyst.kubewharf.io/v1alpha1
kind: CustomNodeResource
metadata: {name: %s}
spec: {taints: [{key: team/x, effect: NoSchedule, qosLevel: reclaimed_cores}]}
`, node))
	status, answer := c.API(http.MethodPatch, cnrPath+node+"/status",
		`{"status":{"conditions":[{"type":"Theirs","status":"True","reason":"Other","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
	if status != http.StatusOK {
		t.Fatalf("%s", answer)
	}
	x := c.tool("report")
	noon := time.Now().Add(-time.Hour).Truncate(time.Second).UTC()
	at := func(after time.Duration) string { return noon.Add(after).Format(time.RFC3339) }
	const theirs, ours = "team/x:NoSchedule reclaimed_cores", unfit + " reclaimed_cores"

	for _, step := range []struct {
		name          string
		agent         string
		since         time.Duration // after noon, in the agent's state
		tainted, held bool
		// The cluster's state then.
		ready, notFound string // status and reason
		taint, offers   bool
	}{
		{"ready", tick.AgentReady, 0, false, false, "True AllAgentsReady", "False AllAgentsFound", false, true},
		{"dead", tick.AgentNotReady, 10*time.Minute + time.Millisecond, false, false, "False WithAgentsNotReady", "False AllAgentsFound", false, true},
		{"the agent's pod is gone", tick.AgentNotFound, 10*time.Minute + time.Millisecond, false, false, "Unknown WithAgentsUnknown", "True withAgentsNotFound", false, true},
		{"tainted", tick.AgentNotFound, 10*time.Minute + time.Millisecond, true, false, "Unknown WithAgentsUnknown", "True withAgentsNotFound", true, false},
		{"under protection, without the earlier taint", tick.AgentNotFound, 10*time.Minute + time.Millisecond, false, true, "Unknown WithAgentsUnknown", "True withAgentsNotFound", true, false},
		{"ready again", tick.AgentReady, 40 * time.Minute, false, false, "True AllAgentsReady", "False AllAgentsFound", false, true},
		{"under protection, with a taint that is missing", tick.AgentNotReady, 50 * time.Minute, true, true, "False WithAgentsNotReady", "False AllAgentsFound", false, true},
	} {
		next := func() *tick.Tick {
			own()
			return decided(heard(node, step.agent, noon.Add(step.since), 10, 1), step.tainted, step.held)
		}
		c.settle(x, next)
		check := func() string {
			s := c.state(node)
			since := step.since
			if since%time.Second != 0 {
				since += time.Second - since%time.Second // rounded up
			}
			var wrong []string
			note := func(what string, want, got any) {
				if d := cmp.Diff(want, got); d != "" {
					wrong = append(wrong, what+" (-want +got):\n"+d)
				}
			}
			note("AgentReady", step.ready+" "+at(since), s.conditions["AgentReady"])
			note("AgentNotFound", step.notFound, s.conditions["AgentNotFound"][:max(0, len(s.conditions["AgentNotFound"])-len(" 2026-01-01T00:00:00Z"))])
			note("conditions", []string{"AgentNotFound", "AgentReady", "Theirs"}, slices.Sorted(maps.Keys(s.conditions)))
			taints, offers := []string{theirs}, ""
			if step.taint {
				taints = append(taints, ours)
			}
			if step.offers {
				offers = "44k"
			}
			note("taints", taints, s.taints)
			note("the node offers", offers, s.offers)
			note("the CNR offers", offers, s.cnrOffers)
			note("mark", step.taint, strings.HasPrefix(s.mark, "agent-health: the node's agent has not been ready since "))
			return strings.Join(wrong, "\n")
		}
		c.Eventually(controlplane.Soon, step.name, func() string {
			x.Put(next())
			return check()
		})
		// The state is stable, and nothing is written any more.
		before := c.state(node).version
		for range 30 {
			if got := stateOf(x.Put(next())); got != tick.TargetUnchanged {
				t.Errorf("%s: the fleet's target is %s", step.name, got)
			}
		}
		if now := c.state(node).version; now != before {
			t.Errorf("%s: versions %s, then %s: it is written again and again", step.name, before, now)
		}
		if wrong := check(); wrong != "" {
			t.Errorf("%s: it does not stay so: %s", step.name, wrong)
		}
	}
	if err := x.End(); err != nil {
		t.Errorf("report: %v", err)
	}
}

// A node that never had an agent of Polder's gets a CustomNodeResource for its conditions, which is deleted with the node.
func TestNodeWithoutObject(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.node("bare")
	x := c.tool("report")
	since := time.Now().Add(-time.Minute)
	c.settle(x, func() *tick.Tick { return decided(heard("bare", tick.AgentReady, since, 3, 0), false, false) })
	if s := c.state("bare"); !strings.HasPrefix(s.conditions["AgentReady"], "True AllAgentsReady") || s.offers != "44k" || s.mark != "" {
		t.Errorf("%+v", s)
	}
	if owner := c.Kubectl("get", "kcnr", "bare", "-o", "jsonpath={.metadata.ownerReferences[0].name}"); owner != "bare" {
		t.Errorf("its owner is %q", owner)
	}
	// A node that the cluster does not have is an error, and no object is created for it.
	var last tick.Target
	c.Eventually(controlplane.Soon, "an error about a node that is not there", func() string {
		last = x.Put(decided(heard("nobody", tick.AgentReady, since, 3, 0), false, false)).Report.Targets[0]
		return cmp.Diff(tick.TargetFailed, last.State)
	})
	if !strings.Contains(last.Error, `no node "nobody"`) {
		t.Errorf("%+v", last)
	}
}

// A fleet controller that hangs, or is killed, leaves everything unchanged; --withdraw removes its marks, and the node's own report
// offers again.
func TestSilenceAndWithdrawal(t *testing.T) {
	c := begin(t)
	const node = "silent"
	c.node(node)
	own := c.ownReport(node)
	c.Eventually(controlplane.Soon, "the node's own report", func() string {
		own()
		return cmp.Diff("44k", c.state(node).cnrOffers)
	})
	x := c.tool("report")
	since := time.Now().Add(-time.Hour)
	c.settle(x, func() *tick.Tick {
		own()
		return decided(heard(node, tick.AgentNotReady, since, 10, 1), true, false)
	})
	silent, before := time.Now(), c.state(node)
	if before.mark == "" || before.offers != "" || before.cnrOffers != "" || len(before.taints) != 1 {
		t.Fatalf("not withdrawn: %+v", before)
	}
	c.Eventually(controlplane.Soon, "no tick for some seconds, while the node's report continues", func() string {
		own()
		if d := time.Since(silent); d < 3*time.Second {
			return d.String()
		}
		return ""
	})
	x.Kill()
	for range 20 {
		own()
	}
	if now := c.state(node); now.version != before.version {
		t.Errorf("missing ticks changed %+v to %+v", before, now)
	}

	if err := c.tool("report", "--withdraw", "--dry-run").End(); err != nil {
		t.Errorf("report --withdraw --dry-run: %v", err)
	}
	if now := c.state(node); now.version != before.version {
		t.Errorf("a dry run changed %+v to %+v", before, now)
	}
	if err := c.tool("report", "--withdraw").End(); err != nil {
		t.Errorf("report --withdraw: %v", err)
	}
	c.Eventually(controlplane.Soon, "the node offers again", func() string {
		own()
		s := c.state(node)
		s.version = ""
		return cmp.Diff(state{offers: "44k", cnrOffers: "44k", conditions: map[string]string{}}, s, cmp.AllowUnexported(state{}))
	})
}

// report restores what another program removes, but two programs in conflict do not write all the time.
func TestUndone(t *testing.T) {
	t.Parallel()
	c := begin(t)
	const node = "undone"
	c.node(node)
	x := c.tool("report")
	since := time.Now().Add(-time.Hour)
	next := func() *tick.Tick { return decided(heard(node, tick.AgentNotReady, since, 10, 1), true, false) }
	c.settle(x, next)
	began, wins := time.Now(), 0
	c.Eventually(controlplane.Soon, "it is restored four times", func() string {
		x.Put(next())
		if c.state(node).mark != "" {
			wins++
			c.Kubectl("annotate", "node", node, mark+"-")
		}
		if wins < 4 {
			return fmt.Sprint(wins, " times")
		}
		return ""
	})
	if took := time.Since(began); took < 4500*time.Millisecond { // two seconds pass between two writes
		t.Errorf("it was restored four times within %s", took)
	}
	c.settle(x, next)
	if c.state(node).mark == "" {
		t.Error("it was not restored finally")
	}
}

// An API server that is away delays nothing, and what became due meanwhile is written when it is back.
func TestServerAway(t *testing.T) {
	c := begin(t)
	const node = "away"
	c.node(node)
	x := c.tool("report")
	since := time.Now().Add(-time.Hour)
	c.settle(x, func() *tick.Tick { return decided(heard(node, tick.AgentReady, since, 10, 0), false, false) })
	dead := func() *tick.Tick { return decided(heard(node, tick.AgentNotFound, since, 10, 1), true, false) }
	c.StopAPIServer()
	c.Eventually(controlplane.Soon, "a tick reports that writing fails", func() string {
		sent := time.Now()
		out := x.Put(dead())
		if took := time.Since(sent); took > 20*time.Second { // a request's timeout is half a minute
			t.Errorf("a tick took %s", took)
		}
		if stateOf(out) != tick.TargetFailed {
			return fmt.Sprintf("%+v", out.Report.Targets)
		}
		return ""
	})
	c.StartAPIServer()
	c.Eventually(controlplane.Soon, "what became due", func() string {
		x.Put(dead())
		s := c.state(node)
		if s.mark == "" || s.offers != "" || len(s.taints) != 1 || !strings.HasPrefix(s.conditions["AgentNotFound"], "True") {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	if err := x.End(); err != nil {
		t.Errorf("report: %v", err)
	}
}

// The end of the input: a file's values are written, though the file has ended. The end of a live input, where the lease is lost, discards
// pending writes and restores nothing that another program has changed meanwhile.
func TestEndOfInput(t *testing.T) {
	c := begin(t)
	since := time.Now().Add(-time.Hour)
	dead := func(node string) *tick.Tick {
		return decided(heard(node, tick.AgentNotReady, since, 100, 20), true, false)
	}
	c.node("of-a-file")
	x := c.tool("report")
	x.Send(dead("of-a-file"))
	if err := x.End(); err != nil {
		t.Errorf("report: %v", err)
	}
	if s := c.state("of-a-file"); s.mark == "" || s.offers != "" || len(s.taints) != 1 {
		t.Errorf("a file's tick is not written: %+v", s)
	}

	// A live input. Another program, such as a successor, reverts the write. report would restore it after some seconds: two at first, and
	// twice as many after each further revert. If that was before the end of its input, the next process has more time.
	const node = "live"
	c.node(node)
	for reverts := 1; ; reverts++ {
		x = c.tool("report", "--no-flush")
		c.settle(x, func() *tick.Tick { return dead(node) })
		for n := range reverts {
			if n > 0 {
				c.Eventually(controlplane.Soon, "report restores the mark", func() string {
					x.Put(dead(node))
					return cmp.Diff(true, c.state(node).mark != "")
				})
			}
			c.Kubectl("annotate", "node", node, mark+"-")
			c.Eventually(controlplane.Soon, "report knows", func() string {
				if got := stateOf(x.Put(dead(node))); got == tick.TargetUnchanged {
					return got
				}
				return ""
			})
		}
		before := c.state(node)
		if err := x.End(); err != nil {
			t.Errorf("report --no-flush: %v", err)
		}
		now := c.state(node)
		if before.mark == "" && now.version == before.version {
			break
		}
		if reverts == 4 { // half a minute would have been left
			t.Errorf("the end of the input has changed %+v to %+v", before, now)
			break
		}
	}

	// More writes than can be made at once, while the server does not answer: those that are queued are never made.
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("many-%02d", i))
		c.node(many[i])
	}
	x = c.tool("report", "--no-flush")
	c.settle(x, func() *tick.Tick { return dead(node) }) // all are known to it
	c.FreezeAPIServer()
	for _, name := range many {
		if got := x.Put(dead(name)).Report.Targets[0]; got.State != tick.TargetPending {
			t.Errorf("%s: %+v; want it pending", name, got)
		}
	}
	began := time.Now()
	err := x.End()
	took := time.Since(began)
	c.ThawAPIServer()
	if err != nil || took > 20*time.Second { // a request's timeout is half a minute
		t.Errorf("report --no-flush ends after %s: %v; want it within a second or two", took, err)
	}
	c.Kubectl("label", "node", "of-a-file", "after=all") // the server has completed the earlier requests
	written := 0
	for _, name := range many {
		if s := c.state(name); len(s.conditions) > 0 || s.mark != "" || len(s.taints) > 0 {
			written++
		}
	}
	if written > 16 {
		t.Errorf("%d of %d nodes were written; want those 16 at most whose write was in flight", written, len(many))
	}
}
