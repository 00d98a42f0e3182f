package burst

import (
	"fmt"
	"math"
	"testing"
	"time"

	"polder/advise/koordinator/revert"
	"polder/lib/tick"
)

// A new bucket is less than half full, evenly distributed, and the same in every run.
func TestInitialLevel(t *testing.T) {
	const many = 10000
	sum, seen := 0.0, map[float64]bool{}
	for i := range many {
		v := initialLevel(fmt.Sprintf("uid-%d", i), "c")
		if v < 0 || v >= 0.5 {
			t.Fatalf("%v is not within 0 and a half", v)
		}
		if v != initialLevel(fmt.Sprintf("uid-%d", i), "c") {
			t.Fatal("not the same again")
		}
		sum += v
		seen[math.Floor(v*100)] = true
	}
	if mean := sum / many; mean < 0.24 || mean > 0.26 || len(seen) != 50 {
		t.Errorf("mean %v, %d of 50 parts; want an even spread", mean, len(seen))
	}
	if initialLevel("a", "bc") == initialLevel("ab", "c") {
		t.Error("uid and name run into each other")
	}
}

// A token is one percent of the limit for one second.
func TestTokens(t *testing.T) {
	p := pod(1000)
	p.UID = "x"
	c := &p.Containers[0]
	for _, step := range []struct {
		name    string
		tokens  float64 // before
		used    *float64
		seconds float64
		want    float64 // after; the capacity is 2000
	}{
		{"over the limit spends", 500, f(2000), 1, 400},
		{"for as long as it lasts", 500, f(1500), 4, 300},
		{"at the limit costs nothing", 500, f(1000), 9, 500},
		{"between nothing is saved", 500, f(600), 9, 500},
		{"under 60 % saves", 500, f(590), 1, 541},
		{"nothing used", 500, f(0), 2, 700},
		{"use that is unknown is the limit", 500, nil, 5, 500},
		{"no number", 500, new(math.NaN()), 5, 500},
		{"less than nothing", 500, new(-1e9), 2, 700},
		{"no more than it applies", 1950, f(0), 10, 2000},
		{"no more debt than it applies", -1900, new(1e9), 10, -2000},
		{"no time", 500, f(0), 0, 500},
		{"back in time", 500, f(0), -5, 500},
	} {
		state := &State{Buckets: map[string]*bucket{c.Cgroup: {Tokens: step.tokens, At: start, Seconds: 10}}}
		r := round{state: state, now: start.Add(time.Duration(step.seconds * float64(time.Second)))}
		c.UsageMilliCPU = step.used
		allowed := r.mayExceedLimit(&p, c, config{quotaPercent: 300, periodSeconds: 10}, 1000)
		if got := r.state.Buckets[c.Cgroup].Tokens; math.Abs(got-step.want) > 1e-6 || allowed != (step.want > 0) {
			t.Errorf("%s: %v tokens, allowed %v; want %v", step.name, got, allowed, step.want)
		}
	}
	// A long absence creates a new one; other settings do not, because the pod's annotation may change them at any time.
	for name, tt := range map[string]struct {
		change func(*bucket, *config)
		isNew  bool
	}{
		"period":  {func(_ *bucket, c *config) { c.periodSeconds = 20 }, false},
		"percent": {func(_ *bucket, c *config) { c.quotaPercent = 200 }, false},
		"absence": {func(b *bucket, _ *config) { b.At = start.Add(-revert.Duration - 1) }, true},
		"absence of two periods, which are shorter": {func(b *bucket, _ *config) { b.At = start.Add(-20*time.Second - 1) }, false},
		"absence of two periods, which are longer": {func(b *bucket, _ *config) {
			b.Seconds, b.At = 400, start.Add(-800*time.Second-1)
		}, true},
		"absence of less than two long periods": {func(b *bucket, _ *config) {
			b.Seconds, b.At = 400, start.Add(-800*time.Second)
		}, false},
	} {
		b, s := &bucket{Tokens: -1000, At: start, Seconds: 10}, config{quotaPercent: 300, periodSeconds: 10}
		tt.change(b, &s)
		r := round{state: &State{Buckets: map[string]*bucket{c.Cgroup: b}}, now: start}
		c.UsageMilliCPU = f(1000)
		if got := r.mayExceedLimit(&p, c, s, 1000); got != tt.isNew {
			t.Errorf("another %s: allowed %v, with %v tokens", name, got, r.state.Buckets[c.Cgroup].Tokens)
		}
	}
}

