package apply

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"polder/lib/tick"
)

// A limit that may only be tighter does not change an administrator's value, and no limit restores it.
func TestTighterOnlyNeverWidens(t *testing.T) {
	r := newRealTree(t, "a")
	const file = "memory.limit_in_bytes"
	r.set("memory", "a", file, "104857600")
	a, w := newApplier(t, r.h, nil)
	apply := func(bytes int64, want string) {
		t.Helper()
		out := a.Apply([]tick.Cgroup{{Cgroup: r.path("a"), MemoryMaxBytes: new(bytes), MemoryTighterOnly: true}})
		if len(out.Errors) > 0 {
			t.Errorf("%d: %s", bytes, errorsOf(out))
		}
		if got := r.get("memory", "a", file); got != want {
			t.Errorf("for %d bytes %s is %s; want %s", bytes, file, got, want)
		}
	}
	apply(200<<20, "104857600")
	if w.writes != 0 {
		t.Errorf("%d writes for a limit that is wider", w.writes)
	}
	apply(50<<20, "52428800")
	apply(80<<20, "83886080")
	apply(200<<20, "104857600")
	apply(50<<20, "52428800")
	apply(tick.Unlimited, "104857600")
}

// So it is with a quota, as of a systemd unit with CPUQuota=.
func TestTighterQuotaNeverWidens(t *testing.T) {
	r := newRealTree(t, "a")
	const file = "cpu.cfs_quota_us"
	r.set("cpu", "a", file, "80000")
	a, w := newApplier(t, r.h, nil)
	for _, tt := range []struct {
		milliCPU int64
		want     string
	}{{1000, "80000"}, {500, "50000"}, {700, "70000"}, {tick.Unlimited, "80000"}} {
		out := a.Apply([]tick.Cgroup{{Cgroup: r.path("a"), CPUMaxMilliCPU: &tt.milliCPU, CPUMaxTighterOnly: true}})
		if got := r.get("cpu", "a", file); got != tt.want || len(out.Errors) > 0 {
			t.Errorf("for %dm %s is %s, %s; want %s", tt.milliCPU, file, got, errorsOf(out), tt.want)
		}
	}
	if w.writes != 3 {
		t.Errorf("%d writes; want 3", w.writes)
	}
}

// Without a journal a quota that an earlier isolate left looks like the unit's own one: it stays, and a warning says so, once. With a
// journal there is no doubt.
func TestOwnLimitWithoutAJournalIsReported(t *testing.T) {
	r := newRealTree(t, "a")
	r.set("cpu", "a", "cpu.cfs_quota_us", "80000")
	for _, tt := range []struct {
		name    string
		journal bool
		want    int
	}{{"without a journal", false, 1}, {"with one", true, 0}} {
		var log bytes.Buffer
		a, _ := newApplier(t, r.h, func(o *Options) {
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
			if tt.journal {
				o.Journal = openJournal(t, filepath.Join(t.TempDir(), "journal"))
			}
		})
		for _, milliCPU := range []int64{500, 1000, tick.Unlimited, 500, 1000} {
			a.Apply([]tick.Cgroup{{Cgroup: r.path("a"), CPUMaxMilliCPU: &milliCPU, CPUMaxTighterOnly: true}})
		}
		if got := strings.Count(log.String(), "without --journal it may be one"); got != tt.want {
			t.Errorf("%s: %d warnings; want %d: %s", tt.name, got, tt.want, &log)
		}
		if got := r.get("cpu", "a", "cpu.cfs_quota_us"); got != "80000" {
			t.Errorf("%s: the quota is %s", tt.name, got)
		}
	}
}
