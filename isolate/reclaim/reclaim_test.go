package reclaim

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/isolate/plan"
	"polder/lib/cgroup"
	"polder/lib/tick"
)

// machine is a copy of a machine of cgroup version 2 with the given uptime. The clock of a copy stands still; the guest's test (tests/vm)
// covers the kernel's behaviour on a write.
func machine(t *testing.T, up float64, files ...string) (*Runner, string) {
	t.Helper()
	root := t.TempDir()
	for _, file := range append(files, "sys/fs/cgroup/cgroup.procs", "sys/fs/cgroup/cgroup.controllers=memory", "proc/sys/kernel/random/boot_id=b1", fmt.Sprintf("proc/uptime=%.2f 1.00", up)) {
		name, text, _ := strings.Cut(file, "=")
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := cgroup.Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	r := New(Options{Hierarchy: h, Root: root, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(r.Close)
	return r, root
}

func ask(at float64, cgroups ...string) *tick.MemoryReclaim {
	m := &tick.MemoryReclaim{Boot: "b1", BootSeconds: at}
	for _, c := range cgroups {
		m.Cgroups = append(m.Cgroups, tick.CgroupReclaim{Cgroup: c, Bytes: 5 << 20})
	}
	return m
}

// A request is executed in parts, once, and a later tick reports it; a cgroup that was removed is no failure.
func TestReclaimOnce(t *testing.T) {
	r, root := machine(t, 100, "sys/fs/cgroup/memory.reclaim", "sys/fs/cgroup/b/memory.reclaim", "sys/fs/cgroup/b/cgroup.procs")
	var out tick.Isolation
	r.Apply(&out, ask(99, "/b", "/gone"))
	r.running.Wait()
	r.Apply(&out, ask(99, "/b"))
	r.Apply(&out, ask(98, "/b"))
	if len(out.Reclaims) != 2 || out.Reclaims[0].State != tick.ReclaimSkipped || out.Reclaims[1].State != tick.ReclaimSkipped || len(out.Errors) > 0 {
		t.Errorf("repeats: %+v", out)
	}
	out = tick.Isolation{}
	r.Report(&out)
	if len(out.Reclaims) != 2 || out.Reclaims[0].State != tick.ReclaimDone || out.Reclaims[0].ReclaimedBytes != 5<<20 || out.Reclaims[0].BootSeconds != 99 || out.Reclaims[0].Seconds <= 0 ||
		out.Reclaims[1].State != tick.ReclaimSkipped || out.Reclaims[1].Cgroup != "/gone" {
		t.Errorf("reported: %+v", out.Reclaims)
	}
	if data, err := os.ReadFile(filepath.Join(root, "sys/fs/cgroup/b/memory.reclaim")); err != nil || strings.TrimSpace(string(data)) != fmt.Sprint(1<<20) {
		t.Errorf("the last part is %q, %v", data, err)
	}
	out = tick.Isolation{}
	if r.Report(&out); out.Reclaims != nil {
		t.Errorf("reported twice: %+v", out.Reclaims)
	}
}

// While a reclaim is in progress no other one begins, nothing waits for it, and dropped requests are not executed later.
func TestOneAtATime(t *testing.T) {
	r, root := machine(t, 100, "sys/fs/cgroup/memory.reclaim", "sys/fs/cgroup/b/cgroup.procs")
	file := filepath.Join(root, "sys/fs/cgroup/b/memory.reclaim")
	if err := unix.Mkfifo(file, 0o600); err != nil { // a write blocks, as in the kernel
		t.Fatal(err)
	}
	var out tick.Isolation
	r.Apply(&out, ask(95, "/b"))
	r.Apply(&out, ask(96, "/b"))
	if len(out.Reclaims) != 1 || out.Reclaims[0].Reason != "an earlier one is in progress" {
		t.Errorf("the second: %+v", out.Reclaims)
	}
	reader, err := os.OpenFile(file, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	r.running.Wait()
	out = tick.Isolation{}
	r.Apply(&out, ask(96, "/b"))
	r.Apply(&out, ask(97, "/b"))
	r.running.Wait()
	r.Report(&out)
	if len(out.Reclaims) != 3 || !strings.HasPrefix(out.Reclaims[0].Reason, "a repeat") || out.Reclaims[1].BootSeconds != 95 || out.Reclaims[2].BootSeconds != 97 {
		t.Errorf("after the first has ended: %+v", out.Reclaims)
	}
}

// A failure is an error of the tick that reports it.
func TestAFailureIsReported(t *testing.T) {
	r, root := machine(t, 100, "sys/fs/cgroup/memory.reclaim", "sys/fs/cgroup/b/cgroup.procs")
	if err := os.Mkdir(filepath.Join(root, "sys/fs/cgroup/b/memory.reclaim"), 0o755); err != nil { // which accepts no write
		t.Fatal(err)
	}
	var out tick.Isolation
	r.Apply(&out, ask(99, "/b"))
	r.running.Wait()
	r.Report(&out)
	if len(out.Reclaims) != 1 || out.Reclaims[0].State != tick.ReclaimFailed || len(out.Errors) != 1 || out.Errors[0].Key != plan.KeyReclaim {
		t.Errorf("reported: %+v", out)
	}
}

// A kernel without the file is reported once; from then on only the key is named.
func TestKernelWithoutReclaim(t *testing.T) {
	r, _ := machine(t, 100)
	for i := range 3 {
		var out tick.Isolation
		r.Apply(&out, ask(99+float64(i), "/b"))
		if errors := len(out.Errors); errors != max(1-i, 0) || len(out.Unavailable) != 1 || out.Reclaims != nil {
			t.Errorf("round %d: %+v", i, out)
		}
	}
}

// On the machine itself samples from before the start are ignored.
func TestRequestBeforeStartIsSkipped(t *testing.T) {
	h, err := cgroup.Detect("/")
	if err != nil {
		t.Fatal(err)
	}
	r := New(Options{Hierarchy: h, Root: "/", Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	defer r.Close()
	now, known := r.secondsSinceBoot()
	if !known || r.lastRequest <= 0 || r.lastRequest > now || r.boot == "" {
		t.Fatalf("the start is %v, now %v, the run %q", r.lastRequest, now, r.boot)
	}
	if why := r.skipReason(&tick.MemoryReclaim{Boot: r.boot, BootSeconds: r.lastRequest}); !strings.Contains(why, "older than the start of isolate") {
		t.Errorf("what was sampled before is begun: %q", why)
	}
}
