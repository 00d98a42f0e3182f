package plan

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// A quota and a burst may be as large as the largest machine, 8192 CPUs, and no larger.
func TestLargestMachineQuota(t *testing.T) {
	for milliCPU, want := range map[int64]bool{8_192_000: true, 8_192_001: false} {
		if _, err := setQuota(nil, &tick.Cgroup{CPUMaxMilliCPU: &milliCPU}, &Setting{}); (err == nil) != want {
			t.Errorf("a quota of %d: %v", milliCPU, err)
		}
		burst := (milliCPU-8_192_000)*100 + 819_200_000
		if _, err := setBurst(nil, &tick.Cgroup{CPUBurstMilliCPU: &burst}, &Setting{}); (err == nil) != want {
			t.Errorf("a burst of %d: %v", burst, err)
		}
	}
}

// A quota is rounded to the nearest milli-CPU, and unknown if the text or the period is not a number.
func TestMilliCPU(t *testing.T) {
	const largest = math.MaxInt64 / 1000
	for _, c := range []struct {
		text, period string
		want         *int64
	}{
		{"50000", "100000", new(int64(500))},
		{"50000 100000", "100000", new(int64(500))},
		{"33333", "100000", new(int64(333))},
		{"66667", "100000", new(int64(667))},
		{"150", "100000", new(int64(2))},
		{"149", "100000", new(int64(1))},
		{"0", "100000", new(int64(0))},
		{"3", "1", new(int64(3000))},
		{"-1", "100000", new(int64(tick.Unlimited))},
		{"max 100000", "100000", new(int64(tick.Unlimited))},
		{"max", "", new(int64(tick.Unlimited))},
		{fmt.Sprint(largest), "1", new(int64(largest * 1000))},
		{fmt.Sprint(largest + 1), "1", nil},
		{"-2", "100000", nil},
		{"x", "100000", nil},
		{"", "100000", nil},
		{"50000", "", nil},
		{"50000", "0", nil},
		{"50000", "-1", nil},
	} {
		if diff := cmp.Diff(c.want, MilliCPU(c.text, c.period)); diff != "" {
			t.Errorf("%q of %q (-want +got):\n%s", c.text, c.period, diff)
		}
	}
}

// The shares are those that opencontainers converts to the weight, and the largest if there are several.
func TestSharesOfAWeight(t *testing.T) {
	for weight, want := range map[int64]int64{
		1: 2, 2: 5, 3: 9, 5: 19, 10: 50, 39: 305, 79: 758, 100: 1024, 101: 1037, 200: 2451, 500: 7603, 1000: 17614,
		5000: 117921, 9999: 262114, 10000: 262144,
	} {
		if got := sharesOf(weight); got != want {
			t.Errorf("weight %d is %d shares, want %d", weight, got, want)
		}
	}
}

// Version 1's text for "no limit" depends on the page size, of which 64 KiB is the largest.
func TestNoLimitOfAnyPageSize(t *testing.T) {
	for text, want := range map[string]bool{
		"9223372036854771712": true, "9223372036854759424": true, "9223372036854710272": true, "9223372036854710271": false,
	} {
		if got := Same("memory.limit_in_bytes", text, "-1"); got != want {
			t.Errorf("%s is no limit: %t", text, got)
		}
	}
}

// If no quota that the kernel accepts is within the parent's, none is written, and the problem names the advised one.
func TestNoQuotaWithinThatOfTheCgroupAbove(t *testing.T) {
	m := machine(1, cpus.New(0))
	quota := func(cgroup string, milliCPU int64, present, period string) Setting {
		settings, _ := Translate(m, []tick.Cgroup{{Cgroup: cgroup, CPUMaxMilliCPU: &milliCPU}})
		settings[0].Observed, settings[0].Period = present, period
		return settings[0]
	}
	around := func(cgroup, present, period string) Neighbour {
		return Neighbour{File: File{Controller: "cpu", Cgroup: cgroup, Name: fileQuota}, Observed: present, Period: period}
	}
	writes, problems := Make(m, []Setting{quota("/a/b", 500, "-1", "10000")}, []Neighbour{around("/a", "1000", "100000")})
	if len(writes) > 0 || len(problems) != 2 || !strings.Contains(problems[1].Error, "no quota of at least 1000 us in a period of 10000 us") {
		t.Errorf("advised below: %q, %v", steps(writes), problems)
	}
	writes, problems = Make(m, []Setting{quota("/a", 10, "50000", "100000")}, []Neighbour{around("/a/b", "1000", "10000")})
	if diff := cmp.Diff([]string{"/a cpu.cfs_quota_us: 50000 -> 1000"}, steps(writes)); diff != "" || len(problems) > 0 {
		t.Errorf("advised above: %v, steps (-want +got):\n%s", problems, diff)
	}
	// The smallest quota that the kernel accepts is valid.
	writes, problems = Make(m, []Setting{quota("/a/b", 500, "-1", "100000")}, []Neighbour{around("/a", "1000", "100000")})
	if diff := cmp.Diff([]string{"/a/b cpu.cfs_quota_us: -1 -> 1000"}, steps(writes)); diff != "" || len(problems) != 1 {
		t.Errorf("the least quota: %v, steps (-want +got):\n%s", problems, diff)
	}
	m = machine(2, cpus.New(0))
	writes, problems = Make(m, []Setting{quota("/a", 10, "100000 100000", ""), quota("/a/b", tick.Unlimited, "2000 10000", "")}, nil)
	want := []string{"/a cpu.max: 100000 100000 -> 1000 100000", "/a/b cpu.max: 2000 10000 -> max 10000 needs [0]"}
	if diff := cmp.Diff(want, steps(writes)); diff != "" || len(problems) > 0 {
		t.Errorf("on the way to no limit: %v, steps (-want +got):\n%s", problems, diff)
	}
}

