package resched

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/tick"
	"polder/tests/await"
)

// The child process of a test is this program.
func TestMain(m *testing.M) {
	if IsChild() {
		RunChild()
	}
	os.Exit(m.Run())
}

// On this machine there is one thread for each CPU, only on that CPU, which sleeps again and again. A new interval replaces the process,
// and so do other CPUs; without advice it has ended.
func TestThreads(t *testing.T) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	r := New(Options{MoveToRoot: stay, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(r.Stop)
	pids := map[int]bool{}
	for _, seconds := range []float64{0.001, 0.001, 0.002} {
		out := awaitInForce(t, r, every(seconds))
		if out.ReschedIntervalSeconds == nil || *out.ReschedIntervalSeconds != seconds {
			t.Fatalf("in force: %v, want %v s", out.ReschedIntervalSeconds, seconds)
		}
		pids[r.child.process.Pid] = true
		await.Until(t, 30*time.Second, "a thread wakes on each CPU", func() string {
			before := sleepsByCPU(t, r.child.process.Pid)
			time.Sleep(10 * time.Millisecond) // a span in which they wake several times; if not, the next span counts
			for cpu, sleeps := range sleepsByCPU(t, r.child.process.Pid) {
				if sleeps <= before[cpu] {
					return fmt.Sprintf("CPU %d: %d and %d sleeps", cpu, before[cpu], sleeps)
				}
			}
			if len(before) != allowed.Count() {
				return fmt.Sprintf("threads of the CPUs %v, want %d", before, allowed.Count())
			}
			return ""
		})
	}
	if len(pids) != 2 {
		t.Errorf("processes %v for two intervals", pids)
	}
	fewer := allowed
	for cpu := 0; fewer.Count() == allowed.Count(); cpu++ {
		fewer.Clear(cpu)
	}
	if allowed.Count() > 1 { // as if the kernel took a CPU offline
		before := r.child.process.Pid
		if err := unix.SchedSetaffinity(before, &fewer); err != nil {
			t.Fatal(err)
		}
		if apply(t, r, every(0.002)); r.child.process.Pid == before || r.child.cpus != allowed {
			t.Errorf("process %d for the CPUs %v after process %d", r.child.process.Pid, r.child.cpus, before)
		}
	}
	pid := r.child.process.Pid
	if out := apply(t, r, &tick.Advice{}); out.ReschedIntervalSeconds != nil {
		t.Errorf("without advice %v s are in force", *out.ReschedIntervalSeconds)
	}
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d: %v, want that it has ended", pid, err)
	}
}

