package plan

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// A value equal to a bound is accepted, one beyond it is rejected.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		name  string
		c     tick.Cgroup
		taken bool
	}{
		{"a burst of a hundred times the most", tick.Cgroup{CPUBurstMilliCPU: new(int64(maxBurstMilliCPU))}, true},
		{"a larger one", tick.Cgroup{CPUBurstMilliCPU: new(int64(maxBurstMilliCPU + 1))}, false},
		{"no burst", tick.Cgroup{CPUBurstMilliCPU: new(int64(0))}, true},
		{"one page of memory", tick.Cgroup{MemoryMaxBytes: new(int64(4096))}, true},
		{"less than a page", tick.Cgroup{MemoryMaxBytes: new(int64(4095))}, false},
	} {
		c.c.Cgroup = "/a"
		settings, problems := Translate(machine(2, cpus.New(0)), []tick.Cgroup{c.c})
		if (len(settings) == 1) != c.taken || (len(problems) == 0) != c.taken {
			t.Errorf("%s: settings %+v, problems %v", c.name, settings, problems)
		}
	}
}

// A burst never exceeds its quota, even one of 0, and its period may be as long as the product with the burst does not overflow.
func TestBurstBesideItsQuota(t *testing.T) {
	const longest = math.MaxInt64 / maxBurstMilliCPU
	for _, c := range []struct {
		milli       int64
		period      int64
		quota, want string
	}{
		{500, 100000, "-1", "50000"},
		{500, 100000, "40000", "40000"},
		{500, 100000, "0", "0"},
		{1000, longest, "-1", strconv.Itoa(longest)},
		{1000, longest + 1, "-1", ""},
	} {
		s := Setting{File: File{Name: fileBurst}, milli: c.milli, Period: strconv.FormatInt(c.period, 10)}
		if got, err := s.burstText(c.quota); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

// Only version 1 checks a list or a quota against ancestors and descendants; it checks no other value.
func TestIsBounded(t *testing.T) {
	for name, want := range map[string]bool{
		fileCPUs: true, fileMems: true, fileQuota: true, "cpu.shares": false, "memory.limit_in_bytes": false,
	} {
		for _, version := range []int{1, 2} {
			if s := (&Setting{File: File{Name: name}, Version: version}); s.IsBounded() != (want && version == 1) {
				t.Errorf("%s of version %d is bound: %v", name, version, s.IsBounded())
			}
		}
	}
}

// On version 2 kubelet's root is not changed while any container has exclusive CPUs; a tier, in which none may have them, is.
func TestKubeletRootIsRefused(t *testing.T) {
	k := beside()
	for cgroup, left := range map[string]bool{
		"/node-0": true, "/kubepods": true, "/kubepods.slice": true, "/kubepods/pod" + uid: true,
		"/kubepods/besteffort": false, "/kubepods/podx": false, "/serve": false,
	} {
		if err := k.refusal(cgroup, 2); (err != nil) != left {
			t.Errorf("%s: %v", cgroup, err)
		}
	}
}

// A restore restores the list of a cgroup above kubelet's root unchanged: its descendants may have CPUs that kubelet assigned.
func TestRestoreTextAboveKubelet(t *testing.T) {
	for cgroup, want := range map[string]string{"/node-0": "0-7", "/node-0/kubepods": "0-7", "/node-1": "0,2-4,6-7"} {
		if got, err := beside().RestoreText(File{Controller: "cpuset", Cgroup: cgroup, Name: fileCPUs}, "0-7", "2-3"); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %s", cgroup, got, err, want)
		}
	}
}

// A list that kubelet forbids is not restored because of partitions either.
func TestRestoreTextKeepsRefusal(t *testing.T) {
	for _, version := range []int{1, 2} {
		m := Machine{Versions: map[string]int{"cpuset": version}, Kubelet: &Kubelet{UnknownReason: "torn"}}
		if got, err := m.RestoreText(File{Controller: "cpuset", Cgroup: "/kubepods/podx/c", Name: fileCPUs}, "0-7", "1"); err == nil || !strings.Contains(err.Error(), "torn") {
			t.Errorf("version %d: %q, %v", version, got, err)
		}
	}
}

// A list is restored if it prevents kubelet's next container from starting: on version 1, above the containers, under a policy that
// writes lists.
func TestMustRestore(t *testing.T) {
	const tierName = "/kubepods/besteffort"
	for cgroup, want := range map[string]bool{
		"/node-0": true, "/kubepods": true, tierName: true, "/kubepods/pod" + uid: true,
		"/kubepods/pod" + uid + "/c": false, "/kubepods/pod" + uid + "/c/inner": false, "/serve": false,
	} {
		for _, name := range []string{fileCPUs, fileMems} {
			if got := beside().MustRestore(File{Controller: "cpuset", Cgroup: cgroup, Name: name}, 1); got != want {
				t.Errorf("%s of %s is restored: %v", name, cgroup, got)
			}
		}
	}
	var none *Kubelet
	unknown, gives := beside(), beside()
	unknown.UnknownReason, gives.WritesLists = "torn", false
	for _, c := range []struct {
		k       *Kubelet
		name    string
		version int
	}{{none, fileCPUs, 1}, {unknown, fileCPUs, 1}, {gives, fileCPUs, 1}, {beside(), fileCPUs, 2}, {beside(), fileQuota, 1}} {
		if c.k.MustRestore(File{Controller: "cpuset", Cgroup: tierName, Name: c.name}, c.version) {
			t.Errorf("%+v is restored", c)
		}
	}
}

// A list that contains no CPU of another is restored as it was written.
func TestRestoreTextKeepsText(t *testing.T) {
	if got, err := beside().RestoreText(File{Controller: "cpuset", Cgroup: "/serve", Name: fileCPUs}, "3,2", "6-7"); got != "3,2" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// These files belong to a setting.
func TestFilesBeside(t *testing.T) {
	for _, c := range []struct{ name, period, quota, burst string }{
		{fileQuota, filePeriod, "", fileBurst},
		{fileBurst, filePeriod, fileQuota, ""},
		{fileMax, "", "", fileMaxBurst},
		{fileMaxBurst, "", fileMax, ""},
		{fileCPUs, "", "", ""},
	} {
		s := Setting{File: File{Name: c.name}}
		if s.PeriodFile() != c.period || s.QuotaFile() != c.quota || s.BurstFile() != c.burst || s.ReplacedFile() != "" {
			t.Errorf("%s: %q, %q, %q, %q", c.name, s.PeriodFile(), s.QuotaFile(), s.BurstFile(), s.ReplacedFile())
		}
	}
	if s := (&Setting{replacesIdle: true}); s.ReplacedFile() != fileIdle {
		t.Errorf("a weight for an idle cgroup stands for %q", s.ReplacedFile())
	}
	advised := []tick.Cgroup{{Cgroup: "/a", CPUIdle: new(true), MemoryMaxBytes: new(int64(8192))}}
	settings, _ := Translate(machine(2, cpus.New(0)), advised)
	writes, _ := Make(machine(2, cpus.New(0)), settings, nil)
	written := map[string]bool{}
	for _, w := range writes {
		written[w.Name] = true
		if want := map[string]string{fileIdle: "cpu.weight"}[w.Name]; w.SideEffect != want {
			t.Errorf("%s disturbs %q", w.Name, w.SideEffect)
		}
	}
	if !written[fileIdle] || len(written) < 2 {
		t.Errorf("the writes are %+v; want cpu.idle and another", writes)
	}
}

// A journal may contain the keys' files, each with its own controller, and no others.
func TestIsKnown(t *testing.T) {
	for _, c := range []struct {
		controller, name string
		want             bool
	}{
		{"cpuset", fileCPUs, true},
		{"cpu", fileQuota, true},
		{"cpu", fileMax, true},
		{"memory", "memory.low", true},
		{"cpu", fileCPUs, false},
		{"cpuset", fileQuota, false},
		{"cpuset", "cgroup.procs", false},
		{"cpu", "", false},
	} {
		if IsKnown(File{Controller: c.controller, Name: c.name}) != c.want {
			t.Errorf("%s of %s is known: %v", c.name, c.controller, !c.want)
		}
	}
	one, two := Setting{File: File{Name: "a"}}, Setting{File: File{Name: "a"}, Alternative: "b"}
	if !strings.HasSuffix(one.MissingFile(), "has no a; not written") || !strings.HasSuffix(two.MissingFile(), "has no a or b; not written") {
		t.Errorf("%q, %q", one.MissingFile(), two.MissingFile())
	}
	count := map[string]int{}
	for _, c := range Controllers() {
		count[c]++
	}
	for _, c := range []string{"cpu", "cpuset", "memory", "io"} {
		if count[c] != 1 {
			t.Errorf("controller %s is named %d times", c, count[c])
		}
	}
}

// Restore accepts only valid lists; other files' texts are the kernel's own.
func TestRestoreSetting(t *testing.T) {
	for _, c := range []struct {
		name, text string
		good       bool
	}{
		{fileCPUs, "0-3", true},
		{fileCPUs, "", true},
		{fileCPUs, "many", false},
		{fileMems, "x", false},
		{fileMax, "max 100000", true},
		{"io.weight", "many", true},
	} {
		s, err := RestoreSetting(File{Controller: "c", Cgroup: "/a", Name: c.name}, "key", c.text, 2)
		if (err == nil) != c.good {
			t.Errorf("%s of %q: %v", c.name, c.text, err)
		}
		if err != nil {
			continue
		}
		if want, err := s.Desired(); err != nil || c.name != "io.weight" && want != c.text || c.name == "io.weight" && want != "default many" {
			t.Errorf("%s of %q is written as %q, %v", c.name, c.text, want, err)
		}
	}
}

// A quota that another one bounds moves so that never more than its old or new value is effective, without unnecessary steps.
func TestQuotaSteps(t *testing.T) {
	for _, c := range []struct {
		name     string
		version  int
		present  map[string]string // of the advised cgroups
		advised  map[string]int64
		around   []Neighbour
		want     []string
		problems int
	}{
		{
			name: "who loses its own limit while that above falls goes down first", version: 2,
			present: map[string]string{"/a": "100000 100000", "/a/b": "80000 100000"}, advised: map[string]int64{"/a": 500, "/a/b": -1},
			want: []string{
				"/a/b cpu.max: 80000 100000 -> 50000 100000",
				"/a cpu.max: 100000 100000 -> 50000 100000 needs [0]",
				"/a/b cpu.max: 50000 100000 -> max 100000 needs [0 1]",
			},
		},
		{
			name: "what is not in force needs one step", version: 2,
			present: map[string]string{"/a": "50000 100000", "/a/b": "60000 100000"}, advised: map[string]int64{"/a": 500, "/a/b": -1},
			want: []string{"/a/b cpu.max: 60000 100000 -> max 100000"},
		},
		{
			name: "as much as the cgroup above is not over it", version: 1,
			present: map[string]string{"/a": "50000", "/a/b": "20000"}, advised: map[string]int64{"/a": 500, "/a/b": 500},
			want: []string{"/a/b cpu.cfs_quota_us: 20000 -> 50000"},
		},
		{
			name: "what had no limit gets none back", version: 1,
			present: map[string]string{"/a": "20000"}, advised: map[string]int64{"/a": -1},
			around: []Neighbour{{File: File{Controller: "cpu", Cgroup: "/a/b", Name: fileQuota}, Observed: "20000", Period: "100000", Original: "-1"}},
			want:   []string{"/a cpu.cfs_quota_us: 20000 -> -1", "/a/b cpu.cfs_quota_us: 20000 -> -1 (implied) needs [0]"},
		},
		{
			name: "a limit that was lost comes back", version: 1,
			present: map[string]string{"/a": "20000"}, advised: map[string]int64{"/a": 500},
			around: []Neighbour{{File: File{Controller: "cpu", Cgroup: "/a/b", Name: fileQuota}, Observed: "-1", Period: "100000", Original: "30000"}},
			want: []string{
				"/a/b cpu.cfs_quota_us: -1 -> 20000 (implied)", "/a cpu.cfs_quota_us: 20000 -> 50000",
				"/a/b cpu.cfs_quota_us: 20000 -> 30000 (implied) needs [0 1]",
			},
		},
		{
			name: "nothing comes back beside a cgroup above that stays", version: 1,
			present: map[string]string{"/a": "50000", "/c": "20000"}, advised: map[string]int64{"/a": 500, "/c": 500},
			around: []Neighbour{{File: File{Controller: "cpu", Cgroup: "/a/b", Name: fileQuota}, Observed: "20000", Period: "100000", Original: "30000"}},
			want:   []string{"/c cpu.cfs_quota_us: 20000 -> 50000"},
		},
		{
			name: "a journal's line that is no quota is not believed", version: 1,
			present: map[string]string{"/a": "20000"}, advised: map[string]int64{"/a": 500},
			around: []Neighbour{{File: File{Controller: "cpu", Cgroup: "/a/b", Name: fileQuota}, Observed: "20000", Period: "100000", Original: "x"}},
			want:   []string{"/a cpu.cfs_quota_us: 20000 -> 50000"},
		},
	} {
		m := machine(c.version, cpus.New(0))
		var advised []tick.Cgroup
		for _, cgroup := range slices.Sorted(maps.Keys(c.advised)) {
			advised = append(advised, tick.Cgroup{Cgroup: cgroup, CPUMaxMilliCPU: new(c.advised[cgroup])})
		}
		settings, _ := Translate(m, advised)
		for i := range settings {
			settings[i].Observed, settings[i].Period = c.present[settings[i].Cgroup], "100000"
		}
		writes, problems := Make(m, settings, c.around)
		if diff := cmp.Diff(c.want, steps(writes)); diff != "" || len(problems) != c.problems {
			t.Errorf("%s: problems %v, steps (-want +got):\n%s", c.name, problems, diff)
		}
		for _, w := range writes {
			if w.Key != "cpuMaxMilliCPU" {
				t.Errorf("%s: the key of %+v is %q", c.name, w, w.Key)
			}
		}
	}
}

// Lists of CPUs: another text of the same CPUs is written; a cgroup that follows is derived from its original list; and each step
// has its key.
func TestListSteps(t *testing.T) {
	all := cpus.New(0, 1, 2, 3)
	settings, _ := Translate(machine(2, all), []tick.Cgroup{{Cgroup: "/a", CPUSetCPUs: "0-3"}})
	writes, _ := Make(machine(2, all), settings, nil)
	if diff := cmp.Diff([]string{"/a cpuset.cpus:  -> 0-3"}, steps(writes)); diff != "" {
		t.Errorf("an inherited list becomes the cgroup's own (-want +got):\n%s", diff)
	}

	settings, _ = Translate(machine(1, all), []tick.Cgroup{{Cgroup: "/b", CPUSetCPUs: "1-3"}})
	settings[0].Observed = "0-1"
	writes, _ = Make(machine(1, all), settings, []Neighbour{
		{File: File{Controller: "cpuset", Cgroup: "/b/x", Name: fileCPUs}, Observed: "0", Original: "0,2"},
		{File: File{Controller: "cpuset", Cgroup: "/b", Name: fileMems}, Observed: "0"},
		{File: File{Controller: "cpuset", Cgroup: "/b/x", Name: fileMems}, TakesParentList: true},
	})
	comes := func(w Write) bool { return w.Cgroup == "/b/x" && w.New == "2" }
	if last := writes[len(writes)-1]; last.Cgroup != "/b" || !slices.ContainsFunc(writes, comes) {
		t.Errorf("the child does not come to what it had: %q", steps(writes))
	}
	for _, w := range writes {
		if want := map[string]string{fileCPUs: "cpusetCPUs", fileMems: "cpusetMems"}[w.Name]; w.Key != want {
			t.Errorf("the key of %+v is %q; want %s", w, w.Key, want)
		}
	}
}

// These names are similar to those of other files.
func TestTextsThatDiffer(t *testing.T) {
	for _, c := range []struct {
		name, a, b string
		want       bool
	}{
		{"memory.max", "max", strconv.FormatInt(minUnlimitedBytes, 10), true},
		{"memory.high", "max", "-1", true},
		{"memory.limit_in_bytes", "-1", "9223372036854771712", true},
		{"memory.max", "max", strconv.FormatInt(minUnlimitedBytes-1, 10), false},
		{"memory.max", "x", "0", false},
		{"memory.max", "0", "x", false},
		{fileCPUs, "x", "", false},
		{fileCPUs, "", "x", false},
		{"io.weight", "8:0 300\ndefault 100", "default 100", true},
		{"io.weight", "8:0 300\ndefault 100", "default 300", false},
	} {
		if got := Same(c.name, c.a, c.b); got != c.want {
			t.Errorf("%s: %q and %q are the same: %v", c.name, c.a, c.b, got)
		}
	}
}

// A quota and a period are numbers, and not 0.
func TestPeriods(t *testing.T) {
	const longest = math.MaxInt64 / (maxMilliCPU + 1)
	for period, want := range map[string]string{
		"0": "", "-1": "", "x": "", "": "", "100000": "50000",
		strconv.Itoa(longest): strconv.Itoa(500 * longest / 1000), strconv.Itoa(longest + 1): "",
	} {
		if got, err := quotaText(500, period, "max"); got != want || (err == nil) != (want != "") {
			t.Errorf("half a CPU of the period %q is %q, %v; want %q", period, got, err, want)
		}
	}
	for _, c := range []struct{ quota, period string }{{"x", "100000"}, {"1000", "x"}, {"1000", "0"}, {"", "100000"}, {"1000", ""}} {
		if got, err := shareOf(c.quota, c.period); err == nil {
			t.Errorf("%+v is a share of %d", c, got)
		}
	}
	if got, err := share(1<<44 - 1).largestQuota("1048576"); got != strconv.Itoa(1<<44-1) || err != nil {
		t.Errorf("the largest quota within a share is %s, %v", got, err)
	}
}

// A protection that rises waits for its parent's, and does not rise if that one failed.
func TestProtectionsThatRise(t *testing.T) {
	settings, _ := Translate(machine(2, cpus.New(0)), []tick.Cgroup{
		{Cgroup: "/a", MemoryLowBytes: new(int64(8192))}, {Cgroup: "/a/b", MemoryLowBytes: new(int64(4096))},
	})
	for i := range settings {
		settings[i].Observed = "0"
	}
	writes, problems := Make(machine(2, cpus.New(0)), settings, nil)
	want := []string{"/a memory.low: 0 -> 8192", "/a/b memory.low: 0 -> 4096 needs [0]"}
	if diff := cmp.Diff(want, steps(writes)); diff != "" || len(problems) > 0 {
		t.Errorf("problems %v, steps (-want +got):\n%s", problems, diff)
	}
}
