package plan

import (
	"testing"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// A quota that may only be tighter: the original one may have another period on version 2.
func TestTighterQuota(t *testing.T) {
	for _, tt := range []struct {
		version         int
		first, observed string
		desired         int64
		want            string
	}{
		{1, "50000", "20000", 400, "40000"},
		{1, "50000", "20000", 600, "50000"},
		{1, "50000", "20000", tick.Unlimited, "50000"},
		{1, "-1", "20000", tick.Unlimited, "-1"},
		{1, "", "20000", 600, "60000"},
		{2, "10000 20000", "20000 100000", 400, "40000 100000"},
		{2, "10000 20000", "20000 100000", 600, "10000 20000"},
		{2, "10000 20000", "20000 100000", tick.Unlimited, "10000 20000"},
		{2, "max 100000", "20000 100000", tick.Unlimited, "max 100000"},
	} {
		advised := []tick.Cgroup{{Cgroup: "/a", CPUMaxMilliCPU: &tt.desired, CPUMaxTighterOnly: true}}
		settings, problems := Translate(machine(tt.version, cpus.New(0)), advised)
		if len(settings) != 1 || len(problems) > 0 || !settings[0].NeedsOriginal() {
			t.Fatalf("%+v, %v", settings, problems)
		}
		s := &settings[0]
		s.Observed, s.Period, s.Original = tt.observed, "100000", tt.first
		if got, err := s.Desired(); got != tt.want || err != nil {
			t.Errorf("version %d: %dm of %q is %q, %v; want %q", tt.version, tt.desired, tt.first, got, err, tt.want)
		}
	}
}

// Any other quota applies also where the original one is tighter.
func TestQuotaReplacesATighterOne(t *testing.T) {
	for _, tt := range []struct {
		version     int
		first, want string
	}{{1, "50000", "60000"}, {2, "50000 100000", "60000 100000"}} {
		settings, _ := Translate(machine(tt.version, cpus.New(0)), []tick.Cgroup{{Cgroup: "/a", CPUMaxMilliCPU: new(int64(600))}})
		if len(settings) != 1 {
			t.Fatalf("%+v", settings)
		}
		s := &settings[0]
		s.Observed, s.Period, s.Original = tt.first, "100000", tt.first
		if got, err := s.Desired(); got != tt.want || err != nil {
			t.Errorf("version %d: 600m of %q is %q, %v; want %q", tt.version, tt.first, got, err, tt.want)
		}
	}
}

// A limit that may only be tighter never exceeds the original one, and no limit restores it; a protection never falls below the original.
func TestTighterOnly(t *testing.T) {
	for _, tt := range []struct {
		name, first string
		desired     int64
		want        string
	}{
		{"under what was there", "8192", 4096, "4096"},
		{"as much", "8192", 8192, "8192"},
		{"more than was there", "8192", 16384, "8192"},
		{"no limit", "8192", tick.Unlimited, "8192"},
		{"none was there", "max", 4096, "4096"},
		{"none was there, and none is desired", "max", tick.Unlimited, "max"},
		{"what was there cannot be made out", "x", 4096, "4096"},
		{"what was there is not known", "", 4096, "4096"},
	} {
		for _, c := range []tick.Cgroup{
			{Cgroup: "/a", MemoryMaxBytes: &tt.desired, MemoryTighterOnly: true},
			{Cgroup: "/a", MemoryHighBytes: &tt.desired, MemoryTighterOnly: true},
		} {
			settings, problems := Translate(Machine{Versions: map[string]int{"memory": 2}, PageBytes: 4096}, []tick.Cgroup{c})
			if len(settings) != 1 || len(problems) > 0 || !settings[0].NeedsOriginal() {
				t.Fatalf("%s: %+v, %v", tt.name, settings, problems)
			}
			settings[0].Original = tt.first
			if got, err := settings[0].Desired(); got != tt.want || err != nil {
				t.Errorf("%s: %s of %s is %q, %v; want %q", tt.name, settings[0].Name, tt.first, got, err, tt.want)
			}
		}
	}
	for _, tt := range []struct {
		first   string
		desired int64
		want    string
	}{{"0", 8192, "8192"}, {"4096", 8192, "8192"}, {"8192", 4096, "8192"}, {"8192", 0, "8192"}, {"max", 4096, "max"}, {"x", 4096, "4096"}, {"", 4096, "4096"}} {
		settings, _ := Translate(Machine{Versions: map[string]int{"memory": 2}, PageBytes: 4096}, []tick.Cgroup{{Cgroup: "/a", MemoryLowBytes: &tt.desired, MemoryTighterOnly: true}})
		if len(settings) != 1 || !settings[0].NeedsOriginal() {
			t.Fatalf("%+v", settings)
		}
		settings[0].Original = tt.first
		settings[0].Observed = "12288"
		if writes, problems := Make(Machine{}, settings, nil); len(writes) != 1 || writes[0].New != tt.want || len(problems) > 0 {
			t.Errorf("memory.low of %q for %d: %+v, %v; want %q", tt.first, tt.desired, writes, problems, tt.want)
		}
		if got, err := settings[0].Desired(); got != tt.want || err != nil {
			t.Errorf("memory.low of %q for %d is %q, %v; want %q", tt.first, tt.desired, got, err, tt.want)
		}
	}
}
