package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// diskMachine has two disks, one of which has two mount points, and a loop device.
func diskMachine(version int) Machine {
	m := machine(version, cpus.New(0))
	m.Disks = []Disk{
		{Name: "loop0", Device: "7:0", Mounts: []string{"/snap"}},
		{Name: "sda", Device: "8:0", Mounts: []string{"/", "/boot"}, IsInAll: true},
		{Name: "sdb", Device: "8:16", Mounts: []string{"/var/lib"}, IsInAll: true},
	}
	return m
}

func limit(disk string, rbps, wbps, riops, wiops int64) tick.DiskLimit {
	d := tick.DiskLimit{Disk: disk}
	for i, at := range []**int64{&d.ReadBytesPerSecond, &d.WriteBytesPerSecond, &d.ReadsPerSecond, &d.WritesPerSecond} {
		if n := []int64{rbps, wbps, riops, wiops}[i]; n != 0 {
			*at = &n
		}
	}
	return d
}

// linesOf plans limits of a cgroup whose files have the given texts, and returns the lines that are written.
func linesOf(t *testing.T, version int, desired []tick.DiskLimit, present func(f File) (now, first string)) (lines []string, problems []tick.IsolationError) {
	t.Helper()
	m := diskMachine(version)
	settings, problems := Translate(m, []tick.Cgroup{{Cgroup: "/a", IOMax: desired}})
	for i := range settings {
		s := &settings[i]
		if !s.NeedsOriginal() || !IsKnown(s.File) || s.Key != keyIOMax {
			t.Errorf("setting %+v: want one that is held against its first value", s)
		}
		s.Observed, s.Original = present(s.File)
	}
	writes, more := Make(m, settings, nil)
	for _, w := range writes {
		lines = append(lines, strings.TrimPrefix(w.Name, "blkio.throttle.")+": "+w.Line(w.New))
	}
	return lines, append(problems, more...)
}

func TestDiskLimits(t *testing.T) {
	none := func(File) (string, string) { return "", "" }
	for _, tt := range []struct {
		name    string
		desired []tick.DiskLimit
		present func(File) (string, string)
		v2, v1  []string
	}{
		{
			"by name",
			[]tick.DiskLimit{limit("sda", 1<<20, 0, 0, 100)},
			none,
			[]string{"io.max: 8:0 rbps=1048576 wbps=max riops=max wiops=100"},
			[]string{"read_bps_device: 8:0 1048576", "write_iops_device: 8:0 100"},
		},
		{
			"by mount point",
			[]tick.DiskLimit{limit("/boot", 0, 1<<20, 0, 0)},
			none,
			[]string{"io.max: 8:0 rbps=max wbps=1048576 riops=max wiops=max"},
			[]string{"write_bps_device: 8:0 1048576"},
		},
		{
			"all, and one of them by itself",
			[]tick.DiskLimit{limit("all", 1<<20, 0, 0, 0), limit("/var/lib", 2<<20, 0, 0, 0)},
			none,
			[]string{"io.max: 8:0 rbps=1048576 wbps=max riops=max wiops=max", "io.max: 8:16 rbps=2097152 wbps=max riops=max wiops=max"},
			[]string{"read_bps_device: 8:0 1048576", "read_bps_device: 8:16 2097152"},
		},
		{
			"two names of one disk: the tighter",
			[]tick.DiskLimit{limit("sda", 1<<20, -1, 0, 0), limit("/", 2<<20, 1<<20, 0, 0)},
			none,
			[]string{"io.max: 8:0 rbps=1048576 wbps=1048576 riops=max wiops=max"},
			[]string{"read_bps_device: 8:0 1048576", "write_bps_device: 8:0 1048576"},
		},
		{"no limit where there was none", []tick.DiskLimit{limit("sda", -1, -1, -1, -1)}, none, nil, nil},
		{"never wider than what was there", []tick.DiskLimit{limit("sda", 1<<30, -1, 0, 0)}, func(f File) (string, string) {
			if f.Name == fileIOMax {
				return "rbps=65536 wbps=70000 riops=7 wiops=max", "rbps=1048576 wbps=1048576 riops=7 wiops=max"
			}
			return "65536", "1048576"
		}, []string{"io.max: 8:0 rbps=1048576 wbps=1048576 riops=7 wiops=max"}, []string{"read_bps_device: 8:0 1048576", "write_bps_device: 8:0 1048576"}},
		{"it is so already", []tick.DiskLimit{limit("sda", 65536, 0, 0, 0)}, func(f File) (string, string) {
			if f.Name == fileIOMax {
				return "rbps=65536 wbps=max riops=9 wiops=max", ""
			}
			return "65536", ""
		}, nil, nil},
	} {
		for version, want := range [][]string{1: tt.v1, 2: tt.v2} {
			if version == 0 {
				continue
			}
			got, problems := linesOf(t, version, tt.desired, tt.present)
			if d := cmp.Diff(want, got); d != "" || len(problems) > 0 {
				t.Errorf("%s, version %d (-want +got):\n%s%v", tt.name, version, d, problems)
			}
		}
	}
}

