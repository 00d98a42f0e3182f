package apply

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"polder/lib/cgroup"
	"polder/lib/tick"
)

// busyKernel is a hierarchy whose kernel refuses every write while it is busy.
type busyKernel struct {
	*cgroup.Hierarchy
	busy bool
}

func (w *busyKernel) WriteFile(controller, path, name, value string) error {
	if w.busy {
		return &os.PathError{Op: "write", Path: path + "/" + name, Err: unix.EBUSY}
	}
	return w.Hierarchy.WriteFile(controller, path, name, value)
}

// The value that a file keeps because the kernel refuses all later writes stays isolate's own, however many these are, also for
// another process.
func TestRefusedWritesDoNotHideWrittenValue(t *testing.T) {
	h, base := newCopy(t, map[string]string{"a/cpu.max": "max 100000"})
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	w := &busyKernel{Hierarchy: h}
	a, _ := newApplier(t, h, func(o *Options) { o.Journal, o.Writer = j, w })
	apply := func(milli int64) tick.Isolation {
		return a.Apply([]tick.Cgroup{{Cgroup: "/a", CPUMaxMilliCPU: &milli}})
	}
	apply(1000)
	w.busy = true
	for milli := int64(900); milli > 900-10*2*maxWritten; milli -= 10 {
		if out := apply(milli); len(out.Errors) != 1 || out.Applied != 0 {
			t.Fatalf("%d milli-CPU: applied %d, errors:\n%s", milli, out.Applied, errorsOf(out))
		}
	}
	apply(500)
	size := j.Size()
	apply(500)
	if j.Size() != size {
		t.Errorf("the journal grows from %d to %d bytes as a refused write is repeated", size, j.Size())
	}
	for range 2 * maxWritten { // so do refused writes of a restore
		j.Close()
		j = openJournal(t, j.Path())
		b, _ := newApplier(t, h, func(o *Options) { o.Journal, o.Writer = j, w })
		if out, err := b.Restore(false); err != nil || out != (Restored{Failed: 1}) {
			t.Fatalf("a refused restore: %v, %v", out, err)
		}
	}
	w.busy = false
	j.Close()
	j = openJournal(t, j.Path())
	b, _ := newApplier(t, h, func(o *Options) { o.Journal, o.Writer = j, w })
	if out, err := b.Restore(false); err != nil || out != (Restored{Values: 1}) || read(t, base, "a/cpu.max") != "max 100000" {
		t.Errorf("restore: %v, %v, cpu.max is %q; want one value restored", out, err, read(t, base, "a/cpu.max"))
	}
}

// A kill at any write of a plan that follows refused ones leaves a value that a restore takes for isolate's.
func TestKillAfterRefusedWrites(t *testing.T) {
	h, base := newCopy(t, map[string]string{"a/cpu.max": "max 100000"})
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	w := &busyKernel{Hierarchy: h}
	a, counter := newApplier(t, h, func(o *Options) { o.Journal = j })
	counter.Writer = w
	for i, milli := range []int64{1000, 900, 890, 880, 870, 860} {
		w.busy = i > 0
		if i == 5 {
			counter.killAt = counter.writes + 1
		}
		func() {
			var done bool
			defer recoverKill(&done)
			a.Apply([]tick.Cgroup{{Cgroup: "/a", CPUMaxMilliCPU: &milli}})
		}()
	}
	if counter.writes != counter.killAt {
		t.Fatalf("%d writes, want a kill at %d", counter.writes, counter.killAt)
	}
	j.Close()
	j = openJournal(t, j.Path())
	b, _ := newApplier(t, h, func(o *Options) { o.Journal = j })
	if out, err := b.Restore(false); err != nil || out != (Restored{Values: 1}) || read(t, base, "a/cpu.max") != "max 100000" {
		t.Errorf("restore: %v, %v, cpu.max is %q; want one value restored", out, err, read(t, base, "a/cpu.max"))
	}
}
