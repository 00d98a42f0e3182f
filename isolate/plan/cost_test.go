package plan

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"polder/lib/tick"
)

// costLines plans costs of disks whose files contain present, and returns the lines that are written.
func costLines(t interface{ Errorf(string, ...any) }, version int, desired []tick.DiskCost, present map[string][2]string) (lines []string, problems []tick.IsolationError) {
	settings, problems := Translate(diskMachine(version), []tick.Cgroup{{Cgroup: "/", IOCost: desired}})
	for i := range settings {
		s := &settings[i]
		if !s.NeedsOriginal() || !IsKnown(s.File) || s.Key != keyIOCost || s.Cgroup != "/" {
			t.Errorf("setting %+v", s)
		}
		now := present[s.Name+" "+s.Device]
		s.Observed, s.Original = now[0], now[1]
	}
	writes, more := Make(diskMachine(version), settings, nil)
	for _, w := range writes {
		lines = append(lines, w.Name+": "+w.Line(w.New))
	}
	return lines, append(problems, more...)
}

func TestDiskCosts(t *testing.T) {
	on, off := new(true), new(false)
	f := tick.Ptr[float64]
	model := &tick.DiskModel{ReadBytesPerSecond: 1e8, SequentialReadsPerSecond: 5000, RandomReadsPerSecond: 300, WriteBytesPerSecond: 9e7, SequentialWritesPerSecond: 4000, RandomWritesPerSecond: 200}
	for _, tt := range []struct {
		name    string
		desired []tick.DiskCost
		present map[string][2]string
		want    []string
	}{
		{"on, as the kernel thinks", []tick.DiskCost{{Disk: "sda", Enabled: on}}, nil, []string{"io.cost.qos: 8:0 enable=1 ctrl=auto"}},
		{"by mount point, with targets", []tick.DiskCost{{Disk: "/var/lib", Enabled: on, ReadPercentile: f(95), ReadLatencyMicroseconds: f(5000), MinPercent: f(50), MaxPercent: f(150)}}, nil, []string{"io.cost.qos: 8:16 enable=1 ctrl=user rpct=95.00 rlat=5000 min=50.00 max=150.00"}},
		{"a model", []tick.DiskCost{{Disk: "sda", Enabled: on, Model: model}}, nil, []string{
			"io.cost.model: 8:0 ctrl=user model=linear rbps=100000000 rseqiops=5000 rrandiops=300 wbps=90000000 wseqiops=4000 wrandiops=200", "io.cost.qos: 8:0 enable=1 ctrl=auto",
		}},
		{"all, and one by itself", []tick.DiskCost{{Disk: "all", Enabled: on}, {Disk: "/boot", Enabled: off}}, map[string][2]string{"io.cost.qos 8:0": {"enable=1 ctrl=auto rpct=0.00", ""}}, []string{"io.cost.qos: 8:16 enable=1 ctrl=auto", "io.cost.qos: 8:0 enable=0 ctrl=auto"}},
		{"it is so", []tick.DiskCost{{Disk: "sda", Enabled: on, ReadLatencyMicroseconds: f(5000)}}, map[string][2]string{"io.cost.qos 8:0": {"enable=1 ctrl=user rpct=95.00 rlat=5000 wpct=95.00 wlat=5000 min=50.00 max=150.00", ""}}, nil},
		{"another target", []tick.DiskCost{{Disk: "sda", Enabled: on, ReadLatencyMicroseconds: f(5000)}}, map[string][2]string{"io.cost.qos 8:0": {"enable=1 ctrl=user rlat=7000", ""}}, []string{"io.cost.qos: 8:0 enable=1 ctrl=user rlat=5000"}},
		{"as before, which was off", []tick.DiskCost{{Disk: "sda"}}, map[string][2]string{"io.cost.qos 8:0": {"enable=1 ctrl=auto rpct=0.00 rlat=0", ""}}, []string{"io.cost.qos: 8:0 enable=0 ctrl=auto"}},
		{
			"as before, which was an administrator's",
			[]tick.DiskCost{{Disk: "sda"}},
			map[string][2]string{"io.cost.qos 8:0": {"enable=0 ctrl=auto", "enable=1 ctrl=user rpct=95.00 rlat=75000 wpct=95.00 wlat=150000 min=50.00 max=150.00"}, "io.cost.model 8:0": {"ctrl=user model=linear rbps=5", "ctrl=auto model=linear rbps=9"}},
			[]string{"io.cost.model: 8:0 ctrl=auto", "io.cost.qos: 8:0 enable=1 ctrl=user rpct=95 rlat=75000 wpct=95 wlat=150000 min=50 max=150"},
		},
		{"as before, and it is", []tick.DiskCost{{Disk: "sda"}}, nil, nil},
	} {
		lines, problems := costLines(t, 2, tt.desired, tt.present)
		if diff := cmp.Diff(tt.want, lines); diff != "" || len(problems) > 0 {
			t.Errorf("%s: %s %+v", tt.name, diff, problems)
		}
	}
}

