package pick

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/evict/rule"
	"polder/lib/tick"
)

func TestLastHour(t *testing.T) {
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	var h LastHour
	h.Add("a", "x", at(0))
	h.Add("b", "y", at(30))
	h.Add("a", "x", at(31))
	check := func(what string, all, x int) {
		t.Helper()
		if len(h) != all || h.InNamespace("x") != x {
			t.Errorf("%s: %d evictions, %d in namespace x; want %d and %d", what, len(h), h.InNamespace("x"), all, x)
		}
	}
	check("added", 3, 2)
	h.Observe(at(60))
	check("an hour", 2, 1)
	h.Observe(at(90))
	check("an hour after the second", 1, 1)
	h.Observe(at(-1000)) // the clock was set back: an hour from there
	check("set back", 1, 1)
	h.Observe(at(-941))
	check("an hour from there, not quite", 1, 1)
	h.Observe(at(-940))
	check("an hour from there", 0, 0)
	h.Add("a", "x", at(0))
	h.Add("a", "x", at(1))
	h.RemoveLatest("b")
	h.RemoveLatest("a")
	check("one removed", 1, 1)
	if !h[0].At.Equal(at(0)) {
		t.Errorf("the remaining one is of %s; want the first", h[0].At)
	}
}

func TestContinuity(t *testing.T) {
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	for _, tt := range []struct {
		name     string
		interval time.Duration
		samples  []int
		start    int
	}{
		{"one", 0, []int{0}, 0},
		{"every second", time.Second, []int{0, 1, 2, 3}, 0},
		{"a little more than a minute without", time.Second, []int{0, 90}, 0},
		{"more than that", time.Second, []int{0, 91}, 91},
		{"a sample a minute", time.Minute, []int{0, 60, 120, 300}, 0},
		{"four minutes without", time.Minute, []int{0, 181}, 181},
		{"a clock set back", time.Second, []int{0, 10, 5}, 0},
		{"a clock set back behind the beginning", time.Second, []int{0, 10, -5}, -5},
	} {
		var s Continuity
		for _, second := range tt.samples {
			s.Observe(at(second), tt.interval)
		}
		if !s.Start.Equal(at(tt.start)) {
			t.Errorf("%s: continuous since %s; want %s", tt.name, s.Start, at(tt.start))
		}
	}
}

// twoRequests is a state in which a's end was requested for r and q, and b's for r at the same tick.
func twoRequests() *State {
	m := stateWith(nil, nil, nil)
	m.RecordRequest(Victim{Pod: pod("a"), Cooldowns: []string{"r", "q"}, Eviction: tick.PodEviction{UID: "uid-a"}}, now)
	m.RecordRequest(Victim{Pod: pod("b"), Cooldowns: []string{"r"}, Eviction: tick.PodEviction{UID: "uid-b"}}, now)
	return m
}

// A refusal changes nothing: no cooldown begins, and nothing is counted.
func TestRefuse(t *testing.T) {
	inCooldown := func(m *State, rule string) bool { return m.CooldownLeft(rule, now, time.Minute) > 0 }
	m := twoRequests()
	m.Refuse("uid-a", "a budget", now.Add(time.Second), 30*time.Second)
	if !inCooldown(m, "r") || inCooldown(m, "q") {
		t.Errorf("r in cooldown %t, q %t; want only r, which has another eviction in progress", inCooldown(m, "r"), inCooldown(m, "q"))
	}
	if m.LastHour.Has("uid-a") || !m.LastHour.Has("uid-b") || !m.InProgress.FailedRecently("uid-a") || !m.InProgress.Has("uid-b") {
		t.Errorf("hour %v, in progress %v; want a excluded and not counted", m.LastHour, m.InProgress)
	}
	m.Refuse("uid-b", "a budget", now.Add(time.Second), 30*time.Second)
	if inCooldown(m, "r") || len(m.LastHour) != 0 {
		t.Errorf("after both refusals r in cooldown %t, hour %v", inCooldown(m, "r"), m.LastHour)
	}
	m.Refuse("uid-z", "nobody", now, 0)

	m = twoRequests()
	m.RecordRequest(Victim{Pod: pod("c"), Cooldowns: []string{"q"}}, now.Add(time.Hour))
	m.Refuse("uid-a", "a budget", now.Add(time.Hour), 0)
	if !inCooldown(m, "q") {
		t.Error("a late refusal ended a later eviction's cooldown")
	}
}