func TestDiskLimitsRefused(t *testing.T) {
	none := func(File) (string, string) { return "", "" }
	many := make([]tick.DiskLimit, maxDiskLimits+1)
	for i := range many {
		many[i] = limit("sda", 1<<20, 0, 0, 0)
	}
	for _, tt := range []struct {
		desired []tick.DiskLimit
		text    string
	}{
		{[]tick.DiskLimit{limit("sdz", 1<<20, 0, 0, 0)}, `no disk of this machine is "sdz"`},
		{[]tick.DiskLimit{limit("8:0", 1<<20, 0, 0, 0)}, `no disk of this machine is "8:0"`},
		{[]tick.DiskLimit{limit("", 1<<20, 0, 0, 0)}, `no disk of this machine is ""`},
		{[]tick.DiskLimit{limit("/etc", 1<<20, 0, 0, 0)}, `no disk of this machine is "/etc"`},
		{[]tick.DiskLimit{limit("sda", 65535, 0, 0, 0)}, "65535 of \"sda\" refused"},
		{[]tick.DiskLimit{limit("sda", 0, 0, 3, 0)}, "3 of \"sda\" refused"},
		{[]tick.DiskLimit{limit("sda", -2, 0, 0, 0)}, "-2 of \"sda\" refused"},
		{[]tick.DiskLimit{limit("sda", 0, 0, 0, 1<<31)}, "2147483648 of \"sda\" refused"},
		{many, "257 disks refused"},
	} {
		for _, version := range []int{1, 2} {
			lines, problems := linesOf(t, version, tt.desired, none)
			if len(lines) > 0 || len(problems) != 1 || !strings.Contains(problems[0].Error, tt.text) {
				t.Errorf("%.100v: %v, %v; want %q", tt.desired, lines, problems, tt.text)
			}
		}
	}
	if _, problems := Translate(machine(0, cpus.New(0)), []tick.Cgroup{{Cgroup: "/a", IOMax: many[:1]}}); len(problems) != 1 || !IsUnavailable(problems[0]) {
		t.Errorf("without the controller: %v; want it unavailable", problems)
	}
	// A text that cannot be parsed is not changed.
	for _, text := range []string{"rbps=x", "rbps=0", "speed=1", "x"} {
		lines, problems := linesOf(t, 2, []tick.DiskLimit{limit("sda", 1<<20, 0, 0, 0)}, func(File) (string, string) { return text, "" })
		if len(lines) > 0 || len(problems) != 1 {
			t.Errorf("%q present: %v, %v; want no write", text, lines, problems)
		}
	}
}

// For any desired and present limits: only the machine's own disks get lines, no limit is looser than the original one or below the
// minimum, and a restore restores the original text.
func TestAnyDiskLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.SampledFrom([]int64{-1, 0, 1, 4, 65536, 1 << 20, 1 << 62}), rapid.Int64())
		name := rapid.OneOf(rapid.SampledFrom([]string{"sda", "sdb", "loop0", "all", "/", "/boot", "/var/lib", "8:0", "8:0 rbps=max", "../sda", "sda\n8:16 1"}), rapid.String())
		version := rapid.IntRange(1, 2).Draw(t, "version")
		var desired []tick.DiskLimit
		for range rapid.IntRange(0, 5).Draw(t, "number") {
			desired = append(desired, limit(name.Draw(t, "disk"), number.Draw(t, "rbps"), number.Draw(t, "wbps"), number.Draw(t, "riops"), number.Draw(t, "wiops")))
		}
		draw := func(label, file string) string {
			l := unlimitedDisk
			for i := range l {
				if (file == fileIOMax || limitIndex(file) == i) && rapid.Bool().Draw(t, label) {
					l[i] = rapid.Int64Range(1, 1<<40).Draw(t, label)
				}
			}
			if l == unlimitedDisk {
				return ""
			}
			return l.text(file)
		}
		m := diskMachine(version)
		settings, _ := Translate(m, []tick.Cgroup{{Cgroup: "/a", IOMax: desired}})
		seen := map[File]bool{}
		for i := range settings {
			s := &settings[i]
			if seen[s.File] {
				t.Fatalf("two settings of %+v", s.File)
			}
			seen[s.File] = true
			s.Observed, s.Original = draw("present", s.Name), draw("first", s.Name)
		}
		writes, problems := Make(m, settings, nil)
		if len(problems) > 0 {
			t.Fatalf("problems %v of texts that the kernel has", problems)
		}
		for _, w := range writes {
			checkDiskWrite(t, &m, settings, w)
		}
	})
}