// A process that ends although the advice is in force is an error of every tick, and is not started again.
func TestProcessEnds(t *testing.T) {
	r := New(Options{MoveToRoot: stay, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(r.Stop)
	apply(t, r, every(0.001))
	if err := unix.Kill(r.child.process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var out tick.Isolation
	await.Until(t, 30*time.Second, "the end is noticed", func() string {
		out = tick.Isolation{}
		if r.Apply(&out, every(0.001)); r.child != nil {
			return "there is a process still"
		}
		return ""
	})
	for range 2 {
		if len(out.Errors) != 1 || out.Errors[0].Key != intervalKey || !strings.Contains(out.Errors[0].Error, "killed") {
			t.Errorf("reported errors %+v", out.Errors)
		}
		if out.ReschedIntervalSeconds != nil || r.child != nil {
			t.Errorf("%+v", out)
		}
		out = tick.Isolation{}
		r.Apply(&out, every(0.001))
		r.Report(&out)
	}
	if apply(t, r, &tick.Advice{}); r.child != nil {
		t.Error("without advice a process was started")
	}
}

// The process ends with its parent, whatever ends that.
func TestParentIsKilled(t *testing.T) {
	if os.Getenv("RESCHED_TEST_PARENT") != "" {
		r := New(Options{MoveToRoot: stay, Log: slog.New(slog.DiscardHandler)})
		apply(t, r, every(0.001))
		fmt.Printf("child %d\n", r.child.process.Pid)
		select {}
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestParentIsKilled$")
	parent.Env = append(os.Environ(), "RESCHED_TEST_PARENT=1")
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	_, err = fmt.Fscanf(stdout, "child %d\n", &pid)
	if kill := parent.Process.Kill(); err != nil || kill != nil {
		t.Fatal(err, kill)
	}
	_ = parent.Wait() // it was killed
	await.Until(t, 30*time.Second, "the child ends", func() string {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err == nil && strings.TrimSpace(string(comm)) == childName && !isZombie(pid) { // init may reap it late
			return "it still runs"
		}
		return ""
	})
}

// A dry run reports the interval and starts nothing; on a copy of a machine nothing is started either.
func TestNothingStarts(t *testing.T) {
	for _, o := range []Options{{DryRun: true}, {Copy: true}} {
		o.MoveToRoot, o.Log = stay, slog.New(slog.DiscardHandler)
		r := New(o)
		if out := apply(t, r, every(0.001)); out.ReschedIntervalSeconds == nil || *out.ReschedIntervalSeconds != 0.001 {
			t.Errorf("%+v: in force: %v", o, out.ReschedIntervalSeconds)
		}
		if r.child != nil {
			t.Errorf("%+v: a process was started", o)
		}
		r.Stop()
	}
}

// Where the machine's root cgroup is not visible, or not writable, no thread wakes.
func TestNotInRoot(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	hidden := New(Options{Log: log})
	for i := range 2 {
		var out tick.Isolation
		hidden.Apply(&out, every(0.001))
		hidden.Report(&out)
		if hasError := len(out.Errors) == 1; hasError != (i == 0) || len(out.Unavailable) != 1 || out.ReschedIntervalSeconds != nil {
			t.Errorf("tick %d: %+v", i, out)
		}
	}
	pid := 0
	readOnly := New(Options{Log: log, MoveToRoot: func(p int) error { pid = p; return os.ErrPermission }})
	var out tick.Isolation
	readOnly.Apply(&out, every(0.001))
	readOnly.Report(&out)
	if len(out.Errors) != 1 || out.ReschedIntervalSeconds != nil || readOnly.child != nil {
		t.Errorf("%+v", out)
	}
	if err := unix.Kill(pid, 0); pid == 0 || !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d: %v, want that it has ended", pid, err)
	}
}

// Whoever writes the advice cannot make the threads use the CPUs up.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		seconds *float64
		want    way
	}{
		{nil, kernelOnly},
		{new(0.0), kernelOnly},
		{new(-1.0), kernelOnly},
		{new(math.NaN()), kernelOnly},
		{new(1e-9), "200µs"},
		{new(0.001), "1ms"},
		{new(1e9), "10ms"},
		{new(math.Inf(1)), "10ms"},
	} {
		if got := intervalOf(c.seconds); got != c.want {
			t.Errorf("%v s: %q, want %q", c.seconds, got, c.want)
		}
	}
}

// stay leaves the process where it is: most of these tests need no cgroups.
func stay(int) error { return nil }

// every is an advice with an interval.
func every(seconds float64) *tick.Advice { return &tick.Advice{ReschedIntervalSeconds: &seconds} }

// awaitInForce applies an advice until it is in force.
func awaitInForce(t *testing.T, r *Runner, a *tick.Advice) (out tick.Isolation) {
	t.Helper()
	await.Until(t, time.Minute, "the threads have started", func() string {
		if out = apply(t, r, a); !out.ReschedOnWait && out.ReschedIntervalSeconds == nil {
			return fmt.Sprintf("%+v", out)
		}
		return ""
	})
	return out
}

func apply(t *testing.T, r *Runner, a *tick.Advice) (out tick.Isolation) {
	t.Helper()
	r.Apply(&out, a)
	r.Report(&out)
	if len(out.Errors) > 0 {
		t.Fatal(out.Errors)
	}
	return out
}

// isZombie reports whether a process has ended and only its parent does not know yet.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.Contains(stat, []byte(") Z "))
}

// sleepsByCPU returns how often the thread of each CPU has slept: the busiest of those that may run only there.
func sleepsByCPU(t *testing.T, pid int) map[int]int {
	t.Helper()
	statuses, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(statuses) == 0 {
		t.Fatal(statuses, err)
	}
	found := map[int]int{}
	for _, status := range statuses {
		data, err := os.ReadFile(status)
		if err != nil {
			continue // the thread has ended
		}
		cpu, sleeps := -1, 0
		for line := range strings.Lines(string(data)) {
			name, value, _ := strings.Cut(line, ":")
			switch value = strings.TrimSpace(value); name {
			case "Cpus_allowed_list":
				if n, err := strconv.Atoi(value); err == nil { // a list of one CPU
					cpu = n
				}
			case "voluntary_ctxt_switches":
				sleeps, _ = strconv.Atoi(value)
			}
		}
		if cpu >= 0 {
			found[cpu] = max(found[cpu], sleeps)
		}
	}
	return found
}