// The eviction of a pod whose request has no known answer is requested again before all others, also in its rule's cooldown.
func TestNoAnswer(t *testing.T) {
	a, b := candidate(pod("a"), 5), candidate(pod("b"), 9)
	f := []rule.Finding{finding("r", 20, 10, a, b)}
	m := stateWith(nil, nil, nil)
	m.RecordRequest(Victim{Pod: a.Pod, Cooldowns: []string{"r s"}, Eviction: tick.PodEviction{UID: "uid-a"}}, now)
	m.InProgress.NoAnswer("uid-a", "no answer", now)
	if full := defaultLimits(1); !m.IsCounted("uid-a") {
		t.Error("not counted")
	} else if full.PerHour = 1; len(Choose(now, f, full, m).Victims) != 1 {
		t.Error("the hour contains only the pod that is requested again")
	}
	if got := names(Choose(now, f, unlimited(), m).Victims); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("victims %v; want a, and b to wait for the cooldown", got)
	}
	if got := names(Choose(now.Add(time.Hour), f, defaultLimits(1), m).Victims); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("victims without a cooldown %v; want only a", got)
	}
	ended := []rule.Finding{finding("r", 15, 10, b)}
	if got := names(Choose(now, ended, unlimited(), m).Victims); len(got) > 0 {
		t.Errorf("a has ended, and %v is evicted in the cooldown", got)
	}
	m.RecordRequest(Victim{Pod: a.Pod, Cooldowns: []string{"r s"}, Eviction: tick.PodEviction{UID: "uid-a"}}, now)
	if len(m.LastHour) != 1 {
		t.Errorf("requested again: %d evictions; want one", len(m.LastHour))
	}
	m.InProgress.NoAnswer("uid-a", "no answer", now)
	m.Observe(now.Add(time.Second), &tick.Sample{}, Pods{map[string]*tick.Pod{}, true})
	if m.InProgress.Unanswered("uid-a") {
		t.Error("a has ended, and is still awaited")
	}
}

// Repeated failures of an API server for one pod do not protect the others: the failure may affect that pod alone.
func TestServerError(t *testing.T) {
	a, b := candidate(pod("a"), 9), candidate(pod("b"), 5)
	f := []rule.Finding{finding("r", 14, 10, a, b)}
	next := func(m *State) []string { return names(Choose(now, f, defaultLimits(1), m).Victims) }
	request := func(m *State) {
		m.RecordRequest(Choose(now, f, defaultLimits(1), m).Victims[0], now)
	}
	m := stateWith(nil, nil, nil)
	request(m)
	m.ServerError("uid-a", "500", now, time.Minute)
	if d := cmp.Diff([]string{"a"}, next(m)); d != "" {
		t.Errorf("after one failure (-want +got):\n%s", d)
	}
	request(m)
	m.InProgress.NoAnswer("uid-a", "no route", now) // a different failure
	request(m)
	m.ServerError("uid-a", "500", now, time.Minute)
	request(m)
	m.ServerError("uid-a", "500", now, time.Minute)
	if d := cmp.Diff([]string{"b"}, next(m)); d != "" {
		t.Errorf("after two failures in a row (-want +got):\n%s", d)
	}
	if len(m.LastHour) != 0 || m.CooldownLeft(f[0].CooldownKey(), now, time.Hour) != 0 {
		t.Errorf("refused: hour %v, cooldown %v; want none", m.LastHour, m.Cooldowns)
	}
	m.Observe(now.Add(time.Minute), &tick.Sample{}, Pods{map[string]*tick.Pod{"uid-a": a.Pod, "uid-b": b.Pod}, true})
	if d := cmp.Diff([]string{"a"}, next(m)); d != "" {
		t.Errorf("when the pod may be tried again (-want +got):\n%s", d)
	}
	m.ServerError("uid-z", "nobody", now, time.Minute)
}

// The memory survives the state file, whatever else the file contains.
func TestStateJSON(t *testing.T) {
	m := twoRequests()
	m.Queue = Queue{"uid-q": now}
	m.Continuity.Observe(now, time.Second)
	m.InProgress.NoAnswer("uid-a", "no answer", now)
	back := restart(t, m)
	if d := cmp.Diff(m, back); d != "" {
		t.Errorf("after a restart (-want +got):\n%s", d)
	}
	// This is the previous version's format.
	old := `{"cooldowns":{"r":{"last":"2026-11-21T12:00:00Z"}},"going":{"u":{"eviction":{"uid":"u","state":"created"},"requested":"2026-11-21T12:00:00Z"},"n":null}}`
	back = new(State)
	if err := json.Unmarshal([]byte(old), back); err != nil {
		t.Fatal(err)
	}
	back.Init()
	want := stateWith(nil, nil, nil)
	want.Cooldowns["r"] = &Cooldown{Last: now}
	want.InProgress["u"] = &Ongoing{Eviction: tick.PodEviction{UID: "u", State: tick.StateCreated}, RequestedAt: now}
	if d := cmp.Diff(want, back); d != "" {
		t.Errorf("an older state (-want +got):\n%s", d)
	}
}

// A state file may name a cooldown or an eviction without a value: it is dropped.
func TestInitDropsEntriesWithoutAValue(t *testing.T) {
	m := &State{
		Cooldowns:  map[string]*Cooldown{"none": nil, "one": {Last: now}},
		InProgress: InProgress{"none": nil, "one": {RequestedAt: now}},
	}
	m.Init()
	if len(m.Cooldowns) != 1 || len(m.InProgress) != 1 || m.Cooldowns["one"] == nil || m.InProgress["one"] == nil {
		t.Errorf("cooldowns %v, evictions %v; want those with a value", m.Cooldowns, m.InProgress)
	}
}