// The largest quotas do not overflow.
func TestTheLargestShare(t *testing.T) {
	if got, err := share(1 << 44).largestQuota("2097152"); got != "35184372088833" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}

// A quota that cannot be parsed is not changed, but reported.
func TestUnparsableQuotaIsKept(t *testing.T) {
	for _, present := range []string{"", "max", "max 0", "max x", "x 100000", "1000 0", "1000"} {
		settings, _ := Translate(machine(2, cpus.New(0)), []tick.Cgroup{{Cgroup: "/a", CPUMaxMilliCPU: new(int64(500))}})
		settings[0].Observed = present
		if writes, problems := Make(machine(2, cpus.New(0)), settings, nil); len(writes) > 0 || len(problems) != 1 {
			t.Errorf("%q: %q, %v", present, steps(writes), problems)
		}
	}
}

// An original limit of 0 is a limit, and the tightest.
func TestZeroLimitIsTightest(t *testing.T) {
	for _, desired := range []int64{4096, tick.Unlimited} {
		advised := tick.Cgroup{Cgroup: "/a", MemoryMaxBytes: &desired, MemoryTighterOnly: true}
		settings, _ := Translate(machine(2, cpus.New(0)), []tick.Cgroup{advised})
		settings[0].Original = "0"
		if got, err := settings[0].Desired(); got != "0" || err != nil {
			t.Errorf("%d is written as %q, %v", desired, got, err)
		}
	}
}

// A reclaim's time is valid within the bounds, and the reason for a rejection is reported in seconds.
func TestSkipReason(t *testing.T) {
	for _, c := range []struct {
		seconds, last, at float64
		why               string
	}{
		{100, 50, 99, ""},
		{100, 50, 70, ""},
		{100, 50, 69, "its sample is 31 s old, the limit is 30 s"},
		{100, 70, 70, "a repeat, or older than the start of isolate"},
		{100, 70, 70.5, ""},
		{100, 50, 101, ""},
		{100, 50, 102, "its sample is 2 s ahead of the kernel's clock"},
		{1e12, 0, 1, "its sample is 1000000000 s old, the limit is 30 s"},
		{100, 50, math.Inf(1), "its sample is 1000000000 s ahead of the kernel's clock"},
		{100, 50, math.NaN(), "its time is unknown"},
		{math.NaN(), 50, 99, "its time is unknown"},
	} {
		clock := ReclaimClock{Boot: "b", Seconds: c.seconds, Last: c.last}
		if got := clock.SkipReason(&tick.MemoryReclaim{Boot: "b", BootSeconds: c.at}); got != c.why {
			t.Errorf("%+v: %q", c, got)
		}
		const another = "it is of another boot, or of another machine"
		if got := clock.SkipReason(&tick.MemoryReclaim{Boot: "c", BootSeconds: c.at}); got != another {
			t.Errorf("%+v of another run: %q", c, got)
		}
	}
}

