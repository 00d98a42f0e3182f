package guard

import (
	"testing"
	"time"

	"polder/lib/tick"
)

// Batch is found not to be the cause if all steps have been in force for judgeAfter, and the service waits on average for more than three
// quarters of its waiting beside batch without limits.
func TestWhenBatchIsNotTheCause(t *testing.T) {
	for name, tt := range map[string]struct {
		exhausted time.Duration // for how long no step has been left; 0 if one is
		floor     *atFloor
		want      bool
	}{
		"the same":                {judgeAfter, &atFloor{Waiting: mean{300, 3}, Beside: mean{300, 3}}, true},
		"three quarters are left": {judgeAfter, &atFloor{Waiting: mean{225, 3}, Beside: mean{300, 3}}, false},
		"a little more":           {judgeAfter, &atFloor{Waiting: mean{225.1, 3}, Beside: mean{300, 3}}, true},
		"sooner":                  {judgeAfter - 1, &atFloor{Waiting: mean{300, 3}, Beside: mean{300, 3}}, false},
		"a step is left":          {0, &atFloor{Waiting: mean{300, 3}, Beside: mean{300, 3}}, false},
		"two ticks":               {judgeAfter, &atFloor{Waiting: mean{200, 2}, Beside: mean{200, 2}}, false},
		"nothing to compare with": {judgeAfter, nil, false},
	} {
		st := &State{Floor: tt.floor}
		if tt.exhausted > 0 {
			st.ExhaustedSince = begin.Add(-tt.exhausted)
		}
		if got := st.isNotCause(begin); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What is compared: waitings beside batch without limits by the level of the service's use, and those of the one service and resource that
// caused all steps while all of them are in force.
func TestWhatIsCompared(t *testing.T) {
	one := waiting{pod: &tick.Pod{Name: "web", UID: "web"}, resource: resourceCPU, level: 2, permille: 40}
	other, disk, busier := one, one, one
	other.pod, disk.resource, busier.level = &tick.Pod{Name: "other", UID: "other"}, resourceIO, 3
	cause, another := step{Service: "web", Resource: resourceCPU}, step{Service: "other", Resource: resourceCPU}
	var history *service
	st := &State{}
	for range 3 {
		history = st.observe(&one, history, begin)
	}
	if value, known := valueIn(history.Beside[0], 2); !known || value != 40 {
		t.Errorf("beside batch it waits %v, %t; want 40", value, known)
	}
	for name, tt := range map[string]struct {
		change  func(st *State)
		w       *waiting
		history *service
		want    bool
	}{
		"at the floor":                  {func(*State) {}, &one, history, true},
		"another service":               {func(*State) {}, &other, history, false},
		"another resource":              {func(*State) {}, &disk, history, false},
		"a level without a mean":        {func(*State) {}, &busier, history, false},
		"no history":                    {func(*State) {}, &one, nil, false},
		"two causes":                    {func(st *State) { st.Steps = []step{another, cause} }, &one, history, false},
		"the last step is not yet felt": {func(st *State) { st.ExhaustedSince = begin.Add(1 - takeAfter) }, &one, history, false},
		"a step is left":                {func(st *State) { st.ExhaustedSince = time.Time{} }, &one, history, false},
	} {
		st := &State{Steps: []step{cause, cause}, ExhaustedSince: begin.Add(-takeAfter)}
		tt.change(st)
		if st.observe(tt.w, tt.history, begin); (st.Floor != nil) != tt.want {
			t.Errorf("%s: compares %+v", name, st.Floor)
		}
	}
	st = &State{ChangedAt: begin.Add(1 - takeAfter)}
	if st.observe(&one, nil, begin) != nil {
		t.Error("a waiting just after the steps' end counts as one beside batch without limits")
	}
}

// A mean follows the last observations.
func TestMean(t *testing.T) {
	var m mean
	for range 10 * maxObservations {
		m.add(100)
	}
	for range maxObservations {
		m.add(200)
	}
	if value := m.Sum / m.Count; m.Count != maxObservations || value < 160 || value > 165 {
		t.Errorf("%v of %v observations", value, m.Count)
	}
}

// A tick without the service's use, as that of a container's start, has no verdict: what the service would learn from it has no level.
func TestNoVerdictWithoutTheServicesUse(t *testing.T) {
	unknown := web(300, 0)
	unknown.UsageMilliCPU = nil
	for before := range 120 {
		r := &fixture{}
		r.times(60, web(0, 1000), job("job", 0)) // alone
		a := r.times(before, web(300, 1000), job("job", 6000))
		if before > 0 && hasReason(a, "batch is not the cause") {
			return
		}
		if a = r.tick(unknown, job("job", 6000)); hasReason(a, "batch is not the cause") {
			t.Fatalf("after %d ticks, a verdict without the service's use: %q", before, a.Reasons)
		}
	}
	t.Error("no verdict in two minutes")
}

// What the service waited in an earlier phase without a further step has no part in the verdict of a later one: another step may have been
// in force then, or another load. It ends with the revert of a step, and where the services' waiting is unknown for a tick.
func TestEachPhaseHasItsOwnVerdict(t *testing.T) {
	cause := step{Kind: kindCPUs, Service: "web", Resource: resourceCPU}
	for name, end := range map[string]func(*State, time.Time){
		"a step is reverted":     func(st *State, now time.Time) { st.revertLast(now, &tick.Advice{}, "calm") },
		"the waiting is unknown": func(st *State, _ time.Time) { st.endSpans() },
	} {
		st := &State{
			Steps: []step{cause, cause}, ExhaustedSince: begin.Add(-takeAfter), Hold: firstHold, ChangedAt: begin,
			Floor: &atFloor{Waiting: mean{300, 10}, Beside: mean{1000, 10}, Most: 90},
		}
		end(st, begin)
		v := &view{pods: 1, batchKnown: true, isKnown: true}
		st.decide(begin.Add(time.Second), &tick.Advice{}, v, nil, "") // the policy's own lists leave no further step either
		if st.ExhaustedSince.IsZero() || st.Floor != nil {
			t.Errorf("%s: in the phase since %v the earlier one counts: %+v", name, st.ExhaustedSince, st.Floor)
		}
	}
}
