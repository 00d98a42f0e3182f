package agents

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"polder/collect/kubernetes"
	"polder/lib/tick"
	"polder/lib/tick/ticktest"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// at is the time so long before noon, as a text.
func ago(d time.Duration) string { return noon.Add(-d).Format(time.RFC3339) }

func object(t testing.TB, text string) Object {
	t.Helper()
	var o Object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}

// The cluster's objects, by what matters of them here.
func node(t testing.TB, name string, age time.Duration) *Node {
	return NodeOf(object(t, fmt.Sprintf(`{"metadata":{"name":%q,"creationTimestamp":%q}}`, name, ago(age))))
}

func agentPod(t testing.TB, on, name, ready string, changed time.Duration) *Pod {
	condition := ""
	if ready != "" {
		condition = fmt.Sprintf(`{"type":"PodScheduled","status":"True"},{"type":"Ready","status":%q,"lastTransitionTime":%q}`, ready, ago(changed))
	}
	return reading().Pod(object(t, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"sys","uid":"u","labels":{"app":"agent"},"creationTimestamp":%q},
		"spec":{"nodeName":%q},"status":{"phase":"Running","conditions":[%s]}}`, name, ago(24*time.Hour), on, condition)))
}

func record(t testing.TB, name, ready string, since, seen time.Duration) *Record {
	return RecordOf(object(t, fmt.Sprintf(`{"metadata":{"name":%q},"status":{"conditions":[{"type":"AgentNotFound","status":"True"},
		{"type":"AgentReady","status":%q,"lastTransitionTime":%q,"lastHeartbeatTime":%q}]}}`, name, ready, ago(since), ago(seen))))
}

func reading() *Reading {
	agent, err := labels.Parse("app=agent")
	if err != nil {
		panic(err)
	}
	return &Reading{Reading: kubernetes.Reading{BestEffort: tick.QoSShared}, Agent: agent, AgentNamespace: "sys"}
}

// The state that a run which begins at noon finds of a node's agent.
func TestBegin(t *testing.T) {
	const day, min = 24 * time.Hour, time.Minute
	for name, c := range map[string]struct {
		pods   []*Pod
		record *Record
		age    time.Duration
		state  string
		since  time.Duration // before noon
	}{
		"ready":                            {pods: []*Pod{agentPod(t, "n", "a", "True", time.Hour)}, age: day, state: "ready", since: time.Hour},
		"two, one ready":                   {pods: []*Pod{agentPod(t, "n", "b", "False", 3*min), agentPod(t, "n", "a", "True", time.Hour)}, age: day, state: "ready", since: time.Hour},
		"not ready":                        {pods: []*Pod{agentPod(t, "n", "a", "False", 7*min)}, age: day, state: "notReady", since: 7 * min},
		"unknown to the node controller":   {pods: []*Pod{agentPod(t, "n", "a", "Unknown", 7*min)}, age: day, state: "notReady", since: 7 * min},
		"two, neither ready":               {pods: []*Pod{agentPod(t, "n", "b", "False", 3*min), agentPod(t, "n", "a", "False", 7*min)}, age: day, state: "notReady", since: 3 * min},
		"never heard of":                   {pods: []*Pod{agentPod(t, "n", "a", "", 0)}, age: 2 * day, state: "notReady", since: day},
		"a clock that is ahead":            {pods: []*Pod{agentPod(t, "n", "a", "False", -time.Hour)}, age: day, state: "notReady", since: 0},
		"recorded not ready":               {pods: []*Pod{agentPod(t, "n", "a", "False", 20*min)}, record: record(t, "n", "False", 30*min, min), age: day, state: "notReady", since: 30 * min},
		"recorded, changed since":          {pods: []*Pod{agentPod(t, "n", "a", "False", 2*min)}, record: record(t, "n", "False", 30*min, 4*min), age: day, state: "notReady", since: 2 * min},
		"recorded, changed a moment since": {pods: []*Pod{agentPod(t, "n", "a", "False", 0)}, record: record(t, "n", "False", 30*min, 50*time.Second), age: day, state: "notReady", since: 30 * min},
		"recorded ready, fell since":       {pods: []*Pod{agentPod(t, "n", "a", "False", 2*min)}, record: record(t, "n", "True", day, 4*min), age: day, state: "notReady", since: 2 * min},
		"recorded ready, another fell":     {pods: []*Pod{agentPod(t, "n", "a", "False", 9*min)}, record: record(t, "n", "True", day, 4*min), age: day, state: "notReady", since: 4 * min},
		"recorded ready, and is":           {pods: []*Pod{agentPod(t, "n", "a", "True", 2*min)}, record: record(t, "n", "True", day, 4*min), age: day, state: "ready", since: day},
		"recorded not ready, and is":       {pods: []*Pod{agentPod(t, "n", "a", "True", 2*min)}, record: record(t, "n", "False", day, 4*min), age: day, state: "ready", since: 2 * min},
		"recorded, gone":                   {record: record(t, "n", "Unknown", 30*min, 4*min), age: day, state: "notFound", since: 30 * min},
		"recorded ready, gone":             {record: record(t, "n", "True", day, 4*min), age: day, state: "notFound", since: 0},
		"recorded long ago, gone":          {record: record(t, "n", "False", day, 16*min), age: 2 * day, state: "notFound", since: 0},
		"recorded long ago, a pod":         {pods: []*Pod{agentPod(t, "n", "a", "False", 5*min)}, record: record(t, "n", "False", day, 16*min), age: 2 * day, state: "notReady", since: 5 * min},
		"recorded ahead":                   {record: record(t, "n", "False", 30*min, -time.Hour), age: day, state: "notFound", since: 0},
		"a record without the condition":   {record: &Record{Name: "n"}, age: day, state: "notFound", since: 0},
		"a record without a heartbeat":     {record: RecordOf(object(t, `{"metadata":{"name":"n"},"status":{"conditions":[{"type":"AgentReady","status":"False","lastTransitionTime":"2026-11-01T00:00:00Z"}]}}`)), age: day, state: "notFound", since: 0},
	} {
		f := Fleet{Interval: 10 * time.Second}
		seen := Seen{Nodes: []*Node{node(t, "n", c.age)}, Pods: append(c.pods, nil)}
		if c.record != nil {
			seen.Records = []*Record{c.record}
		}
		got := f.Observe(noon, seen)[0].Sample
		if want := noon.Add(-c.since).Format(time.RFC3339); got.Agent.State != c.state || got.Agent.Since != want {
			t.Errorf("%s: %s since %s; want %s since %s", name, got.Agent.State, got.Agent.Since, c.state, want)
		}
		ready, bad := 0, 1
		if c.state == "ready" {
			ready, bad = 1, 0
		}
		if *got.Fleet != (tick.Fleet{Nodes: 1, Ready: ready, NotReady: bad}) {
			t.Errorf("%s: fleet %+v", name, *got.Fleet)
		}
	}
}

// step is one look of a run.
type step struct {
	after time.Duration // the first look's time
	pods  []*Pod
	stale string
	want  string // "state since", in seconds after the first look
}

func TestRun(t *testing.T) {
	const s, min = time.Second, time.Minute
	up := func(changed time.Duration) []*Pod { return []*Pod{agentPod(t, "n", "a", "True", -changed)} }
	down := func(changed time.Duration) []*Pod { return []*Pod{agentPod(t, "n", "a", "False", -changed)} }
	for name, steps := range map[string][]step{
		"not ready, deleted, ready again": {
			{0, up(-min), "", "ready -60"},
			{10 * s, down(7 * s), "", "notReady 7"},
			{20 * s, nil, "", "notFound 7"},
			{30 * s, down(25 * s), "", "notReady 7"},
			{40 * s, up(38 * s), "", "ready 38"},
			{50 * s, up(38 * s), "", "ready 38"},
		},
		"a rolling update": {
			{0, up(-min), "", "ready -60"}, {10 * s, up(8 * s), "", "ready -60"},
		},
		"gone at once": {{0, up(-min), "", "ready -60"}, {10 * s, nil, "", "notFound 10"}, {20 * s, nil, "", "notFound 10"}},
		"made again and again": {
			{0, down(-min), "", "notReady -60"}, {10 * s, down(9 * s), "", "notReady -60"}, {20 * s, down(19 * s), "", "notReady -60"},
		},
		"not observed, and nothing changed": {
			{0, down(-min), "", "notReady -60"}, {10 * s, down(-min), "away", " "}, {10 * min, down(-min), "", "notReady -60"},
		},
		"not observed, and it changed": {
			{0, down(-min), "", "notReady -60"}, {10 * s, down(-min), "away", " "}, {10 * min, down(5 * min), "", "notReady 300"},
		},
		"not observed, and not ready any more": {
			{0, up(-min), "", "ready -60"}, {10 * s, nil, "away", " "}, {10 * min, down(5 * min), "", "notReady 300"},
		},
		"not observed for long": {
			{0, nil, "", "notFound 0"}, {10 * s, nil, "away", " "}, {16 * min, nil, "", "notFound 960"},
		},
		"a clock that was set back": {
			{0, down(-min), "", "notReady -60"}, {-10 * s, down(-min), "", "notReady -60"}, {-2 * time.Hour, down(-min), "", "notReady -7200"},
		},
	} {
		f := Fleet{}
		for i, x := range steps {
			tick := f.Observe(noon.Add(x.after), Seen{Nodes: []*Node{node(t, "n", 24*time.Hour)}, Pods: x.pods, Records: []*Record{{Name: "n"}}, Stale: x.stale})[0]
			a := tick.Sample.Agent
			got := a.State + " "
			if since, err := time.Parse(time.RFC3339, a.Since); err == nil {
				got += fmt.Sprint(since.Sub(noon).Seconds())
			}
			if got != x.want {
				t.Errorf("%s, look %d: %q; want %q", name, i, got, x.want)
			}
		}
	}
}

// A node without a sign of an agent is in no count and has no state; one that had an agent keeps counting.
func TestWhoIsOfTheFleet(t *testing.T) {
	offers := NodeOf(object(t, `{"metadata":{"name":"offers"},"status":{"allocatable":{"cpu":"4","resource.katalyst.kubewharf.io/reclaimed_memory":"1Gi"}}}`))
	// Offers of Koordinator's agent, or under a name like ours, are no sign of our agent.
	theirs := NodeOf(object(t, `{"metadata":{"name":"koordinator"},"status":{
		"capacity":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/mid-cpu":"1k","koordinator.sh/gpu-core":"100","katalyst.kubewharf.io/other":"1"},
		"allocatable":{"kubernetes.io/batch-memory":"1Gi","koordinator.sh/mid-memory":"1Gi","resource.katalyst.kubewharf.io/net_bandwidth":"1k"}}}`))
	withdrawn := NodeOf(object(t, `{"metadata":{"name":"withdrawn","annotations":{"polder/withdrawn":"why","other":"x"}},"status":{"capacity":{"resource.katalyst.kubewharf.io/reclaimed_millicpu":"0"}}}`))
	nodes := []*Node{node(t, "bare", time.Hour), node(t, "pod", time.Hour), node(t, "record", time.Hour), offers, theirs, withdrawn, NodeOf(object(t, `{}`)), node(t, "bare", time.Hour)}
	seen := Seen{Nodes: nodes, Pods: []*Pod{agentPod(t, "pod", "a", "True", time.Hour), agentPod(t, "elsewhere", "b", "True", time.Hour)}, Records: []*Record{{Name: "record"}}}
	f := Fleet{Interval: 10 * time.Second}
	states := func(ticks []*tick.Tick) string {
		var out []string
		for _, x := range ticks {
			out = append(out, x.Node+":"+x.Sample.Agent.State)
		}
		return strings.Join(out, " ")
	}
	ticks := f.Observe(noon, seen)
	if got, want := states(ticks), "bare: koordinator: offers:notFound pod:ready record:notFound withdrawn:notFound"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	if got, want := *ticks[0].Sample.Fleet, (tick.Fleet{Nodes: 4, Ready: 1, NotReady: 3, WithoutAgent: 2}); got != want {
		t.Errorf("fleet %+v; want %+v", got, want)
	}
	if got := ticks[5].Sample.Annotations; len(got) != 1 || got["polder/withdrawn"] != "why" {
		t.Errorf("annotations %v; want the project's own", got)
	}
	seen.Pods, seen.Records = nil, nil
	if got, want := states(f.Observe(noon.Add(time.Minute), seen)), "bare: koordinator: offers:notFound pod:notFound record:notFound withdrawn:notFound"; got != want {
		t.Errorf("a minute later: %s; want %s", got, want)
	}
	// While the lists are stale no agent's state is known, and no node is forgotten.
	stale := f.Observe(noon.Add(2*time.Minute), Seen{Nodes: nodes[:2], Stale: "away"})
	if got, want := states(stale), "bare: pod:"; got != want || *stale[0].Sample.Fleet != (tick.Fleet{Nodes: 1, Unknown: 1, WithoutAgent: 1}) || stale[1].Sample.Agent.Reason != "away" {
		t.Errorf("away: %s, %+v; want %s", got, *stale[0].Sample.Fleet, want)
	}
	f.Observe(noon.Add(3*time.Minute), Seen{Nodes: nodes[:1]})
	if len(f.nodes) != 1 {
		t.Errorf("%d nodes are remembered; want 1", len(f.nodes))
	}
}

// A node that joins later has no agent since its creation, not since it was first observed.
func TestNewNode(t *testing.T) {
	f := Fleet{}
	f.Observe(noon, Seen{})
	joined := node(t, "n", -30*time.Second)
	got := f.Observe(noon.Add(time.Minute), Seen{Nodes: []*Node{joined}, Records: []*Record{{Name: "n"}}})[0].Sample.Agent
	if got.State != tick.AgentNotFound || got.Since != noon.Add(30*time.Second).Format(time.RFC3339) {
		t.Errorf("%s since %s; want notFound since its creation", got.State, got.Since)
	}
}

func TestPods(t *testing.T) {
	const head = `{"metadata":{"name":"p","namespace":"sys","uid":"u",`
	for text, want := range map[string]string{
		head + `"labels":{"app":"agent"}},"spec":{"nodeName":"n"}}`:                                                                        "agent",
		head + `"labels":{"app":"agent"}},"spec":{}}`:                                                                                      "",
		head + `"labels":{"app":"other"}},"spec":{"nodeName":"n"}}`:                                                                        "",
		`{"metadata":{"name":"p","namespace":"evil","labels":{"app":"agent"}},"spec":{"nodeName":"n"}}`:                                    "",
		head + `"annotations":{"katalyst.kubewharf.io/qos_level":"reclaimed_cores"}},"spec":{"nodeName":"n"}}`:                             "reclaimed",
		head + `"labels":{"koordinator.sh/qosClass":"BE"}},"spec":{"nodeName":"n"}}`:                                                       "reclaimed",
		head + `"labels":{"koordinator.sh/qosClass":"LS"}},"spec":{"nodeName":"n"}}`:                                                       "",
		head + `"annotations":{"katalyst.kubewharf.io/qos_level":"reclaimed"}},"spec":{"nodeName":"n"}}`:                                   "",
		head + `"labels":{}},"spec":{"nodeName":"n","containers":[{"resources":{"requests":{"kubernetes.io/batch-cpu":"1k"}}}]}}`:          "reclaimed",
		head + `"annotations":{"katalyst.kubewharf.io/qos_level":"reclaimed_cores"}},"spec":{"nodeName":"n"},"status":{"phase":"Failed"}}`: "",
		head + `"labels":{"app":"agent"},"annotations":{"katalyst.kubewharf.io/qos_level":"reclaimed_cores"}},"spec":{"nodeName":"n"}}`:    "agent reclaimed",
		`{"metadata":[],"spec":{"nodeName":"n"},"status":3}`:                                                                               "",
	} {
		got := []string{}
		if p := reading().Pod(object(t, text)); p != nil {
			if p.Agent != nil {
				got = append(got, "agent")
			}
			if p.Reclaimed != nil {
				got = append(got, "reclaimed")
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v; want %q", text, got, want)
		}
	}
}

// The ticks are sorted, of one time, and valid by the schema.
func TestTicks(t *testing.T) {
	var pods []*Pod
	for _, name := range []string{"z", "a"} {
		pods = append(pods, reading().Pod(object(t, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"batch","uid":"u-%s","annotations":{"katalyst.kubewharf.io/qos_level":"reclaimed_cores"}},
			"spec":{"nodeName":"n1","containers":[{"name":"c","resources":{"requests":{"resource.katalyst.kubewharf.io/reclaimed_millicpu":"2k"}}}]},"status":{"phase":"Running"}}`, name, name))))
	}
	pods = append(pods, agentPod(t, "n2", "a", "False", time.Minute))
	f := Fleet{Interval: 10 * time.Second}
	ticks := f.Observe(noon.Add(123456789), Seen{
		Nodes: []*Node{node(t, "n2", time.Hour), node(t, "n1", time.Hour)}, Pods: pods, Records: []*Record{{Name: "n1"}},
		Errors: []tick.SourceError{{Source: "config", Error: "x"}}, Config: tick.Raw(`{"katalyst":{}}`),
	})
	if len(ticks) != 2 || ticks[0].Node != "n1" || ticks[1].Node != "n2" || ticks[0].Time != ticks[1].Time {
		t.Fatalf("ticks %v; want n1's and n2's of one time", ticks)
	}
	for _, x := range ticks {
		line, err := tick.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		if err := ticktest.Validate(line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	reclaimed := ticks[0].Sample.Pods
	if !slices.EqualFunc(reclaimed, []string{"a", "z"}, func(p tick.Pod, name string) bool { return p.Name == name }) || *reclaimed[0].Requests.ReclaimedMilliCPU != 2000 {
		t.Errorf("pods %+v; want a and z with their requests", reclaimed)
	}
	if a := ticks[1].Sample.Agent; a.Reason != "pod sys/a is not ready" || len(a.Pods) != 1 || a.Pods[0].Since != ago(time.Minute) {
		t.Errorf("agent %+v", a)
	}
}

func FuzzObjects(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"n","creationTimestamp":"2026-01-01T00:00:00Z","annotations":{"polder/withdrawn":"x"}},"status":{"allocatable":{"resource.katalyst.kubewharf.io/reclaimed_millicpu":"1"}}}`,
		`{"metadata":{"name":"n","labels":{"app":"agent"},"namespace":"sys"},"spec":{"nodeName":"n"},"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		`{"metadata":{"name":"n"},"status":{"conditions":[{"type":"AgentReady","status":"False","lastTransitionTime":"9999-12-31T23:59:59Z","lastHeartbeatTime":"0000-01-01T00:00:00Z"}]}}`,
		`{"metadata":{"name":"\u0000"},"status":{"conditions":[3]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var o Object
		if json.Unmarshal(data, &o) != nil {
			return
		}
		fleet := Fleet{Interval: time.Second}
		seen := Seen{Nodes: []*Node{NodeOf(o)}, Pods: []*Pod{reading().Pod(o)}, Records: []*Record{RecordOf(o)}}
		for i := range 3 {
			for _, x := range fleet.Observe(noon.Add(time.Duration(i)*time.Minute), seen) {
				line, err := tick.Marshal(x)
				if err != nil {
					t.Fatal(err)
				}
				if err := ticktest.Validate(line); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				if since, err := time.Parse(time.RFC3339, x.Sample.Agent.Since); x.Sample.Agent.State != "" && (err != nil || since.After(x.Time)) {
					t.Fatalf("%s since %q at %s", x.Sample.Agent.State, x.Sample.Agent.Since, x.Time)
				}
			}
		}
	})
}
