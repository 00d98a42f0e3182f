package cold

import (
	"slices"
	"testing"
	"time"

	"polder/lib/tick"
)

// The last reading counts only without a gap, without a clock that was set back, and if its counters are valid.
func TestContinuousReadings(t *testing.T) {
	now := beginning
	for name, tt := range map[string]struct {
		p    pod
		want bool
	}{
		"now":                         {pod{StepAt: now, SeenAt: now}, true},
		"seen in the future":          {pod{StepAt: now, SeenAt: now.Add(1)}, false},
		"after the longest gap":       {pod{StepAt: now.Add(-maxGap), SeenAt: now.Add(-maxGap)}, true},
		"after a longer one":          {pod{StepAt: now.Add(-maxGap), SeenAt: now.Add(-maxGap - 1)}, false},
		"a step begun in the future":  {pod{StepAt: now.Add(1), SeenAt: now}, false},
		"a step that waited long":     {pod{StepAt: now.Add(-maxStepAge), SeenAt: now}, true},
		"a step that is longer":       {pod{StepAt: now.Add(-maxStepAge - 1), SeenAt: now}, false},
		"waited less than nothing":    {pod{StepAt: now, SeenAt: now, StallMicroseconds: -1}, false},
		"needed again less than that": {pod{StepAt: now, SeenAt: now, RefaultBytes: -1}, false},
	} {
		if got := tt.p.isContinuous(now); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A pod whose state starts again keeps the hold-down of its last mistake, within bounds; another pod of that cgroup does not.
func TestAnEarlierMistakeStaysKnown(t *testing.T) {
	now := beginning
	for name, tt := range map[string]struct {
		before      *pod
		hold, until time.Duration
	}{
		"none":                   {nil, 0, 0},
		"no mistake":             {&pod{UID: "u", HoldUntil: now.Add(time.Minute)}, 0, 0},
		"of another pod":         {&pod{UID: "v", Hold: time.Minute, HoldUntil: now.Add(time.Minute)}, 0, 0},
		"a mistake":              {&pod{UID: "u", Hold: 4 * time.Minute, HoldUntil: now.Add(3 * time.Minute)}, 4 * time.Minute, 3 * time.Minute},
		"until the hold at most": {&pod{UID: "u", Hold: 4 * time.Minute, HoldUntil: now.Add(time.Hour)}, 4 * time.Minute, 4 * time.Minute},
		"too short a hold":       {&pod{UID: "u", Hold: time.Second, HoldUntil: now.Add(time.Second)}, firstHold, time.Second},
		"too long a one":         {&pod{UID: "u", Hold: time.Hour, HoldUntil: now.Add(time.Hour)}, maxHold, maxHold},
	} {
		p := newPod(now, &reading{uid: "u", stall: 5}, tt.before)
		until := time.Duration(0)
		if !p.HoldUntil.IsZero() {
			until = p.HoldUntil.Sub(now)
		}
		if p.Hold != tt.hold || until != tt.until || p.StallMicroseconds != 5 || !p.StepAt.Equal(now) {
			t.Errorf("%s: hold-down for %s of %s; want %s of %s", name, until, p.Hold, tt.until, tt.hold)
		}
	}
}

// A step takes at most twice the usual part, the excess over the least, and the most. One that does not fit into the tick waits.
func TestSizeOfAStep(t *testing.T) {
	const mib = mebibyte
	for name, tt := range map[string]struct {
		use, waited, taken float64
		want               int64
	}{
		"all of it":                  {10 * gib, 0, 100 * mib, 100 * mib},
		"half, for it waits":         {10 * gib, stallTarget / 2, 100 * mib, 50 * mib},
		"nothing, for it waits":      {10 * gib, stallTarget, 100 * mib, 0},
		"nor where it waits more":    {10 * gib, 5 * stallTarget, 100 * mib, 0},
		"after a long time":          {gib, 0, gib, 2 * gib / 100 / 4096 * 4096},
		"the most":                   {100 * gib, 0, gib, maxStep},
		"what is over the least":     {minUse + 10*mib, 0, 100 * mib, (minUse + 10*mib) * 2 / 100 / 4096 * 4096},
		"a little over the least":    {minUse + mib, 0, 100 * mib, mib},
		"too little over the least":  {minUse + minStep - 1, 0, 100 * mib, 0},
		"just enough over the least": {minUse + minStep, 0, 100 * mib, minStep},
	} {
		if got := nextBytes(&reading{path: "/a", use: tt.use}, tt.waited, tt.taken); got != tt.want {
			t.Errorf("%s: %d bytes; want %d", name, got, tt.want)
		}
	}
	for _, tt := range []struct {
		before, use float64
		want        step
	}{
		{maxPerTick - 256*mib, 100 * gib, step{bytes: maxPerTick, requests: []tick.CgroupReclaim{{Cgroup: "/a", Bytes: maxStep}}}},
		{maxPerTick - 256*mib + 1, 100 * gib, step{bytes: maxPerTick - 256*mib + 1, waiting: 1}},
		{maxPerTick, minUse, step{bytes: maxPerTick, inUse: 1}},
	} {
		s, p := step{bytes: int64(tt.before)}, &pod{StepAt: beginning, SeenAt: beginning}
		s.evaluate(beginning.Add(stepInterval), &reading{path: "/a", use: tt.use}, p)
		isEqual := s.bytes == tt.want.bytes && s.waiting == tt.want.waiting && s.inUse == tt.want.inUse
		if !isEqual || !slices.Equal(s.requests, tt.want.requests) {
			t.Errorf("%v bytes before, of %v: %+v; want %+v", tt.before, tt.use, s, tt.want)
		}
		if isOver := !p.StepAt.Equal(beginning); isOver == (s.waiting > 0) {
			t.Errorf("%v bytes before, of %v: the last step began at %s", tt.before, tt.use, p.StepAt)
		}
	}
}

// A tick of a fleet, or of an agent that was away, requests nothing.
func TestNoRequestForFleetTicks(t *testing.T) {
	for name, change := range map[string]func(*tick.Sample){
		"fleet": func(s *tick.Sample) { s.Fleet = new(tick.Fleet) }, "agent": func(s *tick.Sample) { s.Agent = new(tick.Agent) },
	} {
		r := newRun(t)
		change(&r.sample)
		if r.tickAfter(1, 0, 0); len(r.advice.Reasons) > 0 || r.st != nil {
			t.Errorf("%s: %q", name, r.advice.Reasons)
		}
	}
}

// Of several pods in a hold-down the reason names the one whose hold-down ends first.
func TestReasonNamesTheFirstEndOfAHoldDown(t *testing.T) {
	s, now := step{onHold: 3}, beginning
	pods := map[string]*pod{"/a": {HoldUntil: now.Add(9 * time.Second)}, "/b": {HoldUntil: now.Add(5 * time.Second)}, "/c": {HoldUntil: now.Add(7 * time.Second)}, "/d": {}}
	if got := s.reasons(now, pods)[0]; got != "cold memory: nothing to reclaim now; 3 pods in hold-down, the first for 5s more" {
		t.Errorf("%q", got)
	}
}

// Two pods that claim one cgroup are both counted as unknown; pods beyond the bound of the state are counted, too.
func TestUnknownPodsAreCounted(t *testing.T) {
	var into step
	s := &tick.Sample{}
	for range 3 {
		s.Pods = append(s.Pods, podOf("twin", tick.QoSReclaimed, "/twin", gib))
	}
	s.Pods = append(s.Pods, podOf("small", tick.QoSReclaimed, "/small", minUse-1), podOf("least", tick.QoSReclaimed, "/least", minUse))
	if list := readings(s, &into); len(list) != 1 || list[0].path != "/least" || into.unknown != 3 || into.excess != 0 {
		t.Errorf("%+v, %d unknown, %d more", list, into.unknown, into.excess)
	}
	// Also if something of one of them is unknown, whichever comes first.
	unknown := podOf("twin", tick.QoSReclaimed, "/twin", gib)
	unknown.Memory.RefaultBytesPerSecond = nil
	for range 2 {
		into = step{}
		s.Pods = []tick.Pod{podOf("twin", tick.QoSReclaimed, "/twin", gib), unknown}
		if list := readings(s, &into); len(list) != 0 || into.unknown != 2 {
			t.Errorf("one of two is unknown: %+v, %d unknown", list, into.unknown)
		}
		slices.Reverse(s.Pods)
	}
	into = step{}
	s.Pods = nil
	for i := range maxPods + 2 {
		s.Pods = append(s.Pods, podOf("p", tick.QoSReclaimed, "/"+string(rune('A'+i)), gib))
	}
	if list := readings(s, &into); len(list) != maxPods || into.excess != 2 {
		t.Errorf("%d are read, %d more", len(list), into.excess)
	}
}
