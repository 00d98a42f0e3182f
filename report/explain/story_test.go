package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

// A story has squeezes, evictions and states with their times, each once, and does not grow with the ticks.
func TestStory(t *testing.T) {
	s := NewStory()
	start := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	for i := range 600 {
		need := 1000.0
		if i >= 300 {
			need = 6000
		}
		x := &tick.Tick{
			V: 1, Node: "n", Time: start.Add(time.Duration(i) * time.Second),
			Sample: &tick.Sample{Topology: &tick.Topology{CPUs: "0-9"}, Pods: []tick.Pod{{UID: "s", Namespace: "shop", Name: "web", QoS: tick.QoSShared, UsageMilliCPU: &need}}},
			Advice: &tick.Advice{Policy: "koordinator", Reclaimed: &tick.Reclaimed{MilliCPU: new(int64(9000 - need))}},
		}
		switch {
		case 100 <= i && i < 110:
			x.Sample.Errors = []tick.SourceError{{Source: "psi", Error: fmt.Sprintf("read %d", i)}}
		case 400 <= i && i < 420:
			x.Advice.Reclaimed, x.Advice.Withdrawn = nil, "the node's use is unknown"
		case 500 <= i && i < 510:
			x.Eviction = &tick.Eviction{Evictions: []tick.PodEviction{{UID: "b", Namespace: "spark", Name: "etl", Rule: "r", Message: "too much", State: tick.StateSucceeded}}}
		}
		s.Add(x)
	}
	all, more := s.Events()
	var got []string
	for _, e := range all {
		got = append(got, fmt.Sprintf("%s %s %s %s", e.From.Format("04:05"), e.To.Format("04:05"), e.Kind, e.Text))
	}
	want := []string{
		"01:40 01:49 failure collect could not read psi: read 100.",
		"04:59 05:00 squeeze From 08:04:59 to 08:05:00 the offer fell from 8.00 to 3.00 cores: shop/web needed 6.00 cores instead of 1.00 core.",
		"06:40 06:59 no offer Nothing was offered: it was withdrawn: the node's use is unknown.",
		"08:20 08:29 eviction spark/etl was evicted from 08:08:20 to 08:08:29 by r: too much.",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || more != 0 {
		t.Errorf("%d more; events:\n%s\nwant:\n%s", more, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if again, _ := s.Events(); len(again) != len(all) || s.Squeezes() != 1 || s.Evictions()[tick.StateSucceeded] != 1 {
		t.Errorf("asked again: %d events, %d squeezes, evictions %v", len(again), s.Squeezes(), s.Evictions())
	}
}

// What no story has room for counts once, however many ticks have it, and by its last state.
func TestEvictionsBeyondThoseKept(t *testing.T) {
	s := NewStory()
	evictions := func(first, count int, state string) *tick.Eviction {
		e := &tick.Eviction{}
		for i := range count {
			e.Evictions = append(e.Evictions, tick.PodEviction{UID: fmt.Sprint(first + i), Rule: "r", State: state})
		}
		return e
	}
	at := time.Unix(0, 0)
	for i, e := range []*tick.Eviction{
		evictions(0, keptEvictions, tick.StateSucceeded), evictions(1000, 50, tick.StateRequested),
		{Refused: "late"},
		evictions(1000, 50, tick.StateRequested), evictions(1000, 50, tick.StateSucceeded), evictions(2000, 1, tick.StateFailed),
	} {
		s.Add(&tick.Tick{V: 1, Node: "n", Time: at.Add(time.Duration(i) * time.Second), Eviction: e})
	}
	states := s.Evictions()
	succeeded, failed, requested := states[tick.StateSucceeded], states[tick.StateFailed], states[tick.StateRequested]
	if _, more := s.Events(); succeeded != keptEvictions+50 || failed != 1 || requested != 0 || more != 51 {
		t.Errorf("%v, %d more; want %d succeeded, 1 failed, 51 more", states, more, keptEvictions+50)
	}
}

// What is forgotten makes room for what comes later.
func TestStoryForgets(t *testing.T) {
	s := NewStory()
	add := func(second int, uid string) {
		s.Add(&tick.Tick{
			V: 1, Node: "n", Time: time.Unix(int64(second), 0),
			Sample:   &tick.Sample{Errors: []tick.SourceError{{Source: "s" + uid, Error: "e"}}},
			Eviction: &tick.Eviction{Evictions: []tick.PodEviction{{UID: uid, Name: uid, Rule: "r", State: tick.StateSucceeded}}},
		})
	}
	letters := func(i int) string { return strings.Repeat("x", i) }
	for i := range 2 * keptEvictions {
		add(i, letters(i+1))
	}
	s.Forget(time.Unix(3*keptEvictions, 0))
	if all, more := s.Events(); len(all) != 0 || more != 0 {
		t.Fatalf("%d events, %d more; want none", len(all), more)
	}
	add(4*keptEvictions, "new")
	s.Forget(time.Unix(3*keptEvictions, 0))
	add(4*keptEvictions+1, "new")
	all, more := s.Events()
	if len(all) != 2 || more != 0 || all[0].To.Sub(all[0].From) != time.Second || all[1].To.Sub(all[1].From) != time.Second {
		t.Errorf("%d more; events %+v; want an eviction and a failure that go on", more, all)
	}
}

func TestStoryIsBounded(t *testing.T) {
	s := NewStory()
	for i := range 5000 {
		s.Add(&tick.Tick{V: 1, Node: "n", Time: time.Unix(int64(i), 0), Sample: &tick.Sample{
			Errors: []tick.SourceError{{Source: strings.Repeat("x", i%50), Error: strings.Repeat("y", i)}},
		}})
	}
	if all, more := s.Events(); len(all) != storyOthers || more == 0 || len(s.open) > storyOthers {
		t.Errorf("%d events, %d more, %d go on", len(all), more, len(s.open))
	}
}