// The annotation of a pod, which its owner writes, does not refill the bucket: neither by a period of 0, nor by one that is shorter than
// the time between two ticks.
func TestShortPeriodGivesNoTokens(t *testing.T) {
	for name, tt := range map[string]struct {
		interval time.Duration
		period   func(i int) string
	}{
		"0 at every 60th tick": {time.Second, func(i int) string {
			if i%60 == 59 {
				return "0"
			}
			return ""
		}},
		"a second, 5 s between ticks": {5 * time.Second, func(int) string { return "1" }},
	} {
		st, s := new(State), burstPolicy("cfsQuotaBurstOnly")
		s.Burst.CFSQuotaBurstPeriodSeconds = n(120)
		p := pod(1000)
		quota, late := int64(1000), 0
		for i := range 1000 {
			p.Annotations = map[string]string{}
			if period := tt.period(i); period != "" {
				p.Annotations["koordinator.sh/cpuBurst"] = `{"cfsQuotaBurstPeriodSeconds":` + period + `}`
			}
			p.Containers[0].ThrottledPercent, p.Containers[0].UsageMilliCPU = f(10), new(float64(quota))
			a := advise(st, s, sampleOf(3000, p), time.Duration(i)*tt.interval)
			if q := entryOf(t, a.Cgroups, containerPath).CPUMaxMilliCPU; q != nil {
				quota = *q
			}
			if i >= 500 && quota > 1000 {
				late++
			}
		}
		if late > 0 {
			t.Errorf("%s: over the limit at %d of the last 500 ticks; want none, because the container never uses less", name, late)
		}
	}
}

// A container that is always throttled exceeds its limit until its tokens are used up, and then returns to it.
func TestBurstEnds(t *testing.T) {
	st, s := new(State), burstPolicy("cfsQuotaBurstOnly")
	s.Burst.CFSQuotaBurstPeriodSeconds = n(120) // capacity 24000
	p := pod(1000)
	quota, highest, since := int64(1000), int64(0), 0
	for second := range 400 {
		p.Containers[0].ThrottledPercent, p.Containers[0].UsageMilliCPU = f(10), new(float64(quota))
		a := advise(st, s, sampleOf(3000, p), time.Duration(second)*time.Second)
		if q := entryOf(t, a.Cgroups, containerPath).CPUMaxMilliCPU; q != nil {
			quota = *q
		}
		if highest = max(highest, quota); quota > 1000 {
			since++
		}
	}
	tokens := 24000 * initialLevel("u", "c")
	if highest != 3000 || quota != 1000 {
		t.Errorf("the quota was %d at most and is %d; want 3000 and 1000 (%v tokens at first)", highest, quota, tokens)
	}
	if maximum := tokens/100 + 30; float64(since) > maximum {
		t.Errorf("over the limit for %d s, with %v tokens", since, tokens)
	}
	// It accumulates tokens again while it uses little, and may burst again.
	for second := 400; second < 520; second++ {
		p.Containers[0].ThrottledPercent, p.Containers[0].UsageMilliCPU = f(0), f(100)
		advise(st, s, sampleOf(3000, p), time.Duration(second)*time.Second)
	}
	p.Containers[0].ThrottledPercent, p.Containers[0].UsageMilliCPU = f(10), f(1000)
	if q := entryOf(t, advise(st, s, sampleOf(3000, p), 520*time.Second).Cgroups, containerPath).CPUMaxMilliCPU; orZero(q) != 1200 {
		t.Errorf("after a rest the quota is %d, want 1200", orZero(q))
	}
	// The state file continues from the saved state.
	text, err := tick.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	var again State
	if err := tick.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	one, two := advise(st, s, sampleOf(3000, p), 521*time.Second), advise(&again, s, sampleOf(3000, p), 521*time.Second)
	if *entryOf(t, one.Cgroups, containerPath).CPUMaxMilliCPU != *entryOf(t, two.Cgroups, containerPath).CPUMaxMilliCPU {
		t.Errorf("after a restart %+v, want %+v", two.Cgroups, one.Cgroups)
	}
}