// Parts within the bounds of a reclaim are accepted, others are rejected, and the first ten of many rejections are reported.
func TestReclaimsWithinBounds(t *testing.T) {
	each := func(n int, bytes int64) []tick.CgroupReclaim {
		var out []tick.CgroupReclaim
		for i := range n {
			out = append(out, tick.CgroupReclaim{Cgroup: fmt.Sprintf("/batch/%d", i), Bytes: bytes})
		}
		return out
	}
	for _, c := range []struct {
		name           string
		want           []tick.CgroupReclaim
		done, problems int
		problem        string
	}{
		{"one byte", each(1, 1), 1, 0, ""},
		{"nothing", each(1, 0), 0, 1, "refused: 0 bytes"},
		{"all that a tick may take", each(1, 1<<30), 1, 0, ""},
		{"one more", each(1, 1<<30+1), 0, 1, "refused: 1073741825 bytes: one tick may reclaim 1073741824 in total"},
		{"all of it in two halves", each(2, 1<<29), 2, 0, ""},
		{"two halves and one more", append(each(2, 1<<29), tick.CgroupReclaim{Cgroup: "/c", Bytes: 1}), 2, 1, "refused: 1 bytes: one tick"},
		{"as many cgroups as a tick may name", each(64, 1), 64, 0, ""},
		{"one more cgroup", each(65, 1), 64, 1, "refused: a tick may name 64 cgroups"},
		{"many more", each(90, 1), 64, 10, "refused: a tick may name 64 cgroups"},
		{"a cgroup twice", append(each(1, 1), each(2, 1)...), 1, 2, "refused: named 2 times"},
		{"a pod", []tick.CgroupReclaim{{Cgroup: "/kubepods/besteffort/podx", Bytes: 1}}, 1, 0, ""},
		{"a tier", []tick.CgroupReclaim{{Cgroup: "/kubepods/besteffort", Bytes: 1}}, 0, 1, "refused: memory is reclaimed only from pods"},
	} {
		list, problems := ValidReclaims(c.want)
		if len(list) != c.done || len(problems) != c.problems {
			t.Errorf("%s: %d are done with %d problems, want %d and %d", c.name, len(list), len(problems), c.done, c.problems)
		}
		if len(problems) > 0 && !strings.HasPrefix(problems[0].Error, c.problem) {
			t.Errorf("%s: %v, want %q", c.name, problems, c.problem)
		}
	}
}

// A disk's targets and model may equal their bounds but not exceed them.
func TestBoundsOfADisksCosts(t *testing.T) {
	of := func(change func(*tick.DiskCost)) []tick.DiskCost {
		d := tick.DiskCost{Disk: "sda", Enabled: new(true)}
		change(&d)
		return []tick.DiskCost{d}
	}
	for _, c := range []struct {
		word            string
		field           func(*tick.DiskCost) **float64
		least, most     float64
		under, overMost float64
	}{
		{"rpct", func(d *tick.DiskCost) **float64 { return &d.ReadPercentile }, 0, 100, -0.01, 100.01},
		{"wpct", func(d *tick.DiskCost) **float64 { return &d.WritePercentile }, 0, 100, -0.01, 100.01},
		{"rlat", func(d *tick.DiskCost) **float64 { return &d.ReadLatencyMicroseconds }, 1, 60_000_000, 0.99, 60_000_001},
		{"wlat", func(d *tick.DiskCost) **float64 { return &d.WriteLatencyMicroseconds }, 1, 60_000_000, 0.99, 60_000_001},
		{"min", func(d *tick.DiskCost) **float64 { return &d.MinPercent }, 1, 10_000, 0.99, 10_000.01},
		{"max", func(d *tick.DiskCost) **float64 { return &d.MaxPercent }, 1, 10_000, 0.99, 10_000.01},
	} {
		for value, want := range map[float64]bool{c.least: true, c.most: true, c.under: false, c.overMost: false} {
			lines, problems := costLines(t, 2, of(func(d *tick.DiskCost) { *c.field(d) = &value }), nil)
			if (len(lines) == 1 && strings.Contains(lines[0], " "+c.word+"=")) != want || (len(problems) == 0) != want {
				t.Errorf("%s=%v: %q, %v", c.word, value, lines, problems)
			}
		}
	}
	for value, want := range map[int64]bool{1: true, 1 << 50: true, 0: false, 1<<50 + 1: false} {
		for i := range 6 {
			m := tick.DiskModel{
				ReadBytesPerSecond: 9, SequentialReadsPerSecond: 9, RandomReadsPerSecond: 9,
				WriteBytesPerSecond: 9, SequentialWritesPerSecond: 9, RandomWritesPerSecond: 9,
			}
			reflect.ValueOf(&m).Elem().Field(i).SetInt(value)
			lines, problems := costLines(t, 2, of(func(d *tick.DiskCost) { d.Model = &m }), nil)
			if (len(lines) == 2) != want || (len(problems) == 0) != want {
				t.Errorf("%+v: %q, %v", m, lines, problems)
			}
		}
	}
	good := &tick.DiskModel{
		ReadBytesPerSecond: 9, SequentialReadsPerSecond: 9, RandomReadsPerSecond: 9,
		WriteBytesPerSecond: 9, SequentialWritesPerSecond: 9, RandomWritesPerSecond: 9,
	}
	desired := of(func(d *tick.DiskCost) { d.Model, d.ReadLatencyMicroseconds = good, new(float64(0)) })
	if lines, problems := costLines(t, 2, desired, nil); len(lines) > 0 || len(problems) != 1 {
		t.Errorf("a good model beside a bad target: %q, %v", lines, problems)
	}
	desired = of(func(d *tick.DiskCost) { d.MinPercent, d.MaxPercent = new(float64(80)), new(float64(80)) })
	if lines, problems := costLines(t, 2, desired, nil); len(lines) != 1 || len(problems) > 0 {
		t.Errorf("the pace is 80 exactly: %q, %v", lines, problems)
	}
}

