package burst

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

// Which CPUs and which pods' use count as the share pool's.
func TestSharePool(t *testing.T) {
	labelled := func(class string, used *float64, requests float64) tick.Pod {
		return tick.Pod{Labels: map[string]string{"koordinator.sh/qosClass": class}, UsageMilliCPU: used, Requests: amount(requests), Phase: "Running"}
	}
	finished := labelled("LSR", new(float64(0)), 8000)
	finished.Phase = "Succeeded"
	for _, c := range []struct {
		name string
		used float64
		pods []tick.Pod
		want loadState
	}{
		{"all of it", 4400, nil, idle},
		{"what batch pods use is not", 8000, []tick.Pod{labelled("BE", new(float64(4000)), 0)}, idle},
		{"and unknown counts", 8000, []tick.Pod{labelled("BE", nil, 0)}, overload},
		{"what LSR pods use is not, nor what they request", 6000, []tick.Pod{labelled("LSR", new(float64(3000)), 4000)}, overload}, // 3000 of 6000
		{"LSE the same", 6000, []tick.Pod{labelled("LSE", new(float64(3200)), 4000)}, cooling},
		{"LSR without a request", 6000, []tick.Pod{labelled("LSR", new(float64(3000)), 0)}, idle},
		{"LS and SYSTEM are its own", 6000, []tick.Pod{labelled("LS", new(float64(3000)), 4000), labelled("SYSTEM", new(float64(3000)), 4000)}, overload},
		{"a finished one has nothing", 4000, []tick.Pod{finished}, idle},
		{"more requested than there is", 100, []tick.Pod{labelled("LSE", new(float64(0)), 12000)}, overload},
		{"no CPU of its own, and no use", 0, []tick.Pod{labelled("LSE", new(float64(0)), 10000)}, overload},
		{"more used by pods than by the node", 100, []tick.Pod{labelled("BE", new(float64(200)), 0)}, idle},
		{"a pod's use that is no number", 6000, []tick.Pod{labelled("BE", new(math.NaN()), 0), labelled("BE", new(math.Inf(-1)), 0)}, overload},
		{"the node's that is no number", math.NaN(), nil, unknown},
	} {
		r := round{state: new(State), strategies: burstPolicy("auto"), now: start}
		if r.measureLoad(sampleOf(c.used, c.pods...)); r.load != c.want {
			t.Errorf("%s: %s, want %s (%s)", c.name, r.load, c.want, r.loadText)
		}
	}
	for _, cpus := range []string{"", "garbage", "0-99999999"} {
		r := round{state: new(State), strategies: burstPolicy("auto"), now: start}
		s := sampleOf(0)
		s.Topology.CPUs = cpus
		if r.measureLoad(s); r.load != unknown {
			t.Errorf("CPUs %q: %s, want unknown", cpus, r.load)
		}
	}
}

// The use is averaged over five ticks, and over at most ten seconds.
func TestAverage(t *testing.T) {
	for _, c := range []struct {
		interval *float64
		over     float64
	}{{new(float64(1)), 5}, {new(0.5), 2.5}, {new(float64(2)), 10}, {new(float64(5)), 10}, {new(float64(60)), 10}, {nil, 10}, {new(float64(0)), 10}, {new(float64(-1)), 10}, {new(math.NaN()), 10}} {
		st := new(State)
		last := 0.0
		for second := range 30 {
			s := sampleOf(float64(second) * 100)
			s.IntervalSeconds = c.interval
			r := round{state: st, strategies: burstPolicy("auto"), now: start.Add(time.Duration(second) * time.Second)}
			r.measureLoad(s)
			var used float64
			if _, err := fmt.Sscanf(r.loadText[strings.Index(r.loadText, "uses"):], "uses %fm", &used); err != nil {
				t.Fatal(err)
			}
			last = used
		}
		if want := 2900 - math.Floor(c.over)*100/2; math.Abs(last-want) > 1 {
			t.Errorf("interval %v: average %v, want that of %v s: %v", c.interval, last, c.over, want)
		}
		if len(st.Usage.Points) > 12 {
			t.Errorf("%d points are kept", len(st.Usage.Points))
		}
	}
}
