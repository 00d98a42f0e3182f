package health

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/evictconfig"
	"polder/lib/tick"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// fleetTick is a node's tick at noon: its agent has had the state for so long, in a healthy fleet of 100.
func fleetTick(node, state string, downtime time.Duration, pods ...tick.Pod) *tick.Tick {
	since := ""
	if state != "" {
		since = noon.Add(-downtime).Format(time.RFC3339Nano)
	}
	return &tick.Tick{V: 1, Node: node, Time: noon, Sample: &tick.Sample{
		IntervalSeconds: new(10.0),
		Agent:           &tick.Agent{State: state, Since: since},
		Fleet:           &tick.Fleet{Nodes: 100, Ready: 98, NotReady: 2},
		Pods:            pods,
	}}
}

func pod(name, qos string) tick.Pod {
	return tick.Pod{UID: "u-" + name, Namespace: "batch", Name: name, QoS: qos}
}

func anyPod(*tick.Pod) bool { return true }

func names(pods []*tick.Pod) string {
	var n []string
	for _, p := range pods {
		n = append(n, p.Name)
	}
	return strings.Join(n, " ")
}

func TestDecide(t *testing.T) {
	b, a, service := pod("b", tick.QoSReclaimed), pod("a", tick.QoSReclaimed), pod("service", tick.QoSShared)
	change := func(f func(*tick.Tick)) *tick.Tick {
		x := fleetTick("n", tick.AgentNotReady, time.Hour, a)
		f(x)
		return x
	}
	for _, tt := range []struct {
		name    string
		tick    *tick.Tick
		tainted bool // before
		taint   bool
		victims string
		held    bool
		message string // in an error
	}{
		{name: "ready", tick: fleetTick("n", tick.AgentReady, time.Hour, a)},
		{name: "ready again", tick: fleetTick("n", tick.AgentReady, 0, a), tainted: true},
		{name: "for a short time", tick: fleetTick("n", tick.AgentNotReady, 10*time.Minute-1, a)},
		{name: "for ten minutes", tick: fleetTick("n", tick.AgentNotReady, 10*time.Minute, a), taint: true},
		{name: "not found for ten minutes", tick: fleetTick("n", tick.AgentNotFound, 10*time.Minute, a), taint: true},
		{name: "just under twenty", tick: fleetTick("n", tick.AgentNotReady, 20*time.Minute-1, a), taint: true},
		{name: "for twenty", tick: fleetTick("n", tick.AgentNotReady, 20*time.Minute, b, service, a), taint: true, victims: "a b"},
		{name: "not found for twenty", tick: fleetTick("n", tick.AgentNotFound, 20*time.Minute, a), taint: true, victims: "a"},
		{name: "only services", tick: fleetTick("n", tick.AgentNotReady, time.Hour, service), taint: true},
		{name: "no pods", tick: fleetTick("n", tick.AgentNotReady, time.Hour), taint: true},
		{name: "tainted, and ceased to be ready lately", tick: fleetTick("n", tick.AgentNotReady, time.Second, a), tainted: true, taint: true},
		{name: "a clock that is ahead", tick: fleetTick("n", tick.AgentNotReady, -time.Hour, a)},

		{name: "unknown", tick: fleetTick("n", "", 0, a), held: true, message: "agent is unknown"},
		{name: "unknown, and why", tick: change(func(x *tick.Tick) { x.Sample.Agent = &tick.Agent{Reason: "the list is old"} }), held: true, message: "the list is old"},
		{name: "unknown, tainted", tick: fleetTick("n", "", 0, a), tainted: true, taint: true, held: true, message: "agent is unknown"},
		{name: "no such state", tick: fleetTick("n", "ill", time.Hour, a), held: true, message: `"ill"`},
		{name: "no time", tick: change(func(x *tick.Tick) { x.Sample.Agent.Since = "" }), held: true, message: "time since which"},
		{name: "an absurd time", tick: change(func(x *tick.Tick) { x.Sample.Agent.Since = "0001-01-01T00:00:00Z" }), held: true, message: "time since which"},
		{name: "a pod that is named twice", tick: change(func(x *tick.Tick) { x.Sample.Pods = []tick.Pod{a, b, a} }), taint: true, victims: "a b"},
		{name: "no such time", tick: change(func(x *tick.Tick) { x.Sample.Agent.Since = "yesterday" }), held: true, message: "yesterday"},
		{name: "no sample", tick: change(func(x *tick.Tick) { x.Sample = nil }), tainted: true, taint: true, held: true, message: "no sample"},
		{name: "a node's own tick", tick: change(func(x *tick.Tick) { x.Sample.Agent, x.Sample.Fleet = nil, nil }), held: true, message: "collect fleet"},
		{name: "no totals", tick: change(func(x *tick.Tick) { x.Sample.Fleet = nil }), held: true, message: "collect fleet"},
		{name: "protection", tick: change(func(x *tick.Tick) { x.Sample.Fleet = &tick.Fleet{Nodes: 100, Ready: 79, NotReady: 21} }), held: true, message: "21 of 100"},
		{name: "protection, tainted", tick: change(func(x *tick.Tick) { x.Sample.Fleet = &tick.Fleet{Nodes: 1, NotReady: 1} }), tainted: true, taint: true, held: true, message: "none of 1 nodes"},
		{name: "not in the totals", tick: change(func(x *tick.Tick) { x.Sample.Fleet = &tick.Fleet{Nodes: 5, Ready: 5} }), held: true, message: "totals"},
	} {
		s := &State{}
		if tt.tainted {
			s.Nodes = map[string]*Node{"n": {Tainted: true, TurnExpires: noon}}
		}
		d := s.Decide(defaults(), tt.tick, anyPod)
		if got := len(d.Taints) > 0; got != tt.taint || got && d.Taints[0] != Taint {
			t.Errorf("%s: taints %v; want one: %v", tt.name, d.Taints, tt.taint)
		}
		if got := names(d.Victims); got != tt.victims {
			t.Errorf("%s: victims %q; want %q", tt.name, got, tt.victims)
		}
		if d.Fleet.Held != tt.held || d.IsDue && d.Fleet.Held {
			t.Errorf("%s: held: %v; want %v", tt.name, d.Fleet.Held, tt.held)
		}
		if got := strings.Join(d.Errors, "; "); !strings.Contains(got, tt.message) || (tt.message == "") != (got == "") {
			t.Errorf("%s: errors %q; want %q", tt.name, got, tt.message)
		}
		if again := s.Decide(defaults(), tt.tick, anyPod); len(again.Taints) != len(d.Taints) || again.Victims != nil {
			t.Errorf("%s: the same tick once more: taints %v, victims %q", tt.name, again.Taints, names(again.Victims))
		}
	}
}

