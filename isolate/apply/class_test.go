package apply

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/isolate/plan"
	"polder/lib/tick"
)

// TestWeightReplacesIdleClass: a kernel with the idle class gets no weight beside it; a kernel without it gets the weight, and the
// missing key is named once.
func TestWeightReplacesIdleClass(t *testing.T) {
	want := []tick.Cgroup{{Cgroup: "/a", CPUIdle: new(true), CPUWeight: new(int64(1))}}
	h, base := newCopy(t, map[string]string{"a/cpu.weight": "100", "a/cpu.idle": "0"})
	a, _ := newApplier(t, h, nil)
	for range 2 {
		if out := a.Apply(want); len(out.Errors) > 0 {
			t.Errorf("reported errors:\n%s", errorsOf(out))
		}
	}
	if idle, weight := read(t, base, "a/cpu.idle"), read(t, base, "a/cpu.weight"); idle != "1" || weight != "100" {
		t.Errorf("with the idle class: cpu.idle %s, cpu.weight %s; want 1 and 100", idle, weight)
	}

	h, base = newCopy(t, map[string]string{"a/cpu.weight": "100"})
	a, _ = newApplier(t, h, nil)
	for round := range 3 {
		out := a.Apply(want)
		if round > 0 && len(out.Errors) > 0 {
			t.Errorf("round %d repeats:\n%s", round, errorsOf(out))
		}
		if !slices.Equal(out.Unavailable, []string{"cpuIdle"}) {
			t.Errorf("unavailable: %v, want cpuIdle", out.Unavailable)
		}
	}
	if weight := read(t, base, "a/cpu.weight"); weight != "1" {
		t.Errorf("without the idle class cpu.weight is %s, want 1", weight)
	}
}

// TestIdleClassIsRestored: from the idle class to a weight and back, everything is restored byte for byte.
func TestIdleClassIsRestored(t *testing.T) {
	r := newRealTree(t, "batch")
	r.set("cpu", "batch", "cpu.shares", "512")
	before := r.snapshot("batch")
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	for _, step := range []struct {
		idle         bool
		weight       *int64
		shares, want string
	}{
		{true, new(int64(1)), "3", "1"},
		{false, new(int64(12)), "64", "0"},
		{true, new(int64(1)), "3", "1"},
		{false, new(int64(1)), "2", "0"}, // the kernel changed the weight, not another program
		{true, new(int64(1)), "3", "1"},
		{false, new(int64(1)), "2", "0"},
		{true, new(int64(1)), "3", "1"},
		{false, nil, "512", "0"},
		{true, new(int64(1)), "3", "1"},
	} {
		out := a.Apply([]tick.Cgroup{{Cgroup: r.path("batch"), CPUIdle: &step.idle, CPUWeight: step.weight}})
		if len(out.Errors) > 0 {
			t.Fatalf("reported errors:\n%s", errorsOf(out))
		}
		if got := r.get("cpu", "batch", "cpu.idle"); got != step.want {
			t.Errorf("%+v: cpu.idle is %s, want %s", step, got, step.want)
		}
		if got := r.get("cpu", "batch", "cpu.shares"); got != step.shares {
			t.Errorf("%+v: cpu.shares is %s, want %s", step, got, step.shares)
		}
	}
	a.Close()
	j.Close()
	j, err := OpenJournal(j.Path(), "/", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	b, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	if out, err := b.Restore(false); err != nil || out.Failed+out.External > 0 {
		t.Errorf("restore: %v, %v", out, err)
	}
	if after := r.snapshot("batch"); !maps.Equal(before, after) {
		t.Errorf("after the restore:\n%v\nwant\n%v", after, before)
	}
}

// A cgroup that leaves the idle class gets its own weight back although isolate ended, or a write failed, before the weight was written,
// or another program ended the class. Whoever sets the kernel's default afterwards keeps it.
func TestLostWeightIsRestored(t *testing.T) {
	const own, standard = "777", "1024"
	for name, lose := range map[string]func(r *realTree, j *Journal, a *Applier, w *counted, services []tick.Cgroup) (*Applier, *counted){
		"killed before the weight": func(r *realTree, j *Journal, a *Applier, w *counted, services []tick.Cgroup) (*Applier, *counted) {
			w.killAt = w.writes + 2
			func() {
				var done bool
				defer recoverKill(&done)
				a.Apply(services)
			}()
			j.Close()
			return newApplier(t, r.h, func(o *Options) { o.Journal = openJournal(t, j.Path()) })
		},
		"the weight is refused": func(r *realTree, _ *Journal, a *Applier, w *counted, services []tick.Cgroup) (*Applier, *counted) {
			w.Writer = refusingWeights{w.Writer}
			for range 2 {
				if out := a.Apply(services); len(out.Errors) != 1 {
					t.Errorf("got errors %s; want the refused weight, in each round", errorsOf(out))
				}
			}
			w.Writer = r.h
			return a, w
		},
		"another program": func(r *realTree, _ *Journal, a *Applier, w *counted, _ []tick.Cgroup) (*Applier, *counted) {
			r.set("cpu", "batch", "cpu.idle", "0")
			return a, w
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRealTree(t, "batch")
			r.set("cpu", "batch", "cpu.shares", own)
			j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
			a, w := newApplier(t, r.h, func(o *Options) { o.Journal = j })
			batch := []tick.Cgroup{{Cgroup: r.path("batch"), CPUIdle: new(true)}}
			services := []tick.Cgroup{{Cgroup: r.path("batch"), CPUIdle: new(false)}}
			for _, desired := range [][]tick.Cgroup{batch, services, services, batch} { // the weight was restored once before
				a.Apply(desired)
			}
			a, w = lose(r, j, a, w, services)
			if idle, weight := r.get("cpu", "batch", "cpu.idle"), r.get("cpu", "batch", "cpu.shares"); idle != "0" || weight != standard {
				t.Fatalf("cpu.idle is %s, cpu.shares is %s; want 0, and the kernel's default %s", idle, weight, standard)
			}
			if out := a.Apply(services); len(out.Errors) > 0 || out.Applied != 1 {
				t.Errorf("applied %d, errors: %s; want the weight", out.Applied, errorsOf(out))
			}
			if weight := r.get("cpu", "batch", "cpu.shares"); weight != own {
				t.Errorf("cpu.shares is %s, want %s", weight, own)
			}
			writes := w.writes
			r.set("cpu", "batch", "cpu.shares", standard)
			a.Apply(services)
			if weight := r.get("cpu", "batch", "cpu.shares"); weight != standard || w.writes != writes {
				t.Errorf("cpu.shares is %s, want %s that another program set afterwards", weight, standard)
			}
		})
	}
}

