package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

func TestNodesAreForgotten(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var n Nodes
	n.Add("old", noon)
	n.Add("ahead", noon.Add(24*time.Hour)) // its clock is a day ahead
	for at := time.Duration(0); at <= forgetAfter; at += time.Minute {
		n.Add("new", noon.Add(at))
	}
	if !n.Has("old") || n.Others("new") != 2 {
		t.Errorf("a node was forgotten before its time: %v", n.seen)
	}
	n.Add("ahead", noon.Add(24*time.Hour+forgetAfter))
	n.Add("new", noon.Add(forgetAfter+time.Minute))
	if n.Has("old") || n.Others("new") != 1 || n.Others("old") != 2 {
		t.Errorf("a silent node is still counted, or another one is not: %v", n.seen)
	}
}

// A clock that is set, once forward and once back, makes no other node silent, and time goes on by each of the two clocks.
func TestNodesOfAClockThatIsSet(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, step := range []time.Duration{25 * time.Hour, -25 * time.Hour} {
		var n Nodes
		n.Add("silent", noon)
		n.Add("right", noon)
		n.Add("set", noon)
		for at := time.Minute; at <= forgetAfter; at += time.Minute {
			n.Add("set", noon.Add(at+step))
			if !n.Has("silent") || !n.Has("right") {
				t.Fatalf("a clock that was set by %s: after %s a node was forgotten", step, at)
			}
			n.Add("right", noon.Add(at))
		}
		n.Add("right", noon.Add(forgetAfter+time.Minute))
		n.Add("set", noon.Add(forgetAfter+2*time.Minute+step))
		if n.Has("silent") || !n.Has("right") || !n.Has("set") {
			t.Errorf("a clock that was set by %s: %v are left", step, n.seen)
		}
	}
}

func TestNodesAreBounded(t *testing.T) {
	var n Nodes
	for i := range 2 * maxNodes {
		n.Add(fmt.Sprint(i), time.Unix(1e9, 0))
	}
	if len(n.seen) != maxNodes {
		t.Errorf("%d nodes are remembered", len(n.seen))
	}
}

// A node whose clock is ahead does not end the counters of others.
func TestMetricsOfAClockThatIsAhead(t *testing.T) {
	var m Metrics
	at := time.Unix(1e9, 0)
	for i := range 3 {
		for _, x := range []tick.Tick{{Node: "n", Time: at}, {Node: "ahead", Time: at.Add(24 * time.Hour)}} {
			x.Time = x.Time.Add(time.Duration(i) * time.Minute)
			m.Add(&x)
		}
	}
	page, _ := m.Page()
	for _, want := range []string{`polder_ticks_total{node="n",tool="report"} 3`, `polder_ticks_total{node="ahead",tool="report"} 3`} {
		if !strings.Contains(page, want) {
			t.Errorf("want %s in:\n%s", want, page)
		}
	}
}