func checkDiskWrite(t *rapid.T, m *Machine, settings []Setting, w Write) {
	var s *Setting
	for i := range settings {
		if settings[i].File == w.File {
			s = &settings[i]
		}
	}
	machines := false
	for _, d := range m.Disks {
		machines = machines || d.Device == w.Device
	}
	if s == nil || !machines || !IsKnown(w.File) || strings.ContainsAny(w.Line(w.New), "\n\x00") {
		t.Fatalf("write %+v", w)
	}
	now, err := limitsOf(w.Name, w.New)
	was, _ := limitsOf(w.Name, s.Observed)
	first, _ := limitsOf(w.Name, s.Original)
	if err != nil {
		t.Fatalf("write %+v: %v", w, err)
	}
	for i, n := range now {
		least := int64(minDiskBytes)
		if i >= 2 {
			least = minDiskOperations
		}
		switch {
		case n == was[i] || n == first[i]:
		case n < least || first[i] >= 0 && n > first[i]:
			t.Fatalf("write %+v of %q, first %q", w, s.Observed, s.Original)
		}
	}
	back, err := RestoreSetting(w.File, w.Key, s.Original, s.Version)
	back.Observed = w.New
	if want, wantErr := back.Desired(); err != nil || wantErr != nil || !Same(w.Name, want, s.Original) {
		t.Fatalf("what puts %q back is %q, %v, %v", s.Original, want, err, wantErr)
	}
}

func TestDeviceText(t *testing.T) {
	const text = "8:0 rbps=1 wbps=max riops=max wiops=max\n8:16 rbps=2 wbps=max riops=max wiops=max"
	for device, want := range map[string]string{"8:0": "rbps=1 wbps=max riops=max wiops=max", "8:16": "rbps=2 wbps=max riops=max wiops=max", "8:1": "", "8": "", "": ""} {
		if got := DeviceText(text, device); got != want {
			t.Errorf("DeviceText of %q = %q, want %q", device, got, want)
		}
	}
	one, throttle := File{Name: fileIOMax, Device: "8:0"}, File{Name: throttleFiles[3], Device: "8:0"}
	for _, got := range [][2]string{
		{one.MessageText(""), "8:0 rbps=max wbps=max riops=max wiops=max"}, {throttle.MessageText(""), "8:0 wiops=max"}, {throttle.MessageText("7"), "8:0 wiops=7"}, {one.MessageText("x"), "8:0 x"},
	} {
		if got[0] != got[1] {
			t.Errorf("shown as %q, want %q", got[0], got[1])
		}
	}
	for _, f := range []File{{Controller: "io", Name: fileIOMax}, {Controller: "io", Name: fileIOMax, Device: "8:0 max"}, {Controller: "cpu", Name: fileMax, Device: "8:0"}, {Controller: "cpu", Name: fileIOMax, Device: "8:0"}} {
		if IsKnown(f) {
			t.Errorf("%+v is known", f)
		}
	}
}

// A weight is written to both files that a kernel may have, each in its own range; -1 is the original value.
func TestIOWeight(t *testing.T) {
	for _, tt := range []struct {
		version int
		weight  int64
		first   []string
		want    []string
	}{
		{2, 1, []string{"default 100\n8:0 300", "default 100"}, []string{"io.weight default 1", "io.bfq.weight default 10"}},
		{1, 10000, []string{"500", "100"}, []string{"blkio.weight 1000", "blkio.bfq.weight 1000"}},
		{2, tick.Unlimited, []string{"default 300\n8:0 7", "default 55"}, []string{"io.weight default 300", "io.bfq.weight default 55"}},
		{1, tick.Unlimited, []string{"500", "100"}, []string{"blkio.weight 500", "blkio.bfq.weight 100"}},
	} {
		settings, problems := Translate(machine(tt.version, cpus.New(0)), []tick.Cgroup{{Cgroup: "/a", IOWeight: &tt.weight}})
		if len(settings) != 2 || len(problems) > 0 || settings[0].IsOptional() || !settings[1].IsOptional() {
			t.Fatalf("version %d: %+v, %v", tt.version, settings, problems)
		}
		for i := range settings {
			s := &settings[i]
			if s.Original = tt.first[i]; s.NeedsOriginal() != (tt.weight < 0) {
				t.Errorf("%s needs the first value: %t", s.Name, s.NeedsOriginal())
			}
			if got, err := s.Desired(); s.Name+" "+got != tt.want[i] || err != nil {
				t.Errorf("version %d, weight %d: %s %s, %v; want %s", tt.version, tt.weight, s.Name, got, err, tt.want[i])
			}
		}
	}
	if _, problems := Translate(machine(2, cpus.New(0)), []tick.Cgroup{{Cgroup: "/a", IOWeight: new(int64(0))}, {Cgroup: "/b", IOWeight: new(int64(-2))}}); len(problems) != 2 {
		t.Errorf("problems %v; want two refusals", problems)
	}
}
