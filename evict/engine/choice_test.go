package engine

import (
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/evict/pick"
	"polder/evict/settings"
	"polder/lib/stage"
	"polder/lib/tick"
)

const reclaimedRule = "reclaimed-resource-pressure-eviction-plugin"

// manyPods is a tick with ten reclaimed pods, p0 to p9, eight of which must be evicted. Their cgroups are empty.
func manyPods(at time.Duration, change ...func(*tick.Tick)) *tick.Tick {
	x := &tick.Tick{
		V: 1, Node: "n", Time: noon.Add(at), Sample: &tick.Sample{},
		Advice: &tick.Advice{Policy: "katalyst", Reclaimed: &tick.Reclaimed{MilliCPU: new(int64(4000)), MemoryBytes: new(int64(1))}},
	}
	for i := range 10 {
		name := "p" + strconv.Itoa(i)
		x.Sample.Pods = append(x.Sample.Pods, tick.Pod{
			UID: name, Namespace: "ns-" + strconv.Itoa(i/5), Name: name, QoS: tick.QoSReclaimed, Cgroup: "/polder-none/" + name,
			Requests:   &tick.Resources{ReclaimedMilliCPU: new(10000.0), ReclaimedMemoryBytes: new(0.0)},
			Containers: []tick.Container{{Name: "c"}}, // with unknown memory
		})
	}
	for _, c := range change {
		c(x)
	}
	return x
}

// requested returns the pods whose end was requested at a tick.
func requested(e *tick.Eviction) []string {
	var out []string
	for uid, state := range states(e) {
		if state == tick.StateRequested {
			out = append(out, uid)
		}
	}
	slices.Sort(out)
	return out
}

// A rate that was measured before a pod's end requires no second victim.
func TestKswapdEvictsOnePodPerPeriod(t *testing.T) {
	p := startEvict(t, "--action", "kill", "--rules", "memory-pressure-eviction-plugin", "--memory-kswapd-times", "1", "--memory-psi-enabled=false", "--memory-numa-enabled=false")
	evicted := map[int][]string{}
	removed := map[string]bool{}
	for i := range 17 {
		x := manyPods(time.Duration(i) * time.Second)
		x.Sample.Memory = &tick.NodeMemory{TotalBytes: new(1e11), FreeBytes: new(5e10), WatermarkScaleFactor: new(10.0), KswapdStealPages: new(float64(i) * 9000)}
		x.Sample.Pods = slices.DeleteFunc(x.Sample.Pods, func(p tick.Pod) bool { return removed[p.UID] })
		e := p.put(x)
		for _, uid := range requested(e) {
			evicted[i] = append(evicted[i], uid)
			removed[uid] = true // the very next sample does not contain it any more
		}
	}
	if d := cmp.Diff(map[int][]string{5: {"p0"}, 10: {"p1"}, 15: {"p2"}}, evicted); d != "" {
		t.Errorf("evicted pods, by the second (-want +got):\n%s", d)
	}
	p.close()
}

func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want []string // at the first tick
		all  int      // at the end
		log  string
	}{
		{"the defaults", nil, []string{"p0"}, 8, ""},
		{"--per-rule", []string{"--per-rule", "2"}, []string{"p0", "p1"}, 8, ""},
		{"--burst", []string{"--per-rule", "5"}, []string{"p0", "p1", "p2"}, 8, "limit=--burst"},
		{"none", []string{"--per-rule", "-1", "--burst", "-1", "--per-hour", "-1"}, []string{"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"}, 8, ""},
		{"--per-hour", []string{"--per-rule", "-1", "--burst", "-1", "--per-hour", "4"}, []string{"p0", "p1", "p2", "p3"}, 4, "limit=--per-hour"},
		{"--per-namespace", []string{"--per-rule", "-1", "--burst", "-1", "--per-namespace", "1"}, []string{"p0", "p5"}, 2, "limit=--per-namespace"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startEvict(t, append([]string{"--action", "kill", "--rules", reclaimedRule}, tt.args...)...)
			all := map[string]bool{}
			for i := range 40 {
				e := p.put(manyPods(time.Duration(i) * time.Second))
				got := requested(e)
				if i == 0 && !slices.Equal(got, tt.want) {
					t.Errorf("at the first tick %v; want %v", got, tt.want)
				}
				for uid := range states(e) {
					all[uid] = true
				}
			}
			if len(all) != tt.all {
				t.Errorf("%v were evicted; want %d pods", slices.Sorted(maps.Keys(all)), tt.all)
			}
			p.close()
			if logged := strings.Count(p.log.String(), "more pods would be evicted than"); (logged > 0) != (tt.log != "") || !strings.Contains(p.log.String(), tt.log) {
				t.Errorf("log of a limit: %d times; want %q:\n%s", logged, tt.log, p.log)
			}
		})
	}
}