func TestPressures(t *testing.T) {
	finding := func(value, threshold float64, met, hard bool, since string) tick.PressureFinding {
		return tick.PressureFinding{Rule: Rule, Scope: Scope, Value: value, Threshold: threshold, Met: met, Hard: hard, Since: since}
	}
	for _, tt := range []struct {
		state    string
		downtime time.Duration
		want     []tick.PressureFinding
	}{
		{tick.AgentReady, time.Hour, []tick.PressureFinding{finding(0, 600, false, false, ""), finding(0, 1200, false, true, "")}},
		{tick.AgentNotReady, 599 * time.Second, []tick.PressureFinding{finding(599, 600, false, false, ""), finding(599, 1200, false, true, "")}},
		{tick.AgentNotReady, 600 * time.Second, []tick.PressureFinding{finding(600, 600, true, false, "2026-11-21T12:00:00Z"), finding(600, 1200, false, true, "")}},
		{tick.AgentNotFound, 1260 * time.Second, []tick.PressureFinding{finding(1260, 600, true, false, "2026-11-21T11:49:00Z"), finding(1260, 1200, true, true, "2026-11-21T11:59:00Z")}},
		{"", 0, nil},
	} {
		d := new(State).Decide(defaults(), fleetTick("n", tt.state, tt.downtime), anyPod)
		if diff := cmp.Diff(tt.want, d.Pressures); diff != "" {
			t.Errorf("%s for %s (-want +got):\n%s", tt.state, tt.downtime, diff)
		}
	}
}

