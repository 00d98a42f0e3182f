package health

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"polder/lib/tick"
)

// TestProperties plays a fleet through any sequence of rounds, with clocks that are set back, unknown states and protection
// that begins and ends.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		settings := Settings{
			TaintAfter:     time.Duration(rapid.IntRange(1, 20).Draw(t, "taintAfter")) * time.Second,
			NodesPerMinute: rapid.IntRange(1, 30).Draw(t, "perMinute"),
		}
		settings.EvictAfter = settings.TaintAfter + time.Duration(rapid.IntRange(0, 20).Draw(t, "evictAfter"))*time.Second
		nodes := rapid.IntRange(1, 8).Draw(t, "nodes")
		s, restarted := &State{}, &State{}
		realTime := noon // the time of a clock that is never set
		var offset time.Duration
		var served []time.Time // by the real clock
		interval := time.Duration(rapid.IntRange(0, 20).Draw(t, "interval")) * time.Second
		tainted := map[string]bool{}

		for range rapid.IntRange(1, 40).Draw(t, "rounds") {
			realTime = realTime.Add(time.Duration(rapid.IntRange(0, 15).Draw(t, "step")) * time.Second)
			if rapid.IntRange(0, 9).Draw(t, "clock") == 0 {
				offset -= time.Duration(rapid.IntRange(1, 100).Draw(t, "back")) * time.Second
			}
			fleet := tick.Fleet{Nodes: nodes, NotReady: rapid.IntRange(0, nodes).Draw(t, "notReady")}
			fleet.Ready = nodes - fleet.NotReady
			for i := range nodes {
				x := genTick(t, fmt.Sprint("n", i), realTime.Add(offset), fleet)
				x.Sample.IntervalSeconds = new(interval.Seconds())
				mayEvict := rapid.Bool().Draw(t, "evictable")
				evictable := func(*tick.Pod) bool { return mayEvict }
				d := s.Decide(settings, x, evictable)

				// A new process that reads the state file at any moment decides the same.
				raw, err := json.Marshal(restarted)
				if err != nil {
					t.Fatal(err)
				}
				restarted = &State{}
				if err := json.Unmarshal(raw, restarted); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(d, restarted.Decide(settings, x, evictable)); diff != "" {
					t.Fatalf("same ticks, another decision:\n%s", diff)
				}

				a := x.Sample.Agent
				notReady := a.State == tick.AgentNotReady || a.State == tick.AgentNotFound
				since, _ := time.Parse(time.RFC3339, a.Since)
				protected := Protection(&fleet) != ""
				if len(d.Victims) > 0 {
					if !notReady || protected || x.Time.Sub(since) < settings.EvictAfter {
						t.Fatalf("evicted from a node that is %s since %s at %s, protection: %v", a.State, a.Since, x.Time, protected)
					}
					served = append(served, realTime)
					for n, first := range served { // the ticks of a round are one instant, in which as many are served as one after the other would be
						within := realTime.Sub(first) + max(0, interval-pauseBetweenNodes(settings)) + pauseBetweenNodes(settings)/earlyDivisor
						if got, limit := len(served)-n, int(within/pauseBetweenNodes(settings))+1; got > limit {
							t.Fatalf("%d nodes within %s of rounds of %s; want %d at most, %s between them", got, realTime.Sub(first), interval, limit, pauseBetweenNodes(settings))
						}
					}
				}
				for _, p := range d.Victims {
					if p.QoS != tick.QoSReclaimed || !mayEvict {
						t.Fatalf("%s pod %s was evicted", p.QoS, p.Name)
					}
				}
				has := len(d.Taints) > 0
				switch {
				case has && !tainted[x.Node] && (!notReady || protected || x.Time.Sub(since) < settings.TaintAfter):
					t.Fatalf("tainted a node that is %q since %s at %s, protection: %v", a.State, a.Since, x.Time, protected)
				case !has && tainted[x.Node] && a.State != tick.AgentReady:
					t.Fatalf("removed the taint from a node that is %q", a.State)
				case has && a.State == tick.AgentReady:
					t.Fatal("a ready node is tainted")
				}
				tainted[x.Node] = has
			}
		}
	})
}

func genTick(t *rapid.T, node string, now time.Time, fleet tick.Fleet) *tick.Tick {
	a := &tick.Agent{State: rapid.SampledFrom([]string{tick.AgentReady, tick.AgentNotReady, tick.AgentNotReady, tick.AgentNotFound, ""}).Draw(t, "state")}
	if a.State != "" {
		a.Since = now.Add(-time.Duration(rapid.IntRange(-5, 60).Draw(t, "since")) * time.Second).Format(time.RFC3339)
	}
	x := &tick.Tick{V: 1, Node: node, Time: now, Sample: &tick.Sample{Agent: a, Fleet: &fleet}}
	for i := range rapid.IntRange(0, 3).Draw(t, "pods") {
		x.Sample.Pods = append(x.Sample.Pods, pod(fmt.Sprint(node, "-", i), rapid.SampledFrom([]string{tick.QoSReclaimed, tick.QoSShared}).Draw(t, "qos")))
	}
	return x
}