// The hourly count uses the ticks' time, survives a restart, and setting the clock back reduces nothing.
func TestHourlyLimitSurvivesRestart(t *testing.T) {
	args := []string{"--action", "kill", "--rules", reclaimedRule, "--per-hour", "2", "--state", filepath.Join(t.TempDir(), "state.json")}
	var evicted []string
	for _, run := range []struct {
		at   []time.Duration
		want []string
	}{
		{[]time.Duration{0, time.Second, 2 * time.Second}, []string{"p0", "p1"}},
		{[]time.Duration{time.Minute, 59 * time.Minute}, []string{"p0", "p1"}},
		{[]time.Duration{-time.Hour, -time.Minute}, []string{"p0", "p1"}}, // set back: the hour ends at noon, not at one
		{[]time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute}, []string{"p0", "p1", "p2", "p3"}},
	} {
		p := startEvict(t, args...)
		for _, at := range run.at {
			evicted = append(evicted, requested(p.put(manyPods(at)))...)
		}
		if status := p.close(); status != 0 {
			t.Fatalf("exit status %d:\n%s", status, p.log)
		}
		slices.Sort(evicted)
		evicted = slices.Compact(evicted)
		if d := cmp.Diff(run.want, evicted); d != "" {
			t.Fatalf("evicted after the run of %v (-want +got):\n%s", run.at, d)
		}
	}
}

// A rule in dry run is measured and reported, without effect: no eviction, no taint, no use of limits.
func TestDryRunRules(t *testing.T) {
	for _, tt := range []struct {
		rules string
		dry   bool
	}{{reclaimedRule, true}, {"*", true}, {"cpu-pressure-eviction-plugin", false}} {
		p := startEvict(t, "--action", "kill", "--dry-run-rules", tt.rules)
		for i := range 3 {
			e := p.put(manyPods(time.Duration(i) * time.Second))
			for _, f := range e.Pressures {
				if f.Rule == reclaimedRule && f.DryRun != tt.dry {
					t.Errorf("%s: finding %+v", tt.rules, f)
				}
			}
			if got := states(e)["p0"]; (got == tick.StateWouldEvict) != tt.dry || e.DryRun {
				t.Errorf("%s: tick %d: p0 is %q, dry run of all %t", tt.rules, i, got, e.DryRun)
			}
			if tt.dry && len(e.Evictions) != 1 {
				t.Errorf("%s: tick %d: evictions %v; want only p0, each time", tt.rules, i, states(e))
			}
		}
		p.close()
		if got := strings.Count(p.log.String(), "would evict"); got > 1 || (got == 1) != tt.dry {
			t.Errorf("%s: logged %d times", tt.rules, got)
		}
	}
	if status, _, log := runEvict(t, "", "--dry-run-rules", "nonsense"); status != 2 || !strings.Contains(log, `--dry-run-rules: no rule "nonsense": want some of `+reclaimedRule) || !strings.Contains(log, `("*" means all)`) {
		t.Errorf("status %d: %s", status, log)
	}
}

// No content of a state file stops evict.
func TestInvalidStateFiles(t *testing.T) {
	for _, state := range []string{
		`{"nodes":{"n":{"going":{"p0":null},"cooldowns":{"` + reclaimedRule + `":null},"hour":[{}],"queue":null,"steady":{}}}}`,
		`{"nodes":{"n":{"hour":[{"at":"9999-12-31T23:59:59Z","uid":"x"}],"queue":{"p0":"9999-01-01T00:00:00Z"},"steady":{"start":"9999-01-01T00:00:00Z","last":"9999-01-01T00:00:00Z"}}}}`,
		`{"nodes":{"n":{"hour":{}}}}`, `{"nodes":{"n":{"hour":"x"}}}`, `{"nodes":[]}`, `{`,
	} {
		path := filepath.Join(t.TempDir(), "state.json")
		if err := stage.WriteFile(path, fmt.Appendf(nil, `{"tool":"evict","version":1,"state":%s}`, state), 0o600); err != nil {
			t.Fatal(err)
		}
		p := startEvict(t, "--action", "kill", "--rules", reclaimedRule, "--state", path)
		if got := requested(p.put(manyPods(0))); !slices.Equal(got, []string{"p0"}) {
			t.Errorf("state %s: %v; want p0", state, got)
		}
		p.close()
		if status, _, log := runEvict(t, "", "--thaw", "--state", path); status != 0 {
			t.Errorf("state %s: evict --thaw = %d: %s", state, status, log)
		}
	}
}

// The beginning of a state is logged, not every tick of it.
func TestStatesAreLoggedOnce(t *testing.T) {
	var log strings.Builder
	s := &stage.Session{Env: stage.Env{Now: func() time.Time { return noon }}, Log: slog.New(slog.NewTextHandler(&log, nil))}
	e := newEngine(s, new(settings.Live))
	given := settings.Default()
	given.Burst, given.ReclaimedTolerance = 0, 0
	given.DryRunRules = []string{reclaimedRule}
	tickAt := func(i int, change ...func(*tick.Tick)) {
		given := given
		e.settings.Store(&given)
		if _, err := e.handle(t.Context(), stage.Incoming{Tick: manyPods(time.Duration(i)*time.Second, change...)}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, wouldEvict, limits int) {
		t.Helper()
		got := [2]int{strings.Count(log.String(), `msg="would evict"`), strings.Count(log.String(), "limit=--"+pick.LimitBurst)}
		if got != [2]int{wouldEvict, limits} {
			t.Errorf("%s: %d would-be evictions and %d limits are logged; want %d and %d", what, got[0], got[1], wouldEvict, limits)
		}
	}
	tickAt(0)
	tickAt(1)
	check("a dry run of two ticks", 1, 0)
	tickAt(2, func(x *tick.Tick) { x.Sample.Pods = nil })
	tickAt(3)
	check("once more", 2, 0)
	given.DryRunRules = nil
	tickAt(4)
	tickAt(5)
	check("no dry run, and a burst of 0", 2, 1)
}
