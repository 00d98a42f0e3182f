package plan

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// bandwidth simulates a kernel of either version with quotas and bursts, in microseconds of a period of 100 ms, and rejects
// what the kernel rejects (tg_set_bandwidth and __cfs_schedulable in kernel/sched/core.c).
type bandwidth struct {
	version      int
	quota, burst map[string]int64
}

func (k *bandwidth) write(w Write) error {
	n, err := microsOf(quotaOf(w.New))
	if err != nil {
		return err
	}
	quota, burst := k.quota[w.Cgroup], k.burst[w.Cgroup]
	if isQuota(w.Name) {
		quota = n
	} else if burst = n; n < 0 {
		return fmt.Errorf("EINVAL: a burst of %d", n)
	}
	switch {
	case quota >= 0 && quota < minQuotaMicroseconds:
		return fmt.Errorf("EINVAL: quota %d", quota)
	case quota >= 0 && burst > quota:
		return fmt.Errorf("EINVAL: burst %d over quota %d", burst, quota)
	}
	before := k.quota[w.Cgroup]
	k.quota[w.Cgroup], k.burst[w.Cgroup] = quota, burst
	for name, own := range k.quota {
		if k.version != 1 || own < 0 {
			continue
		}
		for up := path.Dir(name); up != "/"; up = path.Dir(up) {
			if limit := k.quota[up]; limit >= 0 && own > limit {
				k.quota[w.Cgroup] = before
				return fmt.Errorf("EINVAL: %s has %d, over the %d of %s", name, own, limit, up)
			} else if limit >= 0 {
				break
			}
		}
	}
	return nil
}

func (k *bandwidth) quotaText(name string) string {
	text := strconv.FormatInt(k.quota[name], 10)
	if k.version == 1 {
		return text
	}
	if k.quota[name] < 0 {
		text = "max"
	}
	return text + " 100000"
}

func (k *bandwidth) present(settings []Setting) {
	for i := range settings {
		s := &settings[i]
		burst := strconv.FormatInt(k.burst[s.Cgroup], 10)
		if s.Version == 1 {
			s.Period = "100000"
		}
		if isBurst(s.Name) {
			s.Observed, s.Quota = burst, k.quotaText(s.Cgroup)
		} else {
			s.Observed, s.Burst = k.quotaText(s.Cgroup), burst
		}
	}
}

func (k *bandwidth) around(settings []Setting) []Neighbour {
	var out []Neighbour
	for _, name := range names {
		if k.version == 1 && !slices.ContainsFunc(settings, func(s Setting) bool { return s.Cgroup == name && s.Name == fileQuota }) {
			out = append(out, Neighbour{File: File{Controller: "cpu", Cgroup: name, Name: fileQuota}, Observed: k.quotaText(name), Period: "100000", Burst: strconv.FormatInt(k.burst[name], 10)})
		}
	}
	return out
}

