package apply

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"polder/lib/tick"
)

// TestWeightFactorMultipliesTheOriginal: also after a restart, because the journal has the original weight. It is restored byte for byte.
func TestWeightFactorMultipliesTheOriginal(t *testing.T) {
	r := newRealTree(t, "web")
	r.set("cpu", "web", "cpu.shares", "512")
	before := r.snapshot("web")
	path := filepath.Join(t.TempDir(), "journal")
	for range 2 {
		j := openJournal(t, path)
		a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
		for _, step := range []struct {
			factor int64
			want   string
		}{{16, "8192"}, {16, "8192"}, {1, "512"}, {1000, "262144"}, {16, "8192"}} {
			out := a.Apply([]tick.Cgroup{{Cgroup: r.path("web"), CPUWeightFactor: &step.factor}})
			if len(out.Errors) > 0 {
				t.Fatalf("%+v: %s", step, errorsOf(out))
			}
			if got := r.get("cpu", "web", "cpu.shares"); got != step.want {
				t.Errorf("%+v: cpu.shares is %s", step, got)
			}
		}
		a.Close()
		j.Close()
	}
	j := openJournal(t, path)
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	if out, err := a.Restore(false); err != nil || out.Failed+out.External > 0 {
		t.Errorf("restored: %+v, %v", out, err)
	}
	if after := r.snapshot("web"); !maps.Equal(before, after) {
		t.Errorf("after the restore:\n%v\nwant\n%v", after, before)
	}
}

// TestWeightFactorNeedsAJournal: without one a restart would take the multiple for the original weight. It is said once.
func TestWeightFactorNeedsAJournal(t *testing.T) {
	h, base := newCopy(t, map[string]string{"web/cpu.weight": "100"})
	a, _ := newApplier(t, h, nil)
	for round := range 2 {
		out := a.Apply([]tick.Cgroup{{Cgroup: "/web", CPUWeightFactor: new(int64(16))}})
		if (len(out.Errors) > 0) != (round == 0) || !slices.Equal(out.Unavailable, []string{"cpuWeightFactor"}) {
			t.Errorf("round %d: unavailable %v, errors:\n%s", round, out.Unavailable, errorsOf(out))
		}
	}
	if weight := read(t, base, "web/cpu.weight"); weight != "100" {
		t.Errorf("cpu.weight is %s, want 100", weight)
	}
}

// TestWeightFactorOfAnIdleCgroup: what an administrator made idle is left alone, without an error; its weight is multiplied before and
// after.
func TestWeightFactorOfAnIdleCgroup(t *testing.T) {
	r := newRealTree(t, "web")
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	for _, step := range []struct{ idle, want string }{{"0", "16384"}, {"1", "3"}, {"0", "16384"}} {
		r.set("cpu", "web", "cpu.idle", step.idle)
		for range 2 {
			out := a.Apply([]tick.Cgroup{{Cgroup: r.path("web"), CPUWeightFactor: new(int64(16))}})
			if got := r.get("cpu", "web", "cpu.shares"); got != step.want || len(out.Errors) > 0 {
				t.Errorf("cpu.idle %s: cpu.shares is %s, want %s; errors:\n%s", step.idle, got, step.want, errorsOf(out))
			}
		}
	}
}