// A cgroup's advice may name at most 256 disks.
func TestNumberOfDisks(t *testing.T) {
	for _, n := range []int{256, 257} {
		var costs []tick.DiskCost
		var limits []tick.DiskLimit
		for range n {
			costs = append(costs, tick.DiskCost{Disk: "sda", Enabled: new(true)})
			limits = append(limits, limit("sda", 1<<20, 0, 0, 0))
		}
		if lines, problems := costLines(t, 2, costs, nil); (len(lines) == 1) != (n == 256) || len(problems) != 1 {
			t.Errorf("costs of %d disks: %q, %v", n, lines, problems)
		}
		lines, problems := linesOf(t, 2, limits, func(File) (string, string) { return "", "" })
		if (len(lines) == 1) != (n == 256) || (len(problems) == 0) != (n == 256) {
			t.Errorf("limits of %d disks: %q, %v", n, lines, problems)
		}
	}
}

// Each limit of a disk may equal its own bounds but not exceed them.
func TestBoundsOfADisksLimits(t *testing.T) {
	bytes := map[int64]bool{65535: false, 65536: true, 1 << 50: true, 1<<50 + 1: false}
	operations := map[int64]bool{3: false, 4: true, 1 << 30: true, 1<<30 + 1: false}
	for i, word := range []string{"rbps", "wbps", "riops", "wiops"} {
		bounds := bytes
		if i >= 2 {
			bounds = operations
		}
		for value, want := range bounds {
			var l [4]int64
			l[i] = value
			lines, problems := linesOf(t, 2, []tick.DiskLimit{limit("sda", l[0], l[1], l[2], l[3])}, func(File) (string, string) { return "", "" })
			written := len(lines) == 1 && strings.Contains(lines[0], fmt.Sprintf(" %s=%d", word, value))
			if written != want || (len(problems) == 0) != want {
				t.Errorf("%s=%d: %q, %v", word, value, lines, problems)
			}
		}
	}
}

// The 0 of version 1 and unknown numbers mean no limit: they do not remove a desired limit.
func TestNoLimitOfADisk(t *testing.T) {
	lines, problems := linesOf(t, 1, []tick.DiskLimit{limit("sda", 1<<20, 0, 0, 0)}, func(File) (string, string) { return "0", "0" })
	if diff := cmp.Diff([]string{"read_bps_device: 8:0 1048576"}, lines); diff != "" || len(problems) > 0 {
		t.Errorf("version 1: %v, lines (-want +got):\n%s", problems, diff)
	}
	for _, first := range []string{"rbps=18446744073709551615", "rbps=9223372036854775807", "rbps=max"} {
		lines, problems := linesOf(t, 2, []tick.DiskLimit{limit("sda", -1, 0, 0, 0)}, func(File) (string, string) { return "rbps=65536", first })
		if diff := cmp.Diff([]string{"io.max: 8:0 rbps=max wbps=max riops=max wiops=max"}, lines); diff != "" || len(problems) > 0 {
			t.Errorf("%s: %v, lines (-want +got):\n%s", first, problems, diff)
		}
	}
}

// A device in a journal is two numbers of up to seven digits, as in the kernel.
func TestNumbersOfADevice(t *testing.T) {
	for device, want := range map[string]bool{
		"8:0": true, "4095:1048575": true, "259:10485750": false, "12345678:0": false,
		"8:": false, ":0": false, "8": false, "8:0 ": false, "a:0": false, "": false,
	} {
		for _, name := range []string{fileIOMax, fileCostQOS, "blkio.throttle.read_bps_device"} {
			if got := IsKnown(File{Controller: "io", Name: name, Device: device}); got != want {
				t.Errorf("%s of %q is known: %t", name, device, got)
			}
		}
	}
	for _, f := range []File{{Name: fileIOMax}, {Name: fileCostQOS}} {
		if f.MessageText("x") != "x" || f.Line("x") != "x" {
			t.Errorf("a text of no device is shown as %q, and written as %q", f.MessageText("x"), f.Line("x"))
		}
	}
	if f := (File{Name: fileCostQOS, Device: "8:0"}); f.MessageText("enable=1") != "8:0 enable=1" {
		t.Errorf("a disk's costs are shown as %q", f.MessageText("enable=1"))
	}
}

