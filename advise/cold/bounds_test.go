package cold

import (
	"testing"
	"time"

	"polder/lib/tick"
)

// The last reading counts only without a gap, without a clock that was set back, and if its counters are valid.
func TestWhatWasReadBeforeGoesOn(t *testing.T) {
	now := begin0
	for name, tt := range map[string]struct {
		p    pod
		want bool
	}{
		"now":                         {pod{At: now, Seen: now}, true},
		"seen in the future":          {pod{At: now, Seen: now.Add(1)}, false},
		"after the longest gap":       {pod{At: now.Add(-longest), Seen: now.Add(-longest)}, true},
		"after a longer one":          {pod{At: now.Add(-longest), Seen: now.Add(-longest - 1)}, false},
		"a step begun in the future":  {pod{At: now.Add(1), Seen: now}, false},
		"a step of twice the gap":     {pod{At: now.Add(-2 * longest), Seen: now}, true},
		"a step that is longer":       {pod{At: now.Add(-2*longest - 1), Seen: now}, false},
		"waited less than nothing":    {pod{At: now, Seen: now, StallMicroseconds: -1}, false},
		"needed again less than that": {pod{At: now, Seen: now, RefaultBytes: -1}, false},
	} {
		if got := tt.p.goesOn(now); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A pod whose state starts again keeps the hold-down of its last mistake, within bounds; another pod of that cgroup does not.
func TestAnEarlierMistakeStaysKnown(t *testing.T) {
	now := begin0
	for name, tt := range map[string]struct {
		before      *pod
		hold, until time.Duration
	}{
		"none":                   {nil, 0, 0},
		"no mistake":             {&pod{UID: "u", Until: now.Add(time.Minute)}, 0, 0},
		"of another pod":         {&pod{UID: "v", Hold: time.Minute, Until: now.Add(time.Minute)}, 0, 0},
		"a mistake":              {&pod{UID: "u", Hold: 4 * time.Minute, Until: now.Add(3 * time.Minute)}, 4 * time.Minute, 3 * time.Minute},
		"until the hold at most": {&pod{UID: "u", Hold: 4 * time.Minute, Until: now.Add(time.Hour)}, 4 * time.Minute, 4 * time.Minute},
		"too short a hold":       {&pod{UID: "u", Hold: time.Second, Until: now.Add(time.Second)}, firstHold, time.Second},
		"too long a one":         {&pod{UID: "u", Hold: time.Hour, Until: now.Add(time.Hour)}, mostHold, mostHold},
	} {
		p := begin(now, &reading{uid: "u", stall: 5}, tt.before)
		until := time.Duration(0)
		if !p.Until.IsZero() {
			until = p.Until.Sub(now)
		}
		if p.Hold != tt.hold || until != tt.until || p.StallMicroseconds != 5 || !p.At.Equal(now) {
			t.Errorf("%s: left alone for %s of %s; want %s of %s", name, until, p.Hold, tt.until, tt.hold)
		}
	}
}

// A step takes at most twice the usual part, the excess over the least, the rest of the tick's budget, and the most.
func TestWhatAStepTakes(t *testing.T) {
	const mib = mebibyte
	for name, tt := range map[string]struct {
		use, waited, taken float64
		asked              int64 // before, in this tick
		want               int64
	}{
		"all of it":                   {10 * gib, 0, 100 * mib, 0, 100 * mib},
		"half, for it waits":          {10 * gib, stallTarget / 2, 100 * mib, 0, 50 * mib},
		"nothing, for it waits":       {10 * gib, stallTarget, 100 * mib, 0, 0},
		"nor where it waits more":     {10 * gib, 5 * stallTarget, 100 * mib, 0, 0},
		"after a long time":           {gib, 0, gib, 0, 2 * gib / 100 / 4096 * 4096},
		"the most":                    {100 * gib, 0, gib, 0, mostStep},
		"what is over the least":      {leastUse + 10*mib, 0, 100 * mib, 0, (leastUse + 10*mib) * 2 / 100 / 4096 * 4096},
		"a little over the least":     {leastUse + mib, 0, 100 * mib, 0, mib},
		"too little over the least":   {leastUse + leastStep - 1, 0, 100 * mib, 0, 0},
		"just enough over the least":  {leastUse + leastStep, 0, 100 * mib, 0, leastStep},
		"what is left of the tick's":  {100 * gib, 0, gib, mostTick - 10*mib, 10 * mib},
		"nothing is left of the same": {100 * gib, 0, gib, mostTick, 0},
	} {
		s := step{bytes: tt.asked}
		s.ask(&reading{path: "/a", use: tt.use}, tt.waited, tt.taken)
		got := int64(0)
		if len(s.list) > 0 {
			got = s.list[0].Bytes
		}
		if got != tt.want || s.bytes != tt.asked+tt.want || (s.warm == 1) != (tt.want == 0) {
			t.Errorf("%s: %d bytes, %d in the tick; want %d", name, got, s.bytes, tt.want)
		}
	}
}

// A tick of a fleet, or of an agent that was away, requests nothing.
func TestATickOfAnotherKindAsksForNothing(t *testing.T) {
	for name, change := range map[string]func(*tick.Sample){
		"fleet": func(s *tick.Sample) { s.Fleet = new(tick.Fleet) }, "agent": func(s *tick.Sample) { s.Agent = new(tick.Agent) },
	} {
		r := plain(t)
		change(&r.sample)
		if r.after(1, 0, 0); len(r.advice.Reasons) > 0 || r.st != nil {
			t.Errorf("%s: %q", name, r.advice.Reasons)
		}
	}
}

// Of several pods in a hold-down the reason names the one whose hold-down ends first.
func TestTheFirstPodThatIsLeftAloneIsNamed(t *testing.T) {
	s, now := step{waiting: 3}, begin0
	pods := map[string]*pod{"/a": {Until: now.Add(9 * time.Second)}, "/b": {Until: now.Add(5 * time.Second)}, "/c": {Until: now.Add(7 * time.Second)}, "/d": {}}
	if got := s.reasons(now, pods)[0]; got != "cold memory: nothing to take back now; 3 pods left alone, the first for 5s more" {
		t.Errorf("%q", got)
	}
}

// Two pods that claim one cgroup are both counted as unknown; pods beyond the bound of the state are counted, too.
func TestPodsThatAreNotReadAreCounted(t *testing.T) {
	var into step
	s := &tick.Sample{}
	for range 3 {
		s.Pods = append(s.Pods, podOf("twin", tick.QoSReclaimed, "/twin", gib))
	}
	s.Pods = append(s.Pods, podOf("small", tick.QoSReclaimed, "/small", leastUse-1), podOf("least", tick.QoSReclaimed, "/least", leastUse))
	if list := readings(s, &into); len(list) != 1 || list[0].path != "/least" || into.unknown != 3 || into.more != 0 {
		t.Errorf("%+v, %d not known, %d more", list, into.unknown, into.more)
	}
	into = step{}
	s.Pods = nil
	for i := range maxPods + 2 {
		s.Pods = append(s.Pods, podOf("p", tick.QoSReclaimed, "/"+string(rune('A'+i)), gib))
	}
	if list := readings(s, &into); len(list) != maxPods || into.more != 2 {
		t.Errorf("%d are read, %d more", len(list), into.more)
	}
}
