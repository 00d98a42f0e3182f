package apply

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

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
			t.Errorf("errors:\n%s", errorsOf(out))
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
			t.Fatalf("errors:\n%s", errorsOf(out))
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