func TestBurstsAreAcceptedStepByStep(t *testing.T) {
	for _, version := range []int{1, 2} {
		rapid.Check(t, func(t *rapid.T) {
			k := &bandwidth{version: version, quota: map[string]int64{}, burst: map[string]int64{}}
			var desired []tick.Cgroup
			for _, name := range names {
				quota := rapid.OneOf(rapid.Just(int64(-1)), rapid.Int64Range(10, 4000)).Draw(t, "quota"+name)
				for up := path.Dir(name); up != "/" && version == 1; up = path.Dir(up) {
					if limit := k.quota[up]; limit >= 0 && (quota < 0 || quota*100 > limit) {
						quota = limit / 100
					}
				}
				k.quota[name], k.burst[name] = quota, rapid.Int64Range(0, 600000).Draw(t, "burst"+name)
				if quota >= 0 {
					k.quota[name] = quota * 100
					k.burst[name] = min(k.burst[name], quota*100)
				}
				c := tick.Cgroup{Cgroup: name}
				if rapid.Bool().Draw(t, "quotaNamed"+name) {
					c.CPUMaxMilliCPU = new(rapid.OneOf(rapid.Just(int64(-1)), rapid.Int64Range(10, 4000)).Draw(t, "newQuota"+name))
				}
				if rapid.Bool().Draw(t, "burstNamed"+name) {
					c.CPUBurstMilliCPU = new(rapid.Int64Range(0, 8000).Draw(t, "newBurst"+name))
				}
				desired = append(desired, c)
			}
			settings, problems := Translate(machine(version, cpus.New(0)), desired)
			if len(problems) > 0 {
				t.Fatalf("problems: %v", problems)
			}
			before := k.clone()
			k.present(settings)
			writes, problems := Make(machine(version, cpus.New(0)), settings, k.around(settings))
			for i, w := range writes {
				for _, need := range w.Needs {
					if need >= i {
						t.Fatalf("write %d needs %d, which comes later", i, need)
					}
				}
				if err := k.write(w); err != nil {
					t.Fatalf("write %d: %q to %s of %s: %v\nwrites %v", i, w.New, w.Name, w.Cgroup, err, steps(writes))
				}
			}
			for _, c := range desired {
				quota, burst := k.quota[c.Cgroup], k.burst[c.Cgroup]
				want := before.burst[c.Cgroup]
				if c.CPUBurstMilliCPU != nil {
					want = *c.CPUBurstMilliCPU * 100
				}
				if quota >= 0 {
					want = min(want, quota)
				}
				if burst != want {
					t.Fatalf("%s: burst %d, want %d of a quota of %d\nwrites %v", c.Cgroup, burst, want, quota, steps(writes))
				}
				if c.CPUMaxMilliCPU != nil && (len(problems) == 0) {
					if want := max(*c.CPUMaxMilliCPU, -1) * 100; want >= 0 && quota != want || want < 0 && quota >= 0 {
						t.Fatalf("%s: quota %d, want %d\nwrites %v", c.Cgroup, quota, want, steps(writes))
					}
				}
			}
			k.present(settings) // then nothing else is written
			for i := range settings {
				if s := &settings[i]; isBurst(s.Name) && !s.IsAsDesired() {
					t.Fatalf("%s of %s is %s and not done", s.Name, s.Cgroup, s.Observed)
				}
			}
		})
	}
}

func (k *bandwidth) clone() *bandwidth {
	out := &bandwidth{version: k.version, quota: map[string]int64{}, burst: map[string]int64{}}
	maps.Copy(out.quota, k.quota)
	maps.Copy(out.burst, k.burst)
	return out
}

func TestMakeBursts(t *testing.T) {
	n := tick.Ptr[int64]
	for _, c := range []struct {
		name         string
		version      int
		quota, burst int64 // of /a
		want         tick.Cgroup
		steps        []string
	}{
		{"as desired", 1, 100000, 50000, tick.Cgroup{CPUBurstMilliCPU: n(500)}, nil},
		{"cut to the quota", 1, 100000, 0, tick.Cgroup{CPUBurstMilliCPU: n(10000)}, []string{"/a cpu.cfs_burst_us: 0 -> 100000"}},
		{"cut to the quota of version 2", 2, 100000, 0, tick.Cgroup{CPUBurstMilliCPU: n(10000)}, []string{"/a cpu.max.burst: 0 -> 100000"}},
		{"no quota", 2, -1, 0, tick.Cgroup{CPUBurstMilliCPU: n(10000)}, []string{"/a cpu.max.burst: 0 -> 1000000"}},
		{"none", 2, 100000, 70000, tick.Cgroup{CPUBurstMilliCPU: n(0)}, []string{"/a cpu.max.burst: 70000 -> 0"}},
		{
			"the quota grows first", 1, 100000, 100000,
			tick.Cgroup{CPUMaxMilliCPU: n(2000), CPUBurstMilliCPU: n(10000)},
			[]string{"/a cpu.cfs_quota_us: 100000 -> 200000", "/a cpu.cfs_burst_us: 100000 -> 200000 needs [0]"},
		},
		{
			"the burst shrinks first", 2, 200000, 200000,
			tick.Cgroup{CPUMaxMilliCPU: n(1000), CPUBurstMilliCPU: n(10000)},
			[]string{"/a cpu.max.burst: 200000 -> 100000", "/a cpu.max: 200000 100000 -> 100000 100000 needs [0]"},
		},
		{
			"a quota where there was none", 1, -1, 500000,
			tick.Cgroup{CPUMaxMilliCPU: n(1000), CPUBurstMilliCPU: n(300)},
			[]string{"/a cpu.cfs_burst_us: 500000 -> 30000", "/a cpu.cfs_quota_us: -1 -> 100000 needs [0]"},
		},
		{
			"a burst that nobody names gives way", 1, 200000, 150000,
			tick.Cgroup{CPUMaxMilliCPU: n(1000)},
			[]string{"/a cpu.cfs_burst_us: 150000 -> 100000 (implied)", "/a cpu.cfs_quota_us: 200000 -> 100000 needs [0]"},
		},
		{"and not without need", 2, 200000, 50000, tick.Cgroup{CPUMaxMilliCPU: n(1000)}, []string{"/a cpu.max: 200000 100000 -> 100000 100000"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.Cgroup = "/a"
			k := &bandwidth{version: c.version, quota: map[string]int64{"/a": c.quota}, burst: map[string]int64{"/a": c.burst}}
			settings, _ := Translate(machine(c.version, cpus.New(0)), []tick.Cgroup{c.want})
			k.present(settings)
			writes, problems := Make(machine(c.version, cpus.New(0)), settings, nil)
			if diff := cmp.Diff(c.steps, steps(writes)); diff != "" || len(problems) > 0 {
				t.Errorf("problems %v, steps (-want +got):\n%s", problems, diff)
			}
		})
	}
}

