package engine

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"polder/evict/act"
	"polder/evict/pick"
	"polder/evict/rule"
	"polder/lib/cgroup"
	"polder/lib/stage"
	"polder/lib/tick"
)

// recreate removes the cgroup with its processes, and creates another one of the same name.
func recreate(t *testing.T, h *cgroup.Hierarchy, path string) {
	t.Helper()
	if err := act.Thaw(h, path); err != nil {
		t.Fatal(err)
	}
	if err := act.Kill(t.Context(), h, act.Target{Path: path}, 0, act.AlreadyRequested, func() {}); err != nil {
		t.Fatal(err)
	}
	for _, controller := range []string{"", "freezer"} {
		dir, _, err := h.Dir(controller, path)
		if err != nil {
			t.Fatal(err)
		}
		for err = os.Remove(dir); err != nil && t.Context().Err() == nil && !os.IsNotExist(err); err = os.Remove(dir) {
			time.Sleep(time.Millisecond) // the last zombie is not reaped yet
		}
	}
	group(t)
}

// otherBoot sets a state file's boot ID to another or an unknown one.
func otherBoot(t *testing.T, state, boot string) {
	t.Helper()
	data, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	changed := regexp.MustCompile(`"boot":"[^"]+",`).ReplaceAll(data, []byte(boot))
	if bytes.Equal(changed, data) {
		t.Fatalf("the state has no boot ID: %s", data)
	}
	if err := os.WriteFile(state, changed, 0o600); err != nil {
		t.Fatal(err)
	}
}

// enough is a tick in which no pod must be evicted.
func enough(ticks func(int) *tick.Tick) func(int) *tick.Tick {
	return func(at int) *tick.Tick {
		x := ticks(at)
		x.Advice.Reclaimed.MilliCPU = new(int64(1e6))
		return x
	}
}

const anotherBoot = `"boot":"11111111-2222-3333-4444-555555555555",`

// A kill in progress is resumed in the same cgroup in the same boot, and nowhere else: a new process in a cgroup of the same
// name was never asked to end.
func TestKillResumesOnlyInTheSameCgroup(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, h *cgroup.Hierarchy, path, state string)
		killed bool
	}{
		{"the same", func(*testing.T, *cgroup.Hierarchy, string, string) {}, true},
		{"another boot", func(t *testing.T, _ *cgroup.Hierarchy, _, state string) { otherBoot(t, state, anotherBoot) }, false},
		{"no boot", func(t *testing.T, _ *cgroup.Hierarchy, _, state string) { otherBoot(t, state, "") }, false},
		{"replaced", func(t *testing.T, h *cgroup.Hierarchy, path, _ string) { recreate(t, h, path) }, false},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			h, path := group(t)
			state := filepath.Join(t.TempDir(), "state.json")
			ticks := overcommit(path, "/none")
			// The first run must not end the process itself, however long it takes to stop: the period is over by the ticks' clock alone.
			args := []string{"--action", "kill", "--reclaimed-grace-period", "1h", "--state", state}
			p := startEvict(t, args...)
			at := 0
			p.put(ticks(at))
			p.until(&at, ticks, "large", tick.StateCreated)
			p.stop()
			<-p.end
			tt.change(t, h, path, state)
			at += int(time.Hour / tickEvery)
			p = startEvict(t, args...)
			e := p.put(enough(ticks)(at + 1))
			if reported := len(e.Evictions) > 0; reported != tt.killed {
				t.Errorf("the next run reports %+v", e.Evictions)
			}
			p.close() // waits for orders in progress
			if empty(t, h, path) != tt.killed {
				t.Errorf("killed %t; want %t", !tt.killed, tt.killed)
			}
		})
	}
}

