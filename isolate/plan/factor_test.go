package plan

import (
	"testing"

	"polder/lib/tick"
)

// A factor multiplies the original weight, of either version, up to the kernel's largest; 1 restores it. An original weight that cannot be
// read, or that the kernel shows for an idle cgroup (0), is not multiplied.
func TestWeightFactor(t *testing.T) {
	for _, tt := range []struct {
		version      int
		original     string
		factor       int64
		want, reason string
	}{
		{2, "100", 16, "1600", ""},
		{2, "1", 16, "16", ""},
		{2, "700", 16, "10000", ""},
		{2, "10000", 1, "10000", ""},
		{2, "100", 10000, "10000", ""},
		{1, "1024", 16, "16384", ""},
		{1, "2", 1, "2", ""},
		{1, "262144", 16, "262144", ""},
		{2, "0", 16, "", `the original weight is "0", want 1 to 10000`},
		{2, "", 16, "", `the original weight is "", want 1 to 10000`},
		{2, "10001", 16, "", `the original weight is "10001", want 1 to 10000`},
		{1, "max", 16, "", `the original weight is "max", want 1 to 262144`},
	} {
		c := tick.Cgroup{Cgroup: "/a", CPUWeightFactor: &tt.factor}
		settings, problems := Translate(Machine{Versions: map[string]int{"cpu": tt.version}}, []tick.Cgroup{c})
		if len(settings) != 1 || len(problems) > 0 || !settings[0].NeedsOriginal() || !settings[0].MultipliesOriginal() {
			t.Fatalf("%+v: %+v, %v", tt, settings, problems)
		}
		s := &settings[0]
		s.Original = tt.original
		got, err := s.Desired()
		if got != tt.want || (err == nil) != (tt.reason == "") || err != nil && err.Error() != tt.reason {
			t.Errorf("%+v: %q, %v", tt, got, err)
		}
		if s.Key != "cpuWeightFactor" || s.Name != WeightFile(tt.version) {
			t.Errorf("%+v: key %s of %s", tt, s.Key, s.Name)
		}
	}
}

// A factor out of bounds is refused, and a weight that is desired as well applies.
func TestWeightFactorIsChecked(t *testing.T) {
	machine := Machine{Versions: map[string]int{"cpu": 2}}
	for _, factor := range []int64{0, -1, 10001} {
		settings, problems := Translate(machine, []tick.Cgroup{{Cgroup: "/a", CPUWeightFactor: &factor}})
		if len(settings) > 0 || len(problems) != 1 || problems[0].Key != "cpuWeightFactor" {
			t.Errorf("%d: %+v, %+v", factor, settings, problems)
		}
	}
	settings, problems := Translate(machine, []tick.Cgroup{{Cgroup: "/a", CPUWeightFactor: new(int64(16)), CPUWeight: new(int64(50))}})
	if len(settings) != 1 || len(problems) > 0 || settings[0].MultipliesOriginal() {
		t.Fatalf("%+v, %v", settings, problems)
	}
	if text, err := settings[0].Desired(); text != "50" || err != nil {
		t.Errorf("%q, %v; want the desired weight", text, err)
	}
}
