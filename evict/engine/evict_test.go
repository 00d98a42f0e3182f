package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/evict/act/acttest"
	"polder/lib/cgroup"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/tests/await"
)

func command() stage.Command { return Command() }

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// overcommit is a tick with two reclaimed pods, one of which must be evicted.
func overcommit(first, second string) func(int) *tick.Tick {
	pod := func(name, cgroup string, milli float64) tick.Pod {
		return tick.Pod{
			UID: name, Namespace: "default", Name: name, QoS: tick.QoSReclaimed, Cgroup: cgroup,
			Requests: &tick.Resources{ReclaimedMilliCPU: new(milli), ReclaimedMemoryBytes: new(0.0)},
		}
	}
	return func(at int) *tick.Tick {
		return &tick.Tick{
			V: 1, Node: "n", Time: noon.Add(time.Duration(at) * tickEvery),
			Sample: &tick.Sample{Pods: []tick.Pod{pod("large", first, 15000), pod("small", second, 10000)}},
			Advice: &tick.Advice{
				Policy: "katalyst", Reclaimed: &tick.Reclaimed{MilliCPU: new(int64(4000)), MemoryBytes: new(int64(1))},
				Pools: []tick.Pool{{Name: "share", CPUs: "0-3"}},
			},
		}
	}
}

// group creates a cgroup with a process in it that ignores SIGTERM.
func group(t *testing.T) (*cgroup.Hierarchy, string) {
	t.Helper()
	h, path := acttest.Cgroup(t)
	acttest.Run(t, h, path, "trap '' TERM; echo ready; while :; do sleep 0.05; done")
	return h, path
}

func empty(t *testing.T, h *cgroup.Hierarchy, path string) bool {
	t.Helper()
	pids, err := h.PIDs("", path)
	if err != nil {
		t.Fatal(err)
	}
	return len(pids) == 0
}