// Costs that are not for the root, version 2, a disk of the machine, or within bounds are rejected and reported, and nothing is written.
func TestCostsRefused(t *testing.T) {
	on := new(true)
	f := tick.Ptr[float64]
	for want, desired := range map[string]tick.DiskCost{
		`no disk of this machine is "sdz"`:                   {Disk: "sdz", Enabled: on},
		`rpct=101 of "sda" refused`:                          {Disk: "sda", Enabled: on, ReadPercentile: f(101)},
		`wlat=0 of "sda" refused`:                            {Disk: "sda", Enabled: on, WriteLatencyMicroseconds: f(0)},
		`max=NaN of "sda" refused`:                           {Disk: "sda", Enabled: on, MaxPercent: f(math.NaN())},
		`min 90 over max 80 of "sda" refused`:                {Disk: "sda", Enabled: on, MinPercent: f(90), MaxPercent: f(80)},
		`rseqiops=0 of "sda" refused: want 1 to 1.12`:        {Disk: "sda", Enabled: on, Model: &tick.DiskModel{ReadBytesPerSecond: 5}},
		`no disk of this machine is "8:0 enable=1 ctrl=auto`: {Disk: "8:0 enable=1 ctrl=auto\n", Enabled: on},
	} {
		lines, problems := costLines(t, 2, []tick.DiskCost{desired}, nil)
		if len(lines) > 0 || len(problems) != 1 || !strings.Contains(problems[0].Error, want) {
			t.Errorf("%+v: %q, %+v; want %q", desired, lines, problems, want)
		}
	}
	if lines, problems := costLines(t, 1, []tick.DiskCost{{Disk: "sda", Enabled: on}}, nil); len(lines) > 0 || len(problems) != 1 || !IsUnavailable(problems[0]) {
		t.Errorf("version 1: %q, %+v", lines, problems)
	}
	for _, c := range []tick.Cgroup{{Cgroup: "/a", IOCost: []tick.DiskCost{{Disk: "sda", Enabled: on}}}, {Cgroup: "/", IOCost: []tick.DiskCost{{Disk: "sda", Enabled: on}}, IOWeight: new(int64(5))}, {Cgroup: "/"}} {
		if settings, problems := Translate(diskMachine(2), []tick.Cgroup{c}); len(settings) > 0 || len(problems) != 1 {
			t.Errorf("%+v: %+v, %+v", c, settings, problems)
		}
	}
}

// Whatever is advised, each line is for one disk of the machine, once, and in the kernel's format; a written line contains the desired
// values, so that it is not written again.
func TestCostsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := func(label string) *float64 {
			if rapid.Bool().Draw(t, label+"?") {
				return nil
			}
			return new(rapid.OneOf(rapid.Float64Range(1, 100), rapid.Float64()).Draw(t, label))
		}
		var desired []tick.DiskCost
		for range rapid.IntRange(0, 5).Draw(t, "disks") {
			d := tick.DiskCost{
				Disk:           rapid.SampledFrom([]string{"all", "sda", "sdb", "loop0", "/", "/boot", "", "../sda", "8:0"}).Draw(t, "disk"),
				ReadPercentile: number("rpct"), WriteLatencyMicroseconds: number("wlat"), MinPercent: number("min"), MaxPercent: number("max"),
			}
			if rapid.IntRange(0, 3).Draw(t, "on") > 0 {
				d.Enabled = new(rapid.Bool().Draw(t, "enabled"))
			}
			if rapid.Bool().Draw(t, "model") {
				n := rapid.Int64Range(-1, 1<<51).Draw(t, "n")
				d.Model = &tick.DiskModel{
					ReadBytesPerSecond: n, SequentialReadsPerSecond: n, RandomReadsPerSecond: n,
					WriteBytesPerSecond: n, SequentialWritesPerSecond: n, RandomWritesPerSecond: n,
				}
			}
			desired = append(desired, d)
		}
		lines, _ := costLines(t, 2, desired, nil)
		seen := map[string]bool{}
		for _, line := range lines {
			name, rest, _ := strings.Cut(line, ": ")
			device, words, _ := strings.Cut(rest, " ")
			if seen[name+device] || !isCost(name) || device != "7:0" && device != "8:0" && device != "8:16" || strings.Contains(words, "\n") {
				t.Fatalf("line %q", line)
			}
			seen[name+device] = true
			if !sameCost(name, words, words) || sameCost(fileCostQOS, "enable=0", words) && strings.Contains(words, "enable=1") {
				t.Fatalf("line %q", line)
			}
		}
	})
}
