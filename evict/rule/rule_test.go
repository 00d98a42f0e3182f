package rule

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/evictconfig"
	"polder/lib/tick"
)

// Defaults returns the default settings.
func Defaults() Settings { return Settings{Settings: evictconfig.Defaults()} }

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func tickAt(seconds int, pods ...tick.Pod) *tick.Tick {
	return &tick.Tick{
		V: 1, Node: "n", Time: start.Add(time.Duration(seconds) * time.Second),
		Sample: &tick.Sample{Pods: pods, Topology: &tick.Topology{CPUs: "0-47"}},
		Advice: &tick.Advice{
			Reclaimed: &tick.Reclaimed{MilliCPU: new(int64(4000)), MemoryBytes: new(int64(1 << 30))},
			Pools:     []tick.Pool{{Name: tick.PoolShare, CPUs: "0-43"}, {Name: tick.PoolReclaim, CPUs: "44-47"}},
		},
	}
}

func reclaimedPod(name string, milli float64) tick.Pod {
	return tick.Pod{
		UID: "uid-" + name, Namespace: "default", Name: name, QoS: tick.QoSReclaimed,
		Requests: &tick.Resources{ReclaimedMilliCPU: new(milli), ReclaimedMemoryBytes: new(0.0)},
	}
}

func sharedPod(name string, loads ...float64) tick.Pod {
	p := tick.Pod{UID: "uid-" + name, Namespace: "default", Name: name, QoS: tick.QoSShared}
	for _, l := range loads {
		p.Containers = append(p.Containers, tick.Container{Load1: new(l)})
	}
	return p
}

func ranked(f Finding) []string {
	c := slices.Clone(f.Candidates)
	slices.SortFunc(c, Compare)
	var names []string
	for _, x := range c {
		names = append(names, x.Pod.Name)
	}
	return names
}

// busyTick meets every threshold.
func busyTick(seconds int) *tick.Tick {
	x := shortTick(seconds, 0.05, podWithMemory("big", tick.QoSReclaimed, 20_000), podWithMemory("service", tick.QoSShared, 2000), sharedPod("a", 80), reclaimedPod("r", 90000))
	x.Sample.Memory.KswapdStealPages = new(5000 * float64(seconds))
	x.Sample.Memory.Pressure = stall(50)
	for i := range x.Sample.Pods {
		x.Sample.Pods[i].MemoryPressure = stall(20)
	}
	return x
}

func TestWindowsSurviveEncoding(t *testing.T) {
	s := Defaults()
	s.RSSOveruseEnabled, s.MemoryPSIPods, s.SuppressionMinDuration = true, 2, time.Minute
	for _, r := range All {
		w := r.New()
		for i := range 9 {
			w.Measure(&s, busyTick(30*i))
		}
		data, err := tick.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		again := r.New()
		if err := tick.Unmarshal(data, again); err != nil {
			t.Fatal(err)
		}
		next := busyTick(270)
		before := w.Measure(&s, next)
		if d := cmp.Diff(before, again.Measure(&s, next)); d != "" {
			t.Errorf("%s after encoding (-before +after):\n%s", r.Name, d)
		}
		for _, f := range before.Findings {
			if !f.Met {
				t.Errorf("%s: %+v is not met: its window is not complete", r.Name, f.PressureFinding)
			}
		}
	}
}

func TestList(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range All {
		if r.Name == "" || seen[r.Name] || r.New == nil || len(r.Scopes) == 0 {
			t.Errorf("rule %q: want a name of its own, scopes and a window", r.Name)
		}
		seen[r.Name] = true
		if first, _, ok := strings.Cut(r.Doc, "\n"); !ok || len(first) > 90 {
			t.Errorf("rule %s: want a title of at most 90 bytes and a manual", r.Name)
		}
	}
	_, err := Select([]string{"memory"})
	if err == nil || !strings.HasPrefix(err.Error(), `no rule "memory": want some of reclaimed-`) || !strings.HasSuffix(err.Error(), "; did you mean memory-pressure-eviction-plugin?") {
		t.Errorf("Select(memory) = %v", err)
	}
	rules, err := Select([]string{cpuPressure.Name})
	if err != nil || len(rules) != 1 || rules[0] != cpuPressure {
		t.Errorf("Select(%s) = %v, %v", cpuPressure.Name, rules, err)
	}
}