// A pod counts as released by freezing while it is frozen: not after a reboot, in a cgroup that was replaced, or when
// another program has thawed it, whether that happened between two runs or during one.
func TestFrozenPodCountsOnlyWhileFrozen(t *testing.T) {
	thawed := func(t *testing.T, h *cgroup.Hierarchy, path, _ string) {
		if err := act.Thaw(h, path); err != nil {
			t.Fatal(err)
		}
	}
	recreated := func(t *testing.T, h *cgroup.Hierarchy, path, _ string) { recreate(t, h, path) }
	for _, tt := range []struct {
		name    string
		change  func(t *testing.T, h *cgroup.Hierarchy, path, state string)
		restart bool
		again   bool
	}{
		{"unchanged", func(*testing.T, *cgroup.Hierarchy, string, string) {}, true, false},
		{"another boot", func(t *testing.T, h *cgroup.Hierarchy, path, state string) {
			otherBoot(t, state, anotherBoot)
			recreate(t, h, path)
		}, true, true},
		{"no boot and thawed", func(t *testing.T, h *cgroup.Hierarchy, path, state string) {
			otherBoot(t, state, "")
			thawed(t, h, path, state)
		}, true, true},
		{"replaced between runs", recreated, true, true},
		{"thawed between runs", thawed, true, true},
		{"replaced during a run", recreated, false, true},
		{"thawed during a run", thawed, false, true},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			h, path := group(t)
			state := filepath.Join(t.TempDir(), "state.json")
			ticks := overcommit(path, "/none")
			args := []string{"--action", "freeze", "--state", state}
			p := startEvict(t, args...)
			at := 0
			p.put(ticks(at))
			p.until(&at, ticks, "large", tick.StateSucceeded)
			if tt.restart {
				p.close()
			}
			tt.change(t, h, path, state)
			if tt.restart {
				p = startEvict(t, args...)
			}
			at++
			want := tick.StateSucceeded
			if tt.again {
				want = tick.StateRequested
			}
			if got := states(p.put(ticks(at)))["large"]; got != want {
				t.Errorf("the frozen pod is %s; want %s", got, want)
			}
			p.until(&at, ticks, "large", tick.StateSucceeded)
			p.close()
			if frozen, err := act.Frozen(h, path); err != nil || !frozen {
				t.Errorf("frozen %t, %v at the end", frozen, err)
			}
		})
	}
}

// evict --thaw thaws nothing that another program has frozen since: in another boot, or in another cgroup of that name.
func TestThawOnlyFrozenCgroups(t *testing.T) {
	for name, boot := range map[string]string{"another boot": anotherBoot, "replaced": ""} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			h, path := group(t)
			state := filepath.Join(t.TempDir(), "state.json")
			p := startEvict(t, "--action", "freeze", "--state", state)
			at := 0
			p.put(overcommit(path, "/none")(at))
			p.until(&at, overcommit(path, "/none"), "large", tick.StateSucceeded)
			p.close()
			if boot != "" {
				otherBoot(t, state, boot)
			} else {
				recreate(t, h, path)
				if err := act.Freeze(t.Context(), h, path); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			status := command().Execute(t.Context(), stageEnv([]string{"evict", "--thaw", "--state", state}, nil, &out, io.Discard))
			if status != 0 || out.Len() > 0 {
				t.Errorf("evict --thaw = %d, %q; want nothing thawed", status, &out)
			}
			if frozen, err := act.Frozen(h, path); err != nil || !frozen {
				t.Errorf("frozen %t, %v; want it frozen as it was", frozen, err)
			}
		})
	}
}

// Measurements do not survive a reboot; what delays and counts evictions, and requests to the API server, does.
func TestRebootDropsMeasurements(t *testing.T) {
	full := func() *node {
		n := &node{EncodedWindows: map[string]tick.Raw{"r": tick.Raw("{}")}, TaintRequired: map[string]time.Time{"k:NoSchedule": noon}}
		n.Queue = pick.Queue{"soft": noon}
		n.Continuity = pick.Continuity{Start: noon, Last: noon}
		n.LastHour = pick.LastHour{{At: noon, UID: "a"}}
		n.Cooldowns = map[string]*pick.Cooldown{rule.All[0].Name: {}}
		n.InProgress = pick.InProgress{
			"asked": {Cgroup: "/a"}, "killed": {Cgroup: "/b", Inode: 7}, "frozen": {Frozen: true}, "ended": {EndedAt: noon}, "null": nil,
		}
		return n
	}
	for _, tt := range []struct {
		name       string
		boot       stage.Boot
		action     string
		measured   bool
		inProgress int
	}{
		{"the same", stage.SameBoot, act.KillPods, true, 5},
		{"another, evict", stage.OtherBoot, act.EvictPods, false, 1},
		{"another, kill", stage.OtherBoot, act.KillPods, false, 0},
		{"another, freeze", stage.OtherBoot, act.FreezePods, false, 0},
		{"unknown, freeze", stage.UnknownBoot, act.FreezePods, false, 4},
		{"unknown, evict", stage.UnknownBoot, act.EvictPods, false, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := full()
			n.dropEndedByReboot(tt.boot, tt.action)
			if measured := n.EncodedWindows != nil && n.Queue != nil && n.Continuity != (pick.Continuity{}); measured != tt.measured {
				t.Errorf("measured is kept: %t; want %t", measured, tt.measured)
			}
			if len(n.InProgress) != tt.inProgress {
				t.Errorf("%d evictions in progress; want %d", len(n.InProgress), tt.inProgress)
			}
			if len(n.LastHour) != 1 || len(n.Cooldowns) != 1 || len(n.TaintRequired) != 1 {
				t.Errorf("hour %v, cooldowns %v, taints %v; want one each", n.LastHour, n.Cooldowns, n.TaintRequired)
			}
		})
	}
}
