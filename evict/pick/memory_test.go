package pick

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/evict/rule"
	"polder/lib/tick"
)

func TestHour(t *testing.T) {
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	var h Hour
	h.Add("a", "x", at(0))
	h.Add("b", "y", at(30))
	h.Add("a", "x", at(31))
	check := func(what string, all, x int) {
		t.Helper()
		if len(h) != all || h.In("x") != x {
			t.Errorf("%s: %d evictions, %d in namespace x; want %d and %d", what, len(h), h.In("x"), all, x)
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
	h.Refund("b")
	h.Refund("a")
	check("one refunded", 1, 1)
	if !h[0].At.Equal(at(0)) {
		t.Errorf("what is left is of %s; want the first", h[0].At)
	}
}

func TestSteady(t *testing.T) {
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
		var s Steady
		for _, second := range tt.samples {
			s.Observe(at(second), tt.interval)
		}
		if !s.Start.Equal(at(tt.start)) {
			t.Errorf("%s: steady since %s; want %s", tt.name, s.Start, at(tt.start))
		}
	}
}

// asks is a memory in which a's end was requested for r and q, and b's for r at the same tick.
func asks() *Memory {
	m := remembers(nil, nil, nil)
	m.Take(Victim{Pod: pod("a"), Cooldowns: []string{"r", "q"}, Eviction: tick.PodEviction{UID: "uid-a"}}, now)
	m.Take(Victim{Pod: pod("b"), Cooldowns: []string{"r"}, Eviction: tick.PodEviction{UID: "uid-b"}}, now)
	return m
}

// A refusal changes nothing: no cooldown begins, and nothing is counted.
func TestRefuse(t *testing.T) {
	rests := func(m *Memory, rule string) bool { return m.CooldownLeft(rule, now, time.Minute) > 0 }
	m := asks()
	m.Refuse("uid-a", "a budget", now.Add(time.Second), 30*time.Second)
	if !rests(m, "r") || rests(m, "q") {
		t.Errorf("r rests %t, q %t; want r alone, for it has another pod on its way", rests(m, "r"), rests(m, "q"))
	}
	if m.Hour.Has("uid-a") || !m.Hour.Has("uid-b") || !m.InProgress.Spared("uid-a") || !m.InProgress.Has("uid-b") {
		t.Errorf("hour %v, going %v; want a spared and not counted", m.Hour, m.InProgress)
	}
	m.Refuse("uid-b", "a budget", now.Add(time.Second), 30*time.Second)
	if rests(m, "r") || len(m.Hour) != 0 {
		t.Errorf("after both refusals r rests %t, hour %v", rests(m, "r"), m.Hour)
	}
	m.Refuse("uid-z", "nobody", now, 0)

	m = asks()
	m.Take(Victim{Pod: pod("c"), Cooldowns: []string{"q"}}, now.Add(time.Hour))
	m.Refuse("uid-a", "a budget", now.Add(time.Hour), 0)
	if !rests(m, "q") {
		t.Error("a late refusal ended a later eviction's rest")
	}
}

// A pod whose request has no known answer is asked again before all others, also in its rule's cooldown.
func TestNoAnswer(t *testing.T) {
	a, b := candidate(pod("a"), 5), candidate(pod("b"), 9)
	f := []rule.Finding{finding("r", 20, 10, a, b)}
	m := remembers(nil, nil, nil)
	m.Take(Victim{Pod: a.Pod, Cooldowns: []string{"r s"}, Eviction: tick.PodEviction{UID: "uid-a"}}, now)
	m.InProgress.NoAnswer("uid-a", "no answer", now)
	if full := usual(1); !m.Counted("uid-a") {
		t.Error("not counted")
	} else if full.PerHour = 1; len(Choose(now, f, full, m).Victims) != 1 {
		t.Error("the hour is full of the very pod that is asked again")
	}
	if got := names(Choose(now, f, free(), m).Victims); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("victims %v; want a, and b to rest", got)
	}
	if got := names(Choose(now.Add(time.Hour), f, usual(1), m).Victims); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("victims without a rest %v; want a alone", got)
	}
	gone := []rule.Finding{finding("r", 15, 10, b)}
	if got := names(Choose(now, gone, free(), m).Victims); len(got) > 0 {
		t.Errorf("a has gone, and %v goes in the rest", got)
	}
	m.Take(Victim{Pod: a.Pod, Cooldowns: []string{"r s"}, Eviction: tick.PodEviction{UID: "uid-a"}}, now)
	if len(m.Hour) != 1 {
		t.Errorf("asked again: %d evictions; want one", len(m.Hour))
	}
	m.InProgress.NoAnswer("uid-a", "no answer", now)
	m.Observe(now.Add(time.Second), &tick.Sample{}, map[string]*tick.Pod{}, true)
	if m.InProgress.Unanswered("uid-a") {
		t.Error("a has gone, and is waited for")
	}
}

// Repeated failures of an API server for one pod do not protect the others: the failure may affect that pod alone.
func TestServerError(t *testing.T) {
	a, b := candidate(pod("a"), 9), candidate(pod("b"), 5)
	f := []rule.Finding{finding("r", 14, 10, a, b)}
	next := func(m *Memory) []string { return names(Choose(now, f, usual(1), m).Victims) }
	ask := func(m *Memory) {
		m.Take(Choose(now, f, usual(1), m).Victims[0], now)
	}
	m := remembers(nil, nil, nil)
	ask(m)
	m.ServerError("uid-a", "500", now)
	if d := cmp.Diff([]string{"a"}, next(m)); d != "" {
		t.Errorf("after one failure (-want +got):\n%s", d)
	}
	ask(m)
	m.InProgress.NoAnswer("uid-a", "no route", now) // a different failure
	ask(m)
	m.ServerError("uid-a", "500", now)
	ask(m)
	m.ServerError("uid-a", "500", now)
	if d := cmp.Diff([]string{"b"}, next(m)); d != "" {
		t.Errorf("after two failures in a row (-want +got):\n%s", d)
	}
	if len(m.Hour) != 0 || m.CooldownLeft(f[0].CooldownKey(), now, time.Hour) != 0 {
		t.Errorf("refused: hour %v, rest %v; want none", m.Hour, m.Cooldowns)
	}
	m.ServerError("uid-z", "nobody", now)
}

// The memory survives the state file, whatever else the file contains.
func TestMemoryJSON(t *testing.T) {
	m := asks()
	m.Queue = Queue{"uid-q": now}
	m.Steady.Observe(now, time.Second)
	m.InProgress.NoAnswer("uid-a", "no answer", now)
	data, err := tick.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	back := new(Memory)
	if err := tick.Unmarshal(data, back); err != nil {
		t.Fatal(err)
	}
	back.Init()
	if d := cmp.Diff(m, back); d != "" {
		t.Errorf("after a restart (-want +got):\n%s", d)
	}
	// This is the previous version's format.
	old := `{"cooldowns":{"r":{"last":"2026-11-21T12:00:00Z"}},"going":{"u":{"eviction":{"uid":"u","state":"created"},"requested":"2026-11-21T12:00:00Z"},"n":null}}`
	back = new(Memory)
	if err := json.Unmarshal([]byte(old), back); err != nil {
		t.Fatal(err)
	}
	back.Init()
	want := remembers(nil, nil, nil)
	want.Cooldowns["r"] = &Cooldown{Last: now}
	want.InProgress["u"] = &Ongoing{Eviction: tick.PodEviction{UID: "u", State: tick.StateCreated}, Requested: now}
	if d := cmp.Diff(want, back); d != "" {
		t.Errorf("an older state (-want +got):\n%s", d)
	}
}