// A burst that an earlier plan reduced for its quota grows with it again; older kernels have no burst.
func TestImpliedBurstIsRestored(t *testing.T) {
	for burst, want := range map[string][]string{
		"100000":  {"/a cpu.cfs_quota_us: 100000 -> 300000", "/a cpu.cfs_burst_us: 100000 -> 250000 (implied) needs [0]"},
		"":        {"/a cpu.cfs_quota_us: 100000 -> 300000"},
		"rubbish": {"/a cpu.cfs_quota_us: 100000 -> 300000"},
	} {
		settings, _ := Translate(machine(1, cpus.New(0)), []tick.Cgroup{{Cgroup: "/a", CPUMaxMilliCPU: new(int64(3000))}})
		s := &settings[0]
		s.Observed, s.Period, s.Burst = "100000", "100000", burst
		if burst == "100000" {
			s.OriginalBurst = "250000"
		}
		writes, problems := Make(machine(1, cpus.New(0)), settings, nil)
		if diff := cmp.Diff(want, steps(writes)); diff != "" || len(problems) > 0 {
			t.Errorf("burst %q: problems %v, steps (-want +got):\n%s", burst, problems, diff)
		}
	}
}

// A burst that an earlier plan increased stays, as far as the quota allows.
func TestImpliedBurstStays(t *testing.T) {
	settings, _ := Translate(machine(2, cpus.New(0)), []tick.Cgroup{{Cgroup: "/a", CPUMaxMilliCPU: new(int64(300))}})
	s := &settings[0]
	s.Observed, s.Burst, s.OriginalBurst = "50000 100000", "40000", "0"
	writes, problems := Make(machine(2, cpus.New(0)), settings, nil)
	want := []string{"/a cpu.max.burst: 40000 -> 30000 (implied)", "/a cpu.max: 50000 100000 -> 30000 100000 needs [0]"}
	if diff := cmp.Diff(want, steps(writes)); diff != "" || len(problems) > 0 {
		t.Errorf("problems %v, steps (-want +got):\n%s", problems, diff)
	}
}

func TestBurstIsRefused(t *testing.T) {
	for _, c := range []struct {
		milli           int64
		period, quota   string
		present, refuse string
	}{
		{-1, "100000", "-1", "0", "refused"},
		{maxBurstMilliCPU + 1, "100000", "-1", "0", "refused"},
		{1 << 62, "100000", "-1", "0", "refused"},
		{500, "", "-1", "0", "period"},
		{500, "0", "-1", "0", "period"},
		{500, "9223372036854775807", "-1", "0", "period"},
		{500, "100000", "", "0", "quota"},
		{500, "100000", "x", "0", "quota"},
		{500, "100000", "-1", "x", "burst is"},
		{500, "100000", "-1", "-1000", "burst is"},
	} {
		settings, problems := Translate(machine(1, cpus.New(0)), []tick.Cgroup{{Cgroup: "/a", CPUBurstMilliCPU: &c.milli}})
		for i := range settings {
			settings[i].Observed, settings[i].Period, settings[i].Quota = c.present, c.period, c.quota
		}
		writes, more := Make(machine(1, cpus.New(0)), settings, nil)
		problems = append(problems, more...)
		if len(writes) > 0 || len(problems) != 1 || !strings.Contains(problems[0].Error, c.refuse) {
			t.Errorf("%+v: writes %v, problems %v", c, writes, problems)
		}
	}
}