// A restore overwrites a weight that the kernel set with cpu.idle, not one that an administrator has set since the cgroup is no longer
// idle.
func TestRestoreKeepsWeightAfterIdleness(t *testing.T) {
	const own = "777"
	for name, c := range map[string]struct {
		isIdle bool
		weight string // set afterwards
		want   string
		out    Restored
	}{
		"idle":                     {isIdle: true, want: own, out: Restored{Values: 2}},
		"restored with the class":  {want: own, out: Restored{Unchanged: 2}},
		"the kernel's default":     {weight: "1024", want: own, out: Restored{Unchanged: 1, Values: 1}},
		"set by an administrator":  {weight: "333", want: "333", out: Restored{Unchanged: 2}},
		"the kernel's, while idle": {weight: "3", want: "3", out: Restored{Unchanged: 1, External: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRealTree(t, "batch")
			r.set("cpu", "batch", "cpu.shares", own)
			j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
			a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
			for _, idle := range []bool{true, false, c.isIdle} {
				a.Apply([]tick.Cgroup{{Cgroup: r.path("batch"), CPUIdle: &idle}})
			}
			if c.weight != "" {
				r.set("cpu", "batch", "cpu.shares", c.weight)
			}
			if out := restoreWith(t, r, j, false); out != c.out {
				t.Errorf("%v, want %v", out, c.out)
			}
			if weight := r.get("cpu", "batch", "cpu.shares"); weight != c.want {
				t.Errorf("cpu.shares is %s, want %s", weight, c.want)
			}
		})
	}
}

// refusingWeights refuses every write of a weight.
type refusingWeights struct{ Writer }

func (r refusingWeights) WriteFile(controller, cgroup, name, value string) error {
	if name == plan.WeightFile(1) {
		return unix.EIO
	}
	return r.Writer.WriteFile(controller, cgroup, name, value)
}

// The weight of a cgroup that was idle before isolate wrote it is unknown: nothing but the kernel's default remains.
func TestWeightOfIdleCgroupIsUnknown(t *testing.T) {
	r := newRealTree(t, "batch")
	r.set("cpu", "batch", "cpu.idle", "1")
	a, _ := newApplier(t, r.h, nil)
	for round, idle := range []bool{false, false, true, false, false} {
		if out := a.Apply([]tick.Cgroup{{Cgroup: r.path("batch"), CPUIdle: &idle}}); len(out.Errors) > 0 {
			t.Errorf("got errors %s; want none", errorsOf(out))
		}
		if weight := r.get("cpu", "batch", "cpu.shares"); !idle && weight != "1024" {
			t.Errorf("round %d: cpu.shares is %s, want the kernel's default", round, weight)
		}
	}
}
