package act

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/evict/act/acttest"
	"polder/lib/cgroup"
	"polder/lib/tick"
	"polder/tests/await"
)

func TestKill(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		grace        time.Duration
		minTime      time.Duration
		maxTime      time.Duration
	}{
		{"willing", `sleep 1000 & echo ready; wait`, 10 * time.Minute, 0, 5 * time.Minute},
		{"stubborn", acttest.IgnoreSIGTERM, 300 * time.Millisecond, 300 * time.Millisecond, time.Minute},
		{"forking", `trap '' TERM; echo ready; while :; do (sleep 0.01; sleep 1000) & sleep 0.01; done`, 100 * time.Millisecond, 100 * time.Millisecond, time.Minute},
		{"without grace", acttest.IgnoreSIGTERM, 0, 0, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, path := acttest.Cgroup(t)
			acttest.Run(t, h, path, tt.script)
			sent := 0
			before := time.Now()
			if err := Kill(t.Context(), h, Target{Path: path}, tt.grace, NotRequested, func() { sent++ }); err != nil {
				t.Fatalf("Kill: %v", err)
			}
			if took := time.Since(before); took < tt.minTime || took > tt.maxTime {
				t.Errorf("Kill took %s; want %s to %s", took, tt.minTime, tt.maxTime)
			}
			if sent != 1 {
				t.Errorf("reportSent was called %d times; want 1", sent)
			}
			if left, err := listProcesses(h, Target{Path: path}); err != nil || len(left) > 0 {
				t.Errorf("remaining: %v, %v", left, err)
			}
			if state, _ := h.ReadFile(freezer, path, "freezer.state"); h.Version(freezer) == 1 && state != "THAWED" {
				t.Errorf("freezer.state is %s after the killing", state)
			}
		})
	}
}

func TestKillMissingCgroup(t *testing.T) {
	h, path := acttest.Cgroup(t)
	for _, p := range []string{path, path + "/none"} {
		if err := Kill(t.Context(), h, Target{Path: p}, time.Minute, NotRequested, func() {}); err != nil {
			t.Errorf("Kill(%s) = %v; want nil: it is empty", p, err)
		}
	}
}

// A process in a later cgroup of the same name is no target: it did not exist when the pod was chosen.
func TestKillSkipsReplacedCgroup(t *testing.T) {
	h, path := acttest.Cgroup(t)
	first := acttest.Run(t, h, path, acttest.IgnoreSIGTERM)
	target := Target{path, InodeOf(h, KillPods, path)}
	var later *exec.Cmd
	err := Kill(t.Context(), h, target, time.Millisecond, NotRequested, func() {
		if err := killRemaining(t.Context(), h, target); err != nil { // it ends by itself, and another cgroup is created
			t.Fatal(err)
		}
		_ = first.Wait()
		acttest.Remove(t, h, path)
		acttest.Cgroup(t)
		later = acttest.Run(t, h, path, acttest.IgnoreSIGTERM)
	})
	if err != nil {
		t.Errorf("Kill = %v; want nil: the target no longer exists", err)
	}
	if left, err := listProcesses(h, Target{Path: path}); err != nil || len(left) == 0 {
		t.Errorf("remaining: %v, %v; want process %d of the later cgroup", left, err, later.Process.Pid)
	}
	if err := FreezeExecutor(h)(t.Context(), Order{Cgroup: path, Inode: InodeOf(h, FreezePods, path) + 1}, nil); err == nil || !strings.Contains(err.Error(), "another cgroup has that name") {
		t.Errorf("freeze of another cgroup: %v; want it refused", err)
	}
}

func TestKillStopsWithContext(t *testing.T) {
	h, path := acttest.Cgroup(t)
	acttest.Run(t, h, path, acttest.IgnoreSIGTERM)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := Kill(ctx, h, Target{Path: path}, time.Hour, NotRequested, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("Kill of a stopping tool = %v; want the context's end", err)
	}
	if left, err := listProcesses(h, Target{Path: path}); err != nil || len(left) == 0 {
		t.Errorf("remaining: %v, %v; want all of them: the grace period is not over", left, err)
	}
}

func TestFreezeAndThaw(t *testing.T) {
	h, path := acttest.Cgroup(t)
	// Two busy processes: one is frozen, and the other shows that it could have run meanwhile.
	cmd := acttest.Run(t, h, path, `echo ready; while :; do :; done`)
	other := exec.Command("sh", "-c", "while :; do :; done")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	cpuTimeOf := func(cmd *exec.Cmd) string {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(data))[0] // nanoseconds of CPU time
	}
	cpuTime := func() string { return cpuTimeOf(cmd) }
	for range 2 { // twice: freezing a frozen cgroup changes nothing
		if err := Freeze(t.Context(), h, path); err != nil {
			t.Fatalf("Freeze: %v", err)
		}
	}
	before := cpuTime()
	for range 5 {
		was := cpuTimeOf(other)
		await.Until(t, time.Minute, "another process runs", await.Is(func() bool { return cpuTimeOf(other) != was }))
	}
	if after := cpuTime(); after != before {
		t.Errorf("a frozen process used CPU time: %s ns of CPU, then %s", before, after)
	}
	for range 2 {
		if err := Thaw(h, path); err != nil {
			t.Fatalf("Thaw: %v", err)
		}
	}
	await.Until(t, time.Minute, "a thawed process uses CPU time", await.Is(func() bool { return cpuTime() != before }))
	if err := Freeze(t.Context(), h, path+"/none"); err == nil || !strings.Contains(err.Error(), "no cgroup of that name") {
		t.Errorf("Freeze of a missing cgroup = %v", err)
	}
	if err := Thaw(h, path+"/none"); err != nil {
		t.Errorf("Thaw of a missing cgroup = %v; want nil", err)
	}
}