// A container's list is kubelet's own if it is the default one, or a recent one, under a policy that writes lists.
func TestEarlierDefaultIsKubeletList(t *testing.T) {
	const c = "/kubepods/podx/c"
	earlier := func(change func(*Kubelet)) *Kubelet {
		k := beside()
		k.EarlierDefaults = []cpus.Set{cpus.New(0, 1), cpus.New(0, 1, 2)}
		change(k)
		return k
	}
	same := earlier(func(*Kubelet) {})
	for _, tt := range []struct {
		k            *Kubelet
		cgroup, name string
		text         string
		want         bool
	}{
		{same, c, fileCPUs, "0,2-4,6-7", true},
		{same, c, fileCPUs, "0-1", true},
		{same, c, fileCPUs, "0-2", true},
		{same, c, fileCPUs, "0-3", false},
		{same, c, fileCPUs, "", false},
		{same, c, fileCPUs, "x", false},
		{same, c, fileMems, "0-1", false},
		{same, c + "/inner", fileCPUs, "0-1", false},
		{same, "/kubepods/podx", fileCPUs, "0-1", false},
		{earlier(func(k *Kubelet) { k.WritesLists = false }), c, fileCPUs, "0-1", false},
		{earlier(func(k *Kubelet) { k.Default = cpus.Set{} }), c, fileCPUs, "0-1", false},
	} {
		if got := tt.k.IsDefaultList(File{Controller: "cpuset", Cgroup: tt.cgroup, Name: tt.name}, tt.text); got != tt.want {
			t.Errorf("%q in %s of %s: %t", tt.text, tt.name, tt.cgroup, got)
		}
	}
}

// Memory nodes are restored unchanged, whatever CPUs kubelet assigned; so is a container's list if kubelet has no default list, without
// the CPUs that it assigned.
func TestRestoreTextWithoutDefault(t *testing.T) {
	const c = "/kubepods/podx/c"
	without, none := beside(), beside()
	without.WritesLists, none.Default = false, cpus.Set{}
	for _, tt := range []struct {
		k                     *Kubelet
		cgroup, name          string
		first, present, wants string
	}{
		{beside(), c, fileMems, "0-1", "0", "0-1"},
		{beside(), "/serve", fileMems, "1", "0", "1"},
		{without, c, fileCPUs, "0-2", "6-7", "0,2"},
		{none, c, fileCPUs, "0-2", "6-7", "0,2"},
		{beside(), "/serve", fileQuota, "1", "0", "1"},
		{beside(), "/serve", fileCPUs, "", "0", ""},
		{&Kubelet{UnknownReason: "torn"}, "/serve", fileCPUs, "0-2", "6-7", "0-2"},
	} {
		got, err := tt.k.RestoreText(File{Controller: "cpuset", Cgroup: tt.cgroup, Name: tt.name}, tt.first, tt.present)
		if got != tt.wants || err != nil {
			t.Errorf("%s of %s is restored as %q, %v; want %q", tt.name, tt.cgroup, got, err, tt.wants)
		}
	}
}

// An empty container name in kubelet's state matches no container.
func TestContainerWithoutID(t *testing.T) {
	m := machine(1, cpus.New(0, 1, 2, 3, 4, 5, 6, 7))
	m.Kubelet = beside()
	m.Kubelet.Containers[""] = cpus.New(2)
	settings, problems := Translate(m, []tick.Cgroup{{Cgroup: "/kubepods/podx/c", CPUSetCPUs: "6-7"}})
	if len(settings) != 1 || len(problems) > 0 {
		t.Fatalf("%+v, %v", settings, problems)
	}
	settings[0].Observed = "2"
	if why := settings[0].ExclusiveReason(); why != "" {
		t.Error(why)
	}
}