func TestProtection(t *testing.T) {
	for _, tt := range []struct {
		f    tick.Fleet
		want bool
	}{
		{tick.Fleet{Nodes: 1, Ready: 1}, false},
		{tick.Fleet{Nodes: 1, NotReady: 1}, true}, // all of them
		{tick.Fleet{Nodes: 2, Ready: 1, NotReady: 1}, false},
		{tick.Fleet{Nodes: 3, Ready: 1, NotReady: 2}, false}, // two are few, whatever their share
		{tick.Fleet{Nodes: 4, Ready: 1, NotReady: 3}, true},
		{tick.Fleet{Nodes: 15, Ready: 12, NotReady: 3}, false}, // exactly 20 %
		{tick.Fleet{Nodes: 14, Ready: 11, NotReady: 3}, true},
		{tick.Fleet{Nodes: 1000, Ready: 800, NotReady: 200}, false},
		{tick.Fleet{Nodes: 1000, Ready: 799, NotReady: 201}, true},
		{tick.Fleet{Nodes: 10, Ready: 7, NotReady: 1, Unknown: 2}, true}, // unknown nodes count as failed
		{tick.Fleet{Nodes: 10, Unknown: 10}, true},
		{tick.Fleet{Nodes: 3, Ready: 1, NotReady: 1, Unknown: 1}, false},
		{tick.Fleet{}, false}, // no node has an agent
		{tick.Fleet{WithoutAgent: 7}, false},
		{tick.Fleet{Ready: 1}, true},
		{tick.Fleet{Nodes: 10, Ready: 9}, true}, // the sum is wrong
		{tick.Fleet{Nodes: 10, Ready: 11, NotReady: -1}, true},
		{tick.Fleet{Nodes: 10, Ready: -1, NotReady: 11}, true},
		{tick.Fleet{Nodes: 2, Ready: 2, NotReady: 1, Unknown: -1}, true},
	} {
		if got := Protection(&tt.f); (got != "") != tt.want {
			t.Errorf("%+v: %q; want protection: %v", tt.f, got, tt.want)
		}
	}
}

// One node is served per ten seconds, the one that is down for longest first, and every node gets its turn.
func TestTurns(t *testing.T) {
	s := &State{}
	var served []string
	pods := map[string]bool{"a": true, "b": true, "c": true, "d": true}
	for round := range 10 {
		for i, name := range []string{"a", "b", "c", "d"} {
			downtime := 20*time.Minute + time.Duration(i%3)*time.Minute // c for longest; a and d equally
			x := fleetTick(name, tick.AgentNotReady, downtime)
			x.Time = noon.Add(time.Duration(round) * 5 * time.Second)
			if pods[name] {
				x.Sample.Pods = []tick.Pod{pod("p", tick.QoSReclaimed)}
			}
			d := s.Decide(defaults(), x, anyPod)
			if d.Victims != nil {
				served = append(served, fmt.Sprint(5*round, name))
				pods[name] = false
			}
			if round == 1 && name == "d" && d.Fleet.Waiting != 3 {
				t.Errorf("%d nodes wait; want 3", d.Fleet.Waiting)
			}
		}
	}
	// The first one is the first whose tick came.
	if want := []string{"0a", "10c", "20b", "30d"}; !slices.Equal(served, want) {
		t.Errorf("served %v; want %v", served, want)
	}
}

// If a round takes longer than the pause between two nodes, the nodes of one round are served together, but no more.
func TestRounds(t *testing.T) {
	s, settings := &State{}, defaults()
	settings.NodesPerMinute = 30
	var served []string
	for round := range 5 {
		count := 0
		for i := range 20 {
			x := fleetTick(fmt.Sprint("n", i), tick.AgentNotReady, time.Hour, pod("p", tick.QoSReclaimed))
			x.Time = noon.Add(time.Duration(round) * 10 * time.Second)
			if s.Decide(settings, x, anyPod).Victims != nil {
				count++
			}
		}
		served = append(served, fmt.Sprint(count))
	}
	if got := strings.Join(served, " "); got != "5 5 5 5 5" {
		t.Errorf("%s nodes in rounds of 10 s; want 5 each, 30 a minute", got)
	}
}

// Setting the clock back neither speeds up nor stops the turns.
func TestClockSetBack(t *testing.T) {
	s := &State{}
	var served []time.Duration
	for after := time.Duration(0); after < 40*time.Second; after += 5 * time.Second {
		x := fleetTick(fmt.Sprint("n", after), tick.AgentNotReady, 3*time.Hour, pod("p", tick.QoSReclaimed))
		if x.Time = noon.Add(after); after >= 5*time.Second {
			x.Time = x.Time.Add(-time.Hour)
		}
		if s.Decide(defaults(), x, anyPod).Victims != nil {
			served = append(served, after)
		}
		s.Nodes = nil // no node waits
	}
	if want := []time.Duration{0, 15 * time.Second, 25 * time.Second, 35 * time.Second}; !slices.Equal(served, want) {
		t.Errorf("served after %v; want %v", served, want)
	}
}

