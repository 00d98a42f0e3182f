package apply

import (
	"path/filepath"
	"strings"
	"testing"

	"polder/lib/cgroup"
	"polder/lib/tick"
)

// TestReplacedOriginals: a value that an administrator sets while isolate holds nothing in a file, or wants nothing but to follow the
// original value, is the original one from then on, also after a restart. Each step sets a value, or applies advice, and names what the
// file has then.
func TestReplacedOriginals(t *testing.T) {
	type step struct {
		set    string
		advice tick.Cgroup
		want   string
	}
	const mib = 1 << 20
	factor := func(n int64) tick.Cgroup { return tick.Cgroup{CPUWeightFactor: &n} }
	idle := func(is bool) tick.Cgroup { return tick.Cgroup{CPUIdle: &is} }
	weight := func(n int64) tick.Cgroup { return tick.Cgroup{CPUWeight: &n} }
	quota := func(n int64) tick.Cgroup { return tick.Cgroup{CPUMaxMilliCPU: &n, CPUMaxTighterOnly: true} }
	memory := func(n int64) tick.Cgroup { return tick.Cgroup{MemoryMaxBytes: &n, MemoryTighterOnly: true} }
	for _, c := range []struct {
		name, controller, file, original string
		steps                            []step
	}{
		{"a factor", "cpu", "cpu.shares", "512", []step{
			{"", factor(64), "32768"},
			{"", factor(1), "512"},
			{"4096", tick.Cgroup{}, "4096"},
			{"", factor(64), "262144"},
			{"2048", factor(64), "131072"},
			{"", factor(1), "2048"},
		}},
		{"the weight of what was idle", "cpu", "cpu.shares", "512", []step{
			{"", idle(true), "3"}, {"", idle(false), "512"}, {"2048", idle(false), "2048"}, {"", idle(true), "3"}, {"", idle(false), "2048"},
		}},
		{"a weight", "cpu", "cpu.shares", "512", []step{
			{"", weight(1), "2"}, {"", factor(1), "512"}, {"2048", tick.Cgroup{}, "2048"}, {"", weight(1), "2"}, {"", factor(1), "2048"},
		}},
		{"a quota that is never wider", "cpu", "cpu.cfs_quota_us", "80000", []step{
			{"", quota(500), "50000"}, {"", quota(-1), "80000"}, {"30000", quota(500), "30000"}, {"", quota(200), "20000"}, {"", quota(-1), "30000"},
		}},
		{"a quota that is not held at the end", "cpu", "cpu.cfs_quota_us", "80000", []step{
			{"", quota(500), "50000"}, {"", quota(-1), "80000"}, {"30000", tick.Cgroup{}, "30000"},
		}},
		{"a limit of memory that is never wider", "memory", "memory.limit_in_bytes", "419430400", []step{
			{"", memory(200 * mib), "209715200"},
			{"104857600", memory(200 * mib), "104857600"},
			{"", memory(50 * mib), "52428800"},
			{"", memory(-1), "104857600"},
		}},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(strings.ReplaceAll(c.name, " ", "_")+map[bool]string{true: "_after_restarts"}[restarts], func(t *testing.T) {
				r := newRealTree(t, "a")
				r.set(c.controller, "a", c.file, c.original)
				path := filepath.Join(t.TempDir(), "journal")
				j := openJournal(t, path)
				a, _ := newApplier(t, r.h, func(o *Options) { o.Journal, o.Contest = j, 100 })
				for i, s := range c.steps {
					if s.set != "" {
						r.set(c.controller, "a", c.file, s.set)
					}
					s.advice.Cgroup = r.path("a")
					a.Apply([]tick.Cgroup{s.advice})
					if got := r.get(c.controller, "a", c.file); got != s.want {
						t.Errorf("step %d: %s is %s; want %s", i, c.file, got, s.want)
					}
					if restarts {
						a.Close()
						j.Close()
						j = openJournal(t, path)
						a, _ = newApplier(t, r.h, func(o *Options) { o.Journal, o.Contest = j, 100 })
					}
				}
				last := c.steps[len(c.steps)-1].want
				if out, err := a.Restore(false); err != nil || !out.IsComplete() || r.get(c.controller, "a", c.file) != last {
					t.Errorf("restored: %v, %v, %s is %s; want %s", out, err, c.file, r.get(c.controller, "a", c.file), last)
				}
			})
		}
	}
}

// TestListWithoutOfflineCPUIsRestored: the kernel of version 1 takes a CPU that goes offline out of every list, and does not give it back.
// isolate's list is still recognized as its own.
func TestListWithoutOfflineCPUIsRestored(t *testing.T) {
	files := func(root, batch string) map[string]string {
		out := map[string]string{}
		for dir, list := range map[string]string{"": root, "b/": batch} {
			for _, name := range []string{"cpuset.cpus", "cpuset.effective_cpus"} {
				out[dir+name] = list
			}
			out[dir+"cpuset.mems"], out[dir+"cpuset.effective_mems"], out[dir+"cgroup.procs"] = "0", "0", ""
		}
		return out
	}
	root := t.TempDir()
	base := filepath.Join(root, "sys/fs/cgroup/cpuset")
	fill(t, base, files("0-3", "0-3"))
	h, err := cgroup.Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, path)
	a, _ := newApplier(t, h, func(o *Options) { o.Journal = j })
	advice := []tick.Cgroup{{Cgroup: "/b", CPUSetCPUs: "2-3"}}
	a.Apply(advice)
	fill(t, base, files("0-2", "2")) // CPU 3 goes offline
	if out := a.Apply(advice); out.Unchanged != 1 {
		t.Fatalf("unchanged %d, errors:\n%s", out.Unchanged, errorsOf(out))
	}
	j.Close()
	fill(t, base, files("0-3", "2")) // and online again
	j = openJournal(t, path)
	a, _ = newApplier(t, h, func(o *Options) { o.Journal = j })
	out, err := a.Restore(false)
	if list := read(t, base, "b/cpuset.cpus"); err != nil || !out.IsComplete() || list != "0-3" {
		t.Errorf("restored: %v, %v, the list is %q; want 0-3", out, err, list)
	}
}