// An originally empty list is restored as empty, and a list that a cgroup has is not replaced by its parent's.
func TestEmptyLists(t *testing.T) {
	all := cpus.New(0, 1, 2, 3)
	s, err := RestoreSetting(File{Controller: "cpuset", Cgroup: "/b", Name: fileCPUs}, "cpusetCPUs", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	s.Observed = "0-1"
	writes, problems := Make(machine(1, all), []Setting{s}, nil)
	if diff := cmp.Diff([]string{"/b cpuset.cpus: 0-1 -> "}, steps(writes)); diff != "" || len(problems) > 0 {
		t.Errorf("restored: %v, steps (-want +got):\n%s", problems, diff)
	}
	writes, problems = Make(machine(1, all), nil, []Neighbour{
		{File: File{Controller: "cpuset", Cgroup: "/b", Name: fileMems}, Observed: "0-1"},
		{File: File{Controller: "cpuset", Cgroup: "/b/c", Name: fileMems}, Observed: "1", TakesParentList: true},
		{File: File{Controller: "cpuset", Cgroup: "/b/d", Name: fileMems}, TakesParentList: true},
	})
	if diff := cmp.Diff([]string{"/b/d cpuset.mems:  -> 0-1 (implied)"}, steps(writes)); diff != "" || len(problems) > 0 {
		t.Errorf("filled: %v, steps (-want +got):\n%s", problems, diff)
	}
}

// Each field of a disk's costs is compared.
func TestEqualSeesEveryFieldOfADisksCosts(t *testing.T) {
	f := tick.Ptr[float64]
	full := tick.DiskCost{
		Disk: "a", Enabled: new(true), ReadPercentile: f(1), ReadLatencyMicroseconds: f(1), WritePercentile: f(1), WriteLatencyMicroseconds: f(1),
		MinPercent: f(1), MaxPercent: f(1), Model: &tick.DiskModel{ReadBytesPerSecond: 1},
	}
	again := full
	again.Model = &tick.DiskModel{ReadBytesPerSecond: 1}
	if !Equal(&tick.Cgroup{IOCost: []tick.DiskCost{full}}, &tick.Cgroup{IOCost: []tick.DiskCost{again}}) {
		t.Error("two states that are the same are not equal")
	}
	for i := range reflect.TypeFor[tick.DiskCost]().NumField() {
		other := full
		reflect.ValueOf(&other).Elem().Field(i).SetZero()
		if Equal(&tick.Cgroup{IOCost: []tick.DiskCost{full}}, &tick.Cgroup{IOCost: []tick.DiskCost{other}}) {
			t.Errorf("Equal does not see field %d of a disk's costs", i)
		}
	}
}

// The writes of a quota and of its burst contain their period, which version 2 has beside the quota.
func TestWritesHaveTheirPeriod(t *testing.T) {
	for version, present := range map[int][3]string{1: {"10000", "20000", "10000"}, 2: {"10000 20000", "", "10000 20000"}} {
		m := machine(version, cpus.New(0))
		settings, _ := Translate(m, []tick.Cgroup{{Cgroup: "/a", CPUMaxMilliCPU: new(int64(1000)), CPUBurstMilliCPU: new(int64(1000))}})
		for i := range settings {
			s := &settings[i]
			s.Period = present[1]
			if s.Observed = present[0]; isBurst(s.Name) {
				s.Observed, s.Quota = "0", present[2]
			}
		}
		writes, problems := Make(m, settings, nil)
		if len(writes) != 2 || len(problems) > 0 {
			t.Fatalf("version %d: %q, %v", version, steps(writes), problems)
		}
		for _, w := range writes {
			if w.Period != "20000" || *MilliCPU(w.New, w.Period) != 1000 {
				t.Errorf("version %d: %+v; want a whole CPU of the period 20000", version, w)
			}
		}
	}
}

// If several names mean one disk, the tightest limits apply, in any order of names.
func TestTheTightestLimitsInAnyOrder(t *testing.T) {
	tight, wide := limit("sda", 1<<20, 1<<20, 4, 4), limit("/", 2<<20, -1, 5, -1)
	for _, desired := range [][]tick.DiskLimit{{tight, wide}, {wide, tight}, {tight, wide, tight}, {wide, tight, wide}} {
		lines, problems := linesOf(t, 2, desired, func(File) (string, string) { return "", "" })
		if diff := cmp.Diff([]string{"io.max: 8:0 rbps=1048576 wbps=1048576 riops=4 wiops=4"}, lines); diff != "" || len(problems) > 0 {
			t.Errorf("%+v: %v, lines (-want +got):\n%s", desired, problems, diff)
		}
	}
}

// A disk's limits that cannot be parsed are not changed, and differ from no limits.
func TestGarbledLimitsOfADisk(t *testing.T) {
	for _, text := range []string{"x", "-5", "9223372036854775808"} {
		lines, problems := linesOf(t, 1, []tick.DiskLimit{limit("sda", 1<<20, 0, 0, 0)}, func(File) (string, string) { return text, "" })
		if len(lines) > 0 || len(problems) != 1 {
			t.Errorf("%q: %q, %v", text, lines, problems)
		}
	}
	for _, name := range []string{fileIOMax, "blkio.throttle.read_bps_device"} {
		if Same(name, "x", "") || Same(name, "", "x") || !Same(name, "", "") {
			t.Errorf("what cannot be made out of %s is no limit", name)
		}
	}
}

// Without memoryTighterOnly a limit may be wider, and a protection smaller, than the original one.
func TestLimitsMayBeWider(t *testing.T) {
	advised := tick.Cgroup{Cgroup: "/a", MemoryMaxBytes: new(int64(8192)), MemoryLowBytes: new(int64(8192))}
	settings, _ := Translate(machine(2, cpus.New(0)), []tick.Cgroup{advised})
	for i := range settings {
		s := &settings[i]
		if s.Original = "4096"; isProtection(s.Name) {
			s.Original = "16384"
		}
		if got, err := s.Desired(); got != "8192" || err != nil || s.NeedsOriginal() {
			t.Errorf("%s is written as %q, %v", s.Name, got, err)
		}
	}
}

// A restore restores the original burst, as far as the quota allows, and none that is not a number.
func TestBurstIsRestored(t *testing.T) {
	for text, want := range map[string][]string{"30000": {"/a cpu.cfs_burst_us: 5000 -> 30000"}, "5000": nil, "x": nil} {
		s, err := RestoreSetting(File{Controller: "cpu", Cgroup: "/a", Name: fileBurst}, "cpuBurstMilliCPU", text, 1)
		if err != nil {
			t.Fatal(err)
		}
		s.Observed, s.Period, s.Quota = "5000", "100000", "50000"
		writes, problems := Make(machine(1, cpus.New(0)), []Setting{s}, nil)
		if diff := cmp.Diff(want, steps(writes)); diff != "" || (len(problems) == 1) != (text == "x") {
			t.Errorf("%s: %v, steps (-want +got):\n%s", text, problems, diff)
		}
	}
}

// A burst that must fall while its quota changes rises from there.
func TestABurstFallsAndRises(t *testing.T) {
	m := machine(2, cpus.New(0))
	settings, _ := Translate(m, []tick.Cgroup{
		{Cgroup: "/a", CPUMaxMilliCPU: new(int64(500))},
		{Cgroup: "/a/b", CPUMaxMilliCPU: new(int64(tick.Unlimited)), CPUBurstMilliCPU: new(int64(1000))},
	})
	present := map[string]string{"/a cpu.max": "100000 100000", "/a/b cpu.max": "80000 100000", "/a/b cpu.max.burst": "70000"}
	for i := range settings {
		settings[i].Observed = present[settings[i].Cgroup+" "+settings[i].Name]
		settings[i].Quota = present[settings[i].Cgroup+" cpu.max"]
	}
	writes, problems := Make(m, settings, nil)
	want := []string{
		"/a/b cpu.max.burst: 70000 -> 50000",
		"/a/b cpu.max: 80000 100000 -> 50000 100000 needs [0]",
		"/a cpu.max: 100000 100000 -> 50000 100000 needs [1]",
		"/a/b cpu.max: 50000 100000 -> max 100000 needs [1 2 0]",
		"/a/b cpu.max.burst: 50000 -> 100000 needs [3 0]",
	}
	if diff := cmp.Diff(want, steps(writes)); diff != "" || len(problems) > 0 {
		t.Errorf("problems %v, steps (-want +got):\n%s", problems, diff)
	}
}

// A disk with one rejected limit, or with original limits that cannot be parsed, is not changed.
func TestDiskWithInvalidLimitIsKept(t *testing.T) {
	lines, problems := linesOf(t, 2, []tick.DiskLimit{limit("sda", 1<<20, -2, 0, 0)}, func(File) (string, string) { return "", "" })
	if len(lines) > 0 || len(problems) != 1 {
		t.Errorf("one is refused: %q, %v", lines, problems)
	}
	lines, problems = linesOf(t, 2, []tick.DiskLimit{limit("sda", -1, 0, 0, 0)}, func(File) (string, string) { return "rbps=65536", "x" })
	if len(lines) > 0 || len(problems) != 1 {
		t.Errorf("the first ones cannot be made out: %q, %v", lines, problems)
	}
	if f := (File{Name: fileCostQOS, Device: "8:0"}); f.MessageText("5") != "8:0 5" {
		t.Errorf("a text that is none of limits is shown as %q", f.MessageText("5"))
	}
}

// Each cgroup that occurs twice is reported.
func TestCgroupNamedTwiceIsReported(t *testing.T) {
	twice := []tick.Cgroup{{Cgroup: "/a"}, {Cgroup: "/b"}, {Cgroup: "/a"}, {Cgroup: "/b"}}
	settings, problems := Translate(machine(2, cpus.New(0)), twice)
	if len(settings) > 0 || len(problems) != 2 || problems[0].Cgroup != "/a" || problems[1].Cgroup != "/b" {
		t.Errorf("%+v, %v", settings, problems)
	}
}

// A list without any CPU of the machine is not written at all: an empty one would mean the parent's.
func TestUnavailableListIsNotWritten(t *testing.T) {
	for _, c := range []struct {
		list    string
		have    cpus.Set
		problem string
	}{
		{"8-9", cpus.New(0, 1), "not written: of CPUs 8-9 the machine has none (it has 0-1)"},
		{"0-1", cpus.Set{}, "not written: the machine's CPUs could not be read"},
		{"0-", cpus.New(0, 1), `"0-"`},
	} {
		for _, version := range []int{1, 2} {
			settings, problems := Translate(machine(version, c.have), []tick.Cgroup{{Cgroup: "/kubepods/podx/c", CPUSetCPUs: c.list}})
			if len(settings) > 0 || len(problems) != 1 || !strings.Contains(problems[0].Error, c.problem) {
				t.Errorf("%s on version %d: %+v, %v", c.list, version, settings, problems)
			}
		}
	}
	// Without a kubelet a container's list is treated like any other.
	settings, problems := Translate(machine(2, cpus.New(0, 1)), []tick.Cgroup{{Cgroup: "/kubepods/podx/c", CPUSetCPUs: "1"}})
	if len(settings) != 1 || len(problems) > 0 || settings[0].ExclusiveReason() != "" {
		t.Errorf("%+v, %v", settings, problems)
	}
}

// A weight replaces the idle class only if that is desired.
func TestAWeightBesideTheIdleClass(t *testing.T) {
	for _, idle := range []*bool{nil, new(false), new(true)} {
		want := ""
		if idle != nil && *idle {
			want = fileIdle
		}
		settings, _ := Translate(machine(2, cpus.New(0)), []tick.Cgroup{{Cgroup: "/a", CPUIdle: idle, CPUWeight: new(int64(5))}})
		if s := settings[len(settings)-1]; s.Name != "cpu.weight" || s.ReplacedFile() != want {
			t.Errorf("%s stands for %q, want %q", s.Name, s.ReplacedFile(), want)
		}
	}
}

// A list that contains no CPU of a partition is restored as it was written.
func TestRestoreTextBesidePartitions(t *testing.T) {
	m := Machine{Versions: map[string]int{"cpuset": 2}, Partitions: []Partition{{"/own", cpus.New(5)}}}
	if got, err := m.RestoreText(File{Controller: "cpuset", Cgroup: "/serve", Name: fileCPUs}, "3,2", "6-7"); got != "3,2" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// A value around a quota that cannot be parsed bounds nothing, an invalid quota is not restored, and what an earlier plan took is
// restored as far as the parent allows.
func TestQuotasAround(t *testing.T) {
	m := machine(1, cpus.New(0))
	quota := func(cgroup string, milliCPU int64, present string) []Setting {
		settings, _ := Translate(m, []tick.Cgroup{{Cgroup: cgroup, CPUMaxMilliCPU: &milliCPU}})
		settings[0].Observed, settings[0].Period = present, "100000"
		return settings
	}
	around := func(cgroup, present, own string) []Neighbour {
		return []Neighbour{{File: File{Controller: "cpu", Cgroup: cgroup, Name: fileQuota}, Observed: present, Period: "100000", Original: own}}
	}
	writes, problems := Make(m, quota("/a/b", 500, "-1"), around("/a", "x", ""))
	if diff := cmp.Diff([]string{"/a/b cpu.cfs_quota_us: -1 -> 50000"}, steps(writes)); diff != "" || len(problems) > 0 {
		t.Errorf("garbled above: %v, steps (-want +got):\n%s", problems, diff)
	}
	writes, problems = Make(m, quota("/a", 250, "20000"), around("/a/b", "20000", "30000"))
	want := []string{"/a cpu.cfs_quota_us: 20000 -> 25000", "/a/b cpu.cfs_quota_us: 20000 -> 25000 (implied) needs [0]"}
	if diff := cmp.Diff(want, steps(writes)); diff != "" || len(problems) > 0 {
		t.Errorf("comes back: %v, steps (-want +got):\n%s", problems, diff)
	}
	for name, text := range map[string]string{fileQuota: "x", fileMax: "x 100000"} {
		s, err := RestoreSetting(File{Controller: "cpu", Cgroup: "/a", Name: name}, "cpuMaxMilliCPU", text, 1)
		if s.Observed, s.Period = "50000", "100000"; name == fileMax {
			s.Observed, s.Version = "50000 100000", 2
		}
		if writes, problems := Make(m, []Setting{s}, nil); err != nil || len(writes) > 0 || len(problems) != 1 {
			t.Errorf("%s of %q is restored: %v, %q, %v", name, text, err, steps(writes), problems)
		}
	}
	settings := quota("/a", tick.Unlimited, "max")
	settings[0].Version, settings[0].Name = 2, fileMax
	if writes, problems := Make(m, settings, nil); len(writes) > 0 || len(problems) != 1 {
		t.Errorf("cpu.max without a period: %q, %v", steps(writes), problems)
	}
}

// A file without a valid list is not changed, also beside written ones; if the parent has no list yet, that is reported.
func TestInvalidListsAreKept(t *testing.T) {
	all := cpus.New(0, 1, 2, 3)
	list := func(cgroup, present string) []Setting {
		settings, _ := Translate(machine(1, all), []tick.Cgroup{{Cgroup: cgroup, CPUSetCPUs: "1-2"}})
		settings[0].Observed = present
		return settings
	}
	around := func(cgroup, present string) []Neighbour {
		return []Neighbour{{File: File{Controller: "cpuset", Cgroup: cgroup, Name: fileCPUs}, Observed: present}}
	}
	if writes, _ := Make(machine(1, all), list("/b", "x"), nil); len(writes) > 0 {
		t.Errorf("what is no list is written: %q", steps(writes))
	}
	writes, problems := Make(machine(1, all), list("/b/c", "0"), around("/b", "x"))
	if diff := cmp.Diff([]string{"/b/c cpuset.cpus: 0 -> 1-2"}, steps(writes)); diff != "" || len(problems) > 0 {
		t.Errorf("below what is no list: %v, steps (-want +got):\n%s", problems, diff)
	}
	writes, problems = Make(machine(1, all), list("/b/c", ""), around("/b", ""))
	const problem = "1-2 left out: /b, the cgroup above, has none yet"
	if len(writes) > 0 || len(problems) != 1 || problems[0].Error != problem {
		t.Errorf("below a list that is empty: %q, %v; want %q", steps(writes), problems, problem)
	}
}