func TestKillBesideTheStream(t *testing.T) {
	h, path := group(t)
	p := startEvict(t, "--action", "kill", "--reclaimed-grace-period", "1s")
	ticks := overcommit(path, "/none")
	at := 0
	e := p.put(ticks(at))
	if d := cmp.Diff(map[string]string{"large": tick.StateRequested}, states(e)); d != "" {
		t.Fatalf("first tick (-want +got):\n%s", d)
	}
	e = p.until(&at, ticks, "large", tick.StateCreated)
	if len(e.Evictions) != 1 {
		t.Errorf("a second victim for the same need: %+v", e.Evictions)
	}
	e = p.until(&at, ticks, "large", tick.StateSucceeded)
	if !empty(t, h, path) {
		t.Error("succeeded, and there are still processes")
	}
	if len(e.Evictions) != 1 || e.Evictions[0].Error != "" {
		t.Errorf("evictions %+v; want only the success", e.Evictions)
	}
	// The empty cgroup is still listed: its pod counts as released.
	for range 3 {
		at++
		if e := p.put(ticks(at)); len(e.Evictions) != 0 || !e.Pressures[0].Met {
			t.Errorf("after the success: %+v", e)
		}
	}
	if status := p.close(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	for _, state := range []string{"requested", "created", "succeeded"} {
		if n := strings.Count(p.log.String(), "state="+state); n != 1 {
			t.Errorf("%s was logged %d times; want once:\n%s", state, n, p.log)
		}
	}
}

func TestKillRefused(t *testing.T) {
	p := startEvict(t, "--action", "kill")
	ticks := overcommit("/", "/none")
	at := 0
	p.put(ticks(at))
	e := p.until(&at, ticks, "large", tick.StateFailed)
	if got := states(e); got["small"] != tick.StateRequested && got["small"] != "" {
		t.Errorf("evictions %v", got)
	}
	if !strings.Contains(fmt.Sprint(e.Evictions), "refused: / is the whole machine") {
		t.Errorf("evictions %+v; want the reason", e.Evictions)
	}
	p.until(&at, ticks, "small", tick.StateSucceeded) // another one is tried; its cgroup is empty
	p.close()
}

func TestEndOfInputWaits(t *testing.T) {
	h, path := group(t)
	p := startEvict(t, "--action", "kill", "--reclaimed-grace-period", "1s")
	p.put(overcommit(path, "/none")(0))
	if status := p.close(); status != 0 || !empty(t, h, path) {
		t.Errorf("exit status %d, empty %v: evict ended before the kill was finished", status, empty(t, h, path))
	}
}

// A signal does not wait; the next run with the same state continues.
func TestNextRunResumes(t *testing.T) {
	h, path := group(t)
	state := filepath.Join(t.TempDir(), "state.json")
	ticks := overcommit(path, "/none")
	args := []string{"--action", "kill", "--state", state}
	// The first run's grace period is longer than any timeout: the run would not end for a long time if the signal waited for it.
	p := startEvict(t, append(args, "--reclaimed-grace-period", "1h")...)
	at := 0
	p.put(ticks(at))
	p.until(&at, ticks, "large", tick.StateCreated)
	p.stop()
	select {
	case status := <-p.end:
		if status != 0 {
			t.Errorf("exit status %d", status)
		}
	case <-time.After(waitTimeout):
		t.Fatalf("evict has not ended %s after the signal", waitTimeout)
	}
	if empty(t, h, path) {
		t.Fatal("the process has ended: there is nothing to resume")
	}
	at += int(time.Hour / tickEvery) // the grace period is over
	p = startEvict(t, append(args, "--reclaimed-grace-period", "1h")...)
	if e := p.put(ticks(at + 1)); states(e)["large"] != tick.StateCreated || len(e.Evictions) != 1 {
		t.Errorf("the next run reports %+v", e.Evictions)
	}
	p.until(&at, ticks, "large", tick.StateSucceeded)
	if status := p.close(); status != 0 || !empty(t, h, path) {
		t.Errorf("exit status %d, empty %v", status, empty(t, h, path))
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	h, path := group(t)
	state := filepath.Join(t.TempDir(), "state.json")
	p := startEvict(t, "--action", "kill", "--dry-run", "--reclaimed-grace-period", "0s", "--state", state)
	for i := range 3 {
		e := p.put(overcommit(path, "/none")(i))
		if d := cmp.Diff(map[string]string{"large": tick.StateWouldEvict}, states(e)); d != "" || !e.DryRun {
			t.Errorf("dry run %v (-want +got):\n%s", e.DryRun, d)
		}
	}
	p.close()
	if empty(t, h, path) {
		t.Error("the dry run killed a process")
	}
	if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dry run wrote a state: %v", err)
	}
}

func TestWithoutCgroup(t *testing.T) {
	p := startEvict(t, "--action", "kill")
	ticks := overcommit("", "")
	at := 0
	p.put(ticks(at))
	e := p.until(&at, ticks, "large", tick.StateFailed)
	if !strings.Contains(fmt.Sprint(e.Evictions), "does not name the pod's cgroup") {
		t.Errorf("evictions %+v", e.Evictions)
	}
	p.until(&at, ticks, "small", tick.StateFailed)
	p.close()
}

// A pod that is missing from a sample has ended only if the sample is complete.
func TestSampleIncomplete(t *testing.T) {
	_, path := group(t)
	p := startEvict(t, "--action", "kill", "--reclaimed-grace-period", "1h")
	at := 0
	p.put(overcommit(path, "/none")(at))
	p.until(&at, overcommit(path, "/none"), "large", tick.StateCreated)
	for _, incomplete := range []func(*tick.Tick){
		func(x *tick.Tick) { x.Sample = nil },
		func(x *tick.Tick) {
			x.Sample.Pods, x.Sample.Errors = nil, []tick.SourceError{{Source: "pods", Error: "x"}}
		},
	} {
		at++
		x := overcommit(path, "/none")(at)
		incomplete(x)
		if e := p.put(x); states(e)["large"] != tick.StateCreated {
			t.Errorf("an incomplete sample: %+v", e)
		}
	}
	at++
	x := overcommit(path, "/none")(at)
	x.Sample.Pods = x.Sample.Pods[1:]
	if e := p.put(x); states(e)["large"] != tick.StateSucceeded {
		t.Errorf("a complete sample without the pod: %+v", e)
	}
	p.stop()
	<-p.end
}

func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "evict.yaml")
	write := func(text string) { // at once: an empty file is a configuration, too
		if err := stage.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("reclaimed-threshold: 10\n")
	p := startEvict(t, "--dry-run", "--config", file)
	ticks := overcommit("/a", "/b")
	at := 0
	threshold := func() float64 { at++; return p.put(ticks(at)).Pressures[0].Threshold }
	if got := threshold(); got != 40000 {
		t.Fatalf("threshold %v; want 40000", got)
	}
	wait := func(what string, done func() bool) {
		t.Helper()
		await.Until(t, waitTimeout, what, await.Is(done))
	}
	write("burst: 1\nreclaimed-threshold: -1\n")
	wait("refused with its line", func() bool {
		return strings.Contains(p.log.String(), file+":2: reclaimed-threshold: -1: want a number over 0")
	})
	if got := threshold(); got != 40000 {
		t.Errorf("threshold after a bad file %v; want the old one", got)
	}
	write("reclaimed-threshold: 2\n")
	wait("the new threshold", func() bool { return threshold() == 8000 })
	p.close()
}

func TestStateOfManyNodes(t *testing.T) {
	p := startEvict(t, "--dry-run")
	for i := range 3 {
		for _, node := range []string{"n", "m-" + strconv.Itoa(i)} {
			x := overcommit("/a", "/b")(i)
			x.Node = node
			if got := p.put(x).Pressures[0].Since; (got == "2026-11-21T12:00:00Z") != (node == "n" || i == 0) {
				t.Errorf("node %s, tick %d: since %s", node, i, got)
			}
		}
	}
	p.close()
}