func TestProtectedProcesses(t *testing.T) {
	for _, tt := range []struct {
		name, cgroup string
		pids         []int
		refused      bool
	}{
		{"root", "/", nil, true},
		{"another's", "/x", []int{1 << 22}, false},
		{"itself", "/x", []int{1 << 22, os.Getpid()}, true},
		{"its parent", "/x", []int{os.Getppid()}, true},
		{"process 1", "/x", []int{1}, true},
		{"its group's leader", "/x", []int{unix.Getpgrp()}, true},
		{"another namespace", "/x", []int{0}, true},
	} {
		if err := checkProtectedProcesses(tt.cgroup, tt.pids); errors.Is(err, ErrRefused) != tt.refused {
			t.Errorf("%s: checkProtectedProcesses = %v; want refused %v", tt.name, err, tt.refused)
		}
	}
}

func TestRefusesItself(t *testing.T) {
	h, path := acttest.Cgroup(t)
	for _, p := range []string{"/", "../x", "/a/../b"} {
		if err := Kill(t.Context(), h, Target{Path: p}, 0, NotRequested, func() {}); err == nil {
			t.Errorf("Kill(%q) was not refused", p)
		}
		if err := Freeze(t.Context(), h, p); err == nil {
			t.Errorf("Freeze(%q) was not refused", p)
		}
	}
	// This creates a real cgroup with this process in it, for a moment.
	dir, _, err := h.Dir(freezer, path)
	if err != nil {
		t.Fatal(err)
	}
	originalCgroup, _, err := h.Dir(freezer, ownCgroup(t, h))
	if err != nil {
		t.Fatal(err)
	}
	self := []byte(strconv.Itoa(os.Getpid()))
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), self, 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(filepath.Join(originalCgroup, "cgroup.procs"), self, 0); err != nil {
			t.Error(err)
		}
	}()
	if err := Freeze(t.Context(), h, path); !errors.Is(err, ErrRefused) {
		t.Errorf("Freeze of its own cgroup = %v; want it refused", err)
	}
	if _, err := killRound(t.Context(), h, Target{Path: path}); err != nil {
		t.Errorf("killRound = %v: does it freeze this process's cgroup?", err)
	}
}

// ownCgroup returns this process's cgroup in the freezer hierarchy.
func ownCgroup(t *testing.T, h *cgroup.Hierarchy) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (h.Version(freezer) == 1 && strings.Contains(f[1], freezer) || h.Version(freezer) == 2 && f[0] == "0") {
			return f[2]
		}
	}
	t.Fatalf("no freezer in /proc/self/cgroup:\n%s", data)
	return ""
}

func TestSignalOnlyToTheListedProcess(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	earlier := process{pid: cmd.Process.Pid, start: 1} // the PID of a process that began at boot
	if err := earlier.signal(unix.SIGKILL); err != nil {
		t.Fatalf("signal: %v", err)
	}
	// A signal reaches the process before one that is sent later: the process ends by the later one, and not by SIGKILL.
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Errorf("the later process with the same PID was signalled: %v", err)
	}
	_ = cmd.Wait()
	if ended := cmd.ProcessState.Sys().(syscall.WaitStatus); ended.Signal() != unix.SIGTERM {
		t.Errorf("the later process with the same PID ended by %s; want SIGTERM, the test's own", ended.Signal())
	}
}

func TestRunner(t *testing.T) {
	h, path := acttest.Cgroup(t)
	acttest.Run(t, h, path, acttest.IgnoreSIGTERM)
	r := &Runner{Action: KillPods, Do: KillExecutor(h), Log: slog.New(slog.DiscardHandler)}
	recorded := false
	r.Start(t.Context(), Order{Node: "n", Eviction: tick.PodEviction{UID: "u"}, Cgroup: path, Grace: 100 * time.Millisecond, Record: func() error { recorded = true; return nil }})
	r.Start(t.Context(), Order{Node: "n", Eviction: tick.PodEviction{UID: "v"}, Record: func() error { return nil }})
	r.Wait()
	got := map[string][]string{}
	for _, x := range r.TakeResults() {
		got[x.UID] = append(got[x.UID], x.State)
	}
	if want := fmt.Sprint(map[string][]string{"u": {tick.StateCreated, tick.StateSucceeded}, "v": {tick.StateFailed}}); fmt.Sprint(got) != want || !recorded {
		t.Errorf("results %v, recorded %v; want %s", got, recorded, want)
	}
	if len(r.TakeResults()) != 0 {
		t.Error("results were returned twice")
	}
}