// A node whose pods do not end is tried again, after the others.
func TestNodesWithRefusedEvictionsAreLast(t *testing.T) {
	s := &State{}
	var served []string
	ended := false
	for round := range 6 {
		for _, name := range []string{"a", "b"} {
			x := fleetTick(name, tick.AgentNotReady, time.Hour, pod("p", tick.QoSReclaimed))
			x.Time = noon.Add(time.Duration(round) * 10 * time.Second)
			if d := s.Decide(defaults(), x, func(*tick.Pod) bool { return name == "a" || !ended && round > 0 }); d.Victims != nil {
				served = append(served, name)
				ended = ended || name == "b"
			}
		}
	}
	if want := []string{"a", "a", "b", "a", "a", "a"}; !slices.Equal(served, want) {
		t.Errorf("served %v; want %v", served, want)
	}
}

// A node that is deleted while it waits delays the others by at most a minute.
func TestDeletedNode(t *testing.T) {
	s := &State{}
	for i, name := range []string{"z", "a", "b"} {
		x := fleetTick(name, tick.AgentNotReady, time.Hour-time.Duration(i), pod("p", tick.QoSReclaimed))
		if d := s.Decide(defaults(), x, anyPod); (d.Victims != nil) != (i == 0) {
			t.Fatalf("%s: victims %q", name, names(d.Victims))
		}
	}
	for after := 10 * time.Second; ; after += 10 * time.Second { // no further tick of a comes
		x := fleetTick("b", tick.AgentNotReady, time.Hour-2, pod("p", tick.QoSReclaimed))
		x.Time = noon.Add(after)
		if d := s.Decide(defaults(), x, anyPod); d.Victims != nil {
			if after != time.Minute {
				t.Errorf("b was served after %s", after)
			}
			return
		}
		if after > time.Hour {
			t.Fatal("b was never served")
		}
	}
}

func TestStateIsBounded(t *testing.T) {
	s := &State{}
	for i := range maxNodes + 10 {
		d := s.Decide(defaults(), fleetTick(fmt.Sprint("n", i), tick.AgentNotReady, time.Hour, pod("p", tick.QoSReclaimed)), anyPod)
		if full := i >= maxNodes; d.Fleet.Held != full || full && d.Victims != nil {
			t.Fatalf("node %d: %+v", i, d)
		}
	}
	later := fleetTick("another", tick.AgentNotReady, time.Hour)
	later.Time = noon.Add(2 * time.Hour)
	if d := s.Decide(defaults(), later, anyPod); d.Fleet.Held || len(s.Nodes) != 1 {
		t.Errorf("%d nodes are remembered, %v", len(s.Nodes), d.Errors)
	}
}

func TestSettings(t *testing.T) {
	for _, tt := range []struct {
		change func(*Settings)
		bad    string
	}{
		{func(*Settings) {}, ""},
		{func(s *Settings) { s.TaintAfter = s.EvictAfter }, ""},
		{func(s *Settings) { s.TaintAfter = 0 }, "taint-after"},
		{func(s *Settings) { s.TaintAfter = s.EvictAfter + 1 }, "evict-after"},
		{func(s *Settings) { s.EvictAfter = 8 * 24 * time.Hour }, "evict-after"},
		{func(s *Settings) { s.NodesPerMinute = 0 }, "nodes-per-minute"},
		{func(s *Settings) { s.NodesPerMinute = 601 }, "nodes-per-minute"},
	} {
		s, bad := defaults(), ""
		tt.change(&s)
		s.Check(func(key string, _ error) { bad = key })
		if bad != tt.bad {
			t.Errorf("%+v: bad %q; want %q", s, bad, tt.bad)
		}
	}
	for perMinute, want := range map[int]time.Duration{6: 10 * time.Second, 1: time.Minute, 600: 100 * time.Millisecond, 7: time.Minute/7 + 1} {
		if got := pauseBetweenNodes(Settings{NodesPerMinute: perMinute}); got != want {
			t.Errorf("%d a minute: every %s; want %s", perMinute, got, want)
		}
	}
}

func defaults() Settings { return evictconfig.FleetDefaults() }
