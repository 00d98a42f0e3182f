package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/cpus"
	"polder/lib/tick"
)

func steps(writes []Write) []string {
	var out []string
	for _, w := range writes {
		s := fmt.Sprintf("%s %s: %s -> %s", w.Cgroup, w.Name, w.Old, w.New)
		if w.IsImplied {
			s += " (implied)"
		}
		if len(w.Needs) > 0 {
			s += fmt.Sprintf(" needs %v", w.Needs)
		}
		out = append(out, s)
	}
	return out
}

func TestMakeSets(t *testing.T) {
	for _, c := range []struct {
		name    string
		version int
		old     map[string]string
		want    []tick.Cgroup
		steps   []string
	}{
		{
			name: "as desired", version: 1,
			old:  map[string]string{"/batch": "0-3"},
			want: []tick.Cgroup{{Cgroup: "/batch", CPUSetCPUs: "3,2,0-1"}},
		},
		{
			name: "batch shrinks before the service grows", version: 1,
			old:   map[string]string{"/serve": "0-1", "/batch": "2-7"},
			want:  []tick.Cgroup{{Cgroup: "/serve", CPUSetCPUs: "0-3"}, {Cgroup: "/batch", CPUSetCPUs: "4-7"}},
			steps: []string{"/batch cpuset.cpus: 2-7 -> 4-7", "/serve cpuset.cpus: 0-1 -> 0-3"},
		},
		{
			name: "children that the advice does not name follow", version: 1,
			old:  map[string]string{"/batch": "0-7", "/batch/same": "0-7", "/batch/some": "3-5", "/batch/other": "0-1", "/batch/unset": ""},
			want: []tick.Cgroup{{Cgroup: "/batch", CPUSetCPUs: "4-7"}},
			steps: []string{
				"/batch/some cpuset.cpus: 3-5 -> 4-5 (implied)",
				"/batch/same cpuset.cpus: 0-7 -> 4-7 (implied)",
				"/batch cpuset.cpus: 0-7 -> 0-1,4-7 needs [1 0]",
				"/batch/other cpuset.cpus: 0-1 -> 4-7 (implied) needs [2]",
				"/batch cpuset.cpus: 0-1,4-7 -> 4-7 needs [3 1 0 2]",
			},
		},
		{
			name: "on version 2 they follow by themselves", version: 2,
			old:   map[string]string{"/batch": "0-7", "/batch/same": "0-7"},
			want:  []tick.Cgroup{{Cgroup: "/batch", CPUSetCPUs: "4-7"}},
			steps: []string{"/batch cpuset.cpus: 0-7 -> 4-7"},
		},
		{
			name: "who must leave all of its CPUs goes before they are given away", version: 1,
			old:  map[string]string{"/batch": "0-1", "/serve": "2-5"},
			want: []tick.Cgroup{{Cgroup: "/serve", CPUSetCPUs: "0-1,4-5"}, {Cgroup: "/batch", CPUSetCPUs: "2-3"}},
			steps: []string{
				"/serve cpuset.cpus: 2-5 -> 4-5",
				"/batch cpuset.cpus: 0-1 -> 2-3",
				"/serve cpuset.cpus: 4-5 -> 0-1,4-5 needs [0]",
			},
		},
		{
			name: "an unset list of version 2 is the parent's", version: 2,
			old:   map[string]string{"/batch": "", "/batch/a": ""},
			want:  []tick.Cgroup{{Cgroup: "/batch", CPUSetCPUs: "4-7"}, {Cgroup: "/batch/a", CPUSetCPUs: "4-5"}},
			steps: []string{"/batch/a cpuset.cpus:  -> 4-5", "/batch cpuset.cpus:  -> 4-7 needs [0]"},
		},
		{
			// A first shrink to 6-7, which both lists contain but the parent does not, would make 0-5 effective.
			name: "on version 2 a list is in force as far as the cgroup above has it", version: 2,
			old:   map[string]string{"/batch": "0-5", "/batch/a": "4-7"},
			want:  []tick.Cgroup{{Cgroup: "/batch", CPUSetCPUs: "0-5"}, {Cgroup: "/batch/a", CPUSetCPUs: "0-1,6-7"}},
			steps: []string{"/batch/a cpuset.cpus: 4-7 -> 0-1,6-7"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := cpus.New(0, 1, 2, 3, 4, 5, 6, 7)
			k := &kernel{version: c.version, all: all, sets: map[string]cpus.Set{}}
			for name, list := range c.old {
				k.sets[name], _ = cpus.Parse(list)
			}
			settings, problems := Translate(machine(c.version, all), c.want)
			k.present(settings)
			around := k.around(settings)
			slices.SortFunc(around, func(a, b Neighbour) int { return strings.Compare(a.Cgroup, b.Cgroup) })
			writes, more := Make(machine(c.version, all), settings, around)
			if p := slices.Concat(problems, more); len(p) > 0 {
				t.Errorf("problems: %v", p)
			}
			if diff := cmp.Diff(c.steps, steps(writes)); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

func TestImpliedSetsAreRestored(t *testing.T) {
	all := cpus.New(0, 1, 2, 3)
	settings, _ := Translate(machine(1, all), []tick.Cgroup{{Cgroup: "/b", CPUSetCPUs: "0-3", CPUMaxMilliCPU: new(int64(2000))}})
	for i := range settings {
		switch settings[i].Name {
		case fileCPUs:
			settings[i].Observed, settings[i].Original = "0", "0-2"
		case fileQuota:
			settings[i].Observed, settings[i].Period = "20000", "100000"
		}
	}
	writes, _ := Make(machine(1, all), settings, []Neighbour{
		{File: File{Controller: "cpuset", Cgroup: "/b/x", Name: fileCPUs}, Observed: "0", Original: "0-2"},
		{File: File{Controller: "cpu", Cgroup: "/b/x", Name: fileQuota}, Observed: "20000", Period: "100000", Original: "33333"},
	})
	want := []string{
		"/b cpuset.cpus: 0 -> 0-3",
		"/b/x cpuset.cpus: 0 -> 0-3 (implied) needs [0]", // it had exactly its parent's
		"/b cpu.cfs_quota_us: 20000 -> 200000",
		"/b/x cpu.cfs_quota_us: 20000 -> 33333 (implied) needs [2]",
	}
	if diff := cmp.Diff(want, steps(writes)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// A cgroup keeps a list of its own through a squeeze of its parent's; one that was filled from its parent's follows it.
func TestOwnListsAreKept(t *testing.T) {
	all := cpus.New(0, 1, 2, 3)
	child := File{Controller: "cpuset", Cgroup: "/b/x", Name: fileCPUs}
	for _, c := range []struct {
		name               string
		observed, original string // of the parent's list
		desired            string
		child              Neighbour
		want               []string
		recorded           string // the original value of the child's first write
	}{
		{
			"its own, squeezed to it", "0-3", "", "2-3",
			Neighbour{File: child, Observed: "2-3"},
			[]string{"/b/x cpuset.cpus: 2-3 -> 2-3 (implied)", "/b cpuset.cpus: 0-3 -> 2-3 needs [0]"},
			"",
		},
		{
			"its own, widened again", "2-3", "0-3", "0-3",
			Neighbour{File: child, Observed: "2-3", Original: "2-3"},
			[]string{"/b cpuset.cpus: 2-3 -> 0-3"},
			"",
		},
		{
			"filled during a squeeze", "2-3", "0-3", "1-3",
			Neighbour{File: child, Observed: "2-3"},
			[]string{"/b cpuset.cpus: 2-3 -> 1-3", "/b/x cpuset.cpus: 2-3 -> 1-3 (implied) needs [0]"},
			"0-3",
		},
		{
			"filled, and then changed by a plan", "1-3", "0-3", "0-3",
			Neighbour{File: child, Observed: "1-3", Original: "0-3"},
			[]string{"/b cpuset.cpus: 1-3 -> 0-3", "/b/x cpuset.cpus: 1-3 -> 0-3 (implied) needs [0]"},
			"0-3",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			settings, _ := Translate(machine(1, all), []tick.Cgroup{{Cgroup: "/b", CPUSetCPUs: c.desired}})
			settings[0].Observed, settings[0].Original = c.observed, c.original
			writes, problems := Make(machine(1, all), settings, []Neighbour{c.child})
			if diff := cmp.Diff(c.want, steps(writes)); diff != "" || len(problems) > 0 {
				t.Fatalf("problems %v, steps (-want +got):\n%s", problems, diff)
			}
			for _, w := range writes {
				if w.Cgroup == child.Cgroup && (w.Original != c.recorded || w.RecordsOnly() != (w.Old == w.New)) {
					t.Errorf("%+v; want the original value %q", w, c.recorded)
				}
			}
		})
	}
}

func TestFillMems(t *testing.T) {
	all := cpus.New(0, 1)
	settings, _ := Translate(machine(1, all), []tick.Cgroup{{Cgroup: "/b/c", CPUSetCPUs: "1"}})
	writes, problems := Make(machine(1, all), settings, []Neighbour{
		{File: File{Controller: "cpuset", Cgroup: "/b", Name: fileCPUs}, Observed: "0-1"},
		{File: File{Controller: "cpuset", Cgroup: "/b", Name: fileMems}, Observed: "0"},
		{File: File{Controller: "cpuset", Cgroup: "/b/c", Name: fileMems}, TakesParentList: true},
	})
	want := []string{"/b/c cpuset.mems:  -> 0 (implied)", "/b/c cpuset.cpus:  -> 1"}
	if diff := cmp.Diff(want, steps(writes)); diff != "" || len(problems) > 0 {
		t.Errorf("problems %v, steps (-want +got):\n%s", problems, diff)
	}
}

func TestTranslate(t *testing.T) {
	p := tick.Ptr[int64]
	for _, c := range []struct {
		name     string
		version  int
		want     tick.Cgroup
		present  string
		period   string
		text     string // of the only setting; "" for none
		problems int
	}{
		{"quota v1", 1, tick.Cgroup{CPUMaxMilliCPU: p(1500)}, "-1", "100000", "150000", 0},
		{"quota v1 of another period", 1, tick.Cgroup{CPUMaxMilliCPU: p(1500)}, "-1", "50000", "75000", 0},
		{"quota at least the kernel's", 1, tick.Cgroup{CPUMaxMilliCPU: p(0)}, "-1", "100000", "1000", 0},
		{"no quota v1", 1, tick.Cgroup{CPUMaxMilliCPU: p(-1)}, "1000", "100000", "-1", 0},
		{"quota v2", 2, tick.Cgroup{CPUMaxMilliCPU: p(250)}, "max 100000", "", "25000 100000", 0},
		{"no quota v2", 2, tick.Cgroup{CPUMaxMilliCPU: p(-1)}, "25000 40000", "", "max 40000", 0},
		{"negative quota", 2, tick.Cgroup{CPUMaxMilliCPU: p(-2)}, "", "", "", 1},
		{"huge quota", 2, tick.Cgroup{CPUMaxMilliCPU: p(1 << 62)}, "", "", "", 1},
		{"weight v1", 1, tick.Cgroup{CPUWeight: p(100)}, "", "", "1024", 0},
		{"weight v1 least", 1, tick.Cgroup{CPUWeight: p(1)}, "", "", "2", 0},
		{"weight v1 most", 1, tick.Cgroup{CPUWeight: p(10000)}, "", "", "262144", 0},
		{"weight v2", 2, tick.Cgroup{CPUWeight: p(7)}, "", "", "7", 0},
		{"weight 0", 2, tick.Cgroup{CPUWeight: p(0)}, "", "", "", 1},
		{"weight too large", 2, tick.Cgroup{CPUWeight: p(10001)}, "", "", "", 1},
		{"idle", 2, tick.Cgroup{CPUIdle: new(true)}, "", "", "1", 0},
		{"weight in place of the idle class", 2, tick.Cgroup{CPUIdle: new(true), CPUWeight: p(5)}, "", "", "5", 0},
		{"memory max v1", 1, tick.Cgroup{MemoryMaxBytes: p(8191)}, "", "", "4096", 0},
		{"memory max v1 none", 1, tick.Cgroup{MemoryMaxBytes: p(-1)}, "", "", "-1", 0},
		{"memory max v2 none", 2, tick.Cgroup{MemoryMaxBytes: p(-1)}, "", "", "max", 0},
		{"memory max under a page", 2, tick.Cgroup{MemoryMaxBytes: p(0)}, "", "", "", 1},
		{"memory high v1", 1, tick.Cgroup{MemoryHighBytes: p(1<<20 + 1)}, "", "", "1048576", 0},
		{"memory high v1 none", 1, tick.Cgroup{MemoryHighBytes: p(-1)}, "", "", "9223372036854775807", 0},
		{"memory high v2 none", 2, tick.Cgroup{MemoryHighBytes: p(-1)}, "", "", "max", 0},
		{"memory min", 2, tick.Cgroup{MemoryMinBytes: p(4097)}, "", "", "4096", 0},
		{"memory min huge", 2, tick.Cgroup{MemoryMinBytes: p(1<<63 - 1)}, "", "", "9223372036854771712", 0},
		{"OOM group", 2, tick.Cgroup{MemoryOOMGroup: new(true)}, "", "", "1", 0},
		{"no OOM group", 1, tick.Cgroup{MemoryOOMGroup: new(false)}, "", "", "0", 0},
		{"wmark ratio 0", 1, tick.Cgroup{MemoryWmarkRatioPercent: p(0)}, "", "", "0", 0},
		{"wmark ratio 100", 2, tick.Cgroup{MemoryWmarkRatioPercent: p(100)}, "", "", "100", 0},
		{"wmark ratio 101", 2, tick.Cgroup{MemoryWmarkRatioPercent: p(101)}, "", "", "", 1},
		{"wmark ratio -1", 2, tick.Cgroup{MemoryWmarkRatioPercent: p(-1)}, "", "", "", 1},
		{"wmark scale 0", 2, tick.Cgroup{MemoryWmarkScalePermille: p(0)}, "", "", "", 1},
		{"wmark scale 1", 2, tick.Cgroup{MemoryWmarkScalePermille: p(1)}, "", "", "1", 0},
		{"wmark scale 1000", 2, tick.Cgroup{MemoryWmarkScalePermille: p(1000)}, "", "", "1000", 0},
		{"wmark scale 1001", 2, tick.Cgroup{MemoryWmarkScalePermille: p(1001)}, "", "", "", 1},
		{"wmark adjustment -25", 2, tick.Cgroup{MemoryWmarkMinAdjPercent: p(-25)}, "", "", "-25", 0},
		{"wmark adjustment -26", 2, tick.Cgroup{MemoryWmarkMinAdjPercent: p(-26)}, "", "", "", 1},
		{"wmark adjustment 50", 2, tick.Cgroup{MemoryWmarkMinAdjPercent: p(50)}, "", "", "50", 0},
		{"wmark adjustment 51", 2, tick.Cgroup{MemoryWmarkMinAdjPercent: p(51)}, "", "", "", 1},
		{"priority 12", 2, tick.Cgroup{MemoryPriority: p(12)}, "", "", "12", 0},
		{"priority 13", 2, tick.Cgroup{MemoryPriority: p(13)}, "", "", "", 1},
		{"priority OOM", 1, tick.Cgroup{MemoryUsePriorityOOM: new(true)}, "", "", "1", 0},
		{"memory low 0", 2, tick.Cgroup{MemoryLowBytes: p(0)}, "", "", "0", 0},
		{"memory low -1", 2, tick.Cgroup{MemoryLowBytes: p(-1)}, "", "", "", 1},
		{"io v2", 2, tick.Cgroup{IOWeight: p(50)}, "", "", "default 50", 0},
		{"io v1", 1, tick.Cgroup{IOWeight: p(10000)}, "", "", "1000", 0},
		{"not mounted", 0, tick.Cgroup{IOWeight: p(50)}, "", "", "", 1},
		{"CPUs", 1, tick.Cgroup{CPUSetCPUs: "1-2"}, "", "", "1-2", 0},
		{"CPUs offline", 1, tick.Cgroup{CPUSetCPUs: "2-9"}, "", "", "2-3", 1},
		{"CPUs all offline", 1, tick.Cgroup{CPUSetCPUs: "8-9"}, "", "", "", 1},
		{"CPUs garbled", 1, tick.Cgroup{CPUSetCPUs: "0-999999999"}, "", "", "", 1},
		{"mems", 1, tick.Cgroup{CPUSetMems: "0"}, "", "", "0", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.Cgroup = "/x"
			settings, problems := Translate(machine(c.version, cpus.New(0, 1, 2, 3)), []tick.Cgroup{c.want})
			if len(problems) != c.problems {
				t.Errorf("problems %v, want %d", problems, c.problems)
			}
			text := ""
			for i := range settings {
				settings[i].Observed, settings[i].Period = c.present, c.period
				if settings[i].IsOptional() {
					continue
				}
				var err error
				if text, err = settings[i].Desired(); err != nil {
					t.Error(err)
				}
			}
			if text != c.text {
				t.Errorf("text %q, want %q", text, c.text)
			}
		})
	}
}

func TestTranslateRefuses(t *testing.T) {
	settings, problems := Translate(machine(2, cpus.New(0)), []tick.Cgroup{
		{Cgroup: "/", CPUIdle: new(true)},
		{Cgroup: "/a", CPUIdle: new(true)},
		{Cgroup: "/a", CPUIdle: new(false)},
	})
	if len(settings) != 0 || len(problems) != 2 {
		t.Errorf("settings %v, problems %v; want none and two", settings, problems)
	}
}

func TestWeightsRoundTrip(t *testing.T) {
	for weight := int64(1); weight <= 10000; weight++ {
		if shares := sharesOf(weight); shares < 2 || shares > 262144 || weightOf(shares) != weight {
			t.Fatalf("sharesOf(%d) = %d, whose weight is %d", weight, shares, weightOf(shares))
		}
	}
}

func TestSame(t *testing.T) {
	for _, c := range []struct {
		name, a, b string
		want       bool
	}{
		{"cpuset.cpus", "0,1,2", "0-2", true},
		{"cpuset.cpus", "", "0", false},
		{"memory.limit_in_bytes", "9223372036854771712", "-1", true},
		{"memory.limit_in_bytes", "4096", "-1", false},
		{"memory.max", "max", "4096", false},
		{"io.weight", "default 100\n8:0 50", "default 100", true},
		{"io.weight", "default 100\n8:0 50", "default 50", false},
		{"cpu.max", "max 100000", "max 50000", false},
	} {
		if got := Same(c.name, c.a, c.b); got != c.want {
			t.Errorf("Same(%s, %q, %q) = %v", c.name, c.a, c.b, got)
		}
	}
}

// TestEqualSeesEveryField fails when the contract gets a key that Equal does not compare.
func TestEqualSeesEveryField(t *testing.T) {
	kind := reflect.TypeFor[tick.Cgroup]()
	for i := range kind.NumField() {
		var a, b tick.Cgroup
		v := reflect.ValueOf(&b).Elem().Field(i)
		switch v.Kind() {
		case reflect.String:
			v.SetString("x")
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		if Equal(&a, &b) {
			t.Errorf("Equal does not see %s", kind.Field(i).Name)
		}
	}
	p := tick.Ptr[int64]
	x := tick.Cgroup{IOMax: []tick.DiskLimit{{Disk: "a", ReadBytesPerSecond: p(1), WriteBytesPerSecond: p(1), ReadsPerSecond: p(1), WritesPerSecond: p(1)}}}
	for i := range reflect.TypeFor[tick.DiskLimit]().NumField() {
		y := tick.Cgroup{IOMax: slices.Clone(x.IOMax)}
		reflect.ValueOf(&y.IOMax[0]).Elem().Field(i).SetZero()
		if Equal(&x, &y) || !Equal(&x, &x) {
			t.Errorf("Equal does not see field %d of a limit", i)
		}
	}
}

// Version 1 rejects a list with a CPU that the parent lacks: the list is limited to the parent's new one, and the limit is reported.
func TestListIsLimitedToParent(t *testing.T) {
	for _, c := range []struct {
		name    string
		advised map[string]string
		want    map[string]string
		problem string
	}{
		{
			name:    "above is advised to narrow",
			advised: map[string]string{"/batch": "0-1", "/batch/a": "1-4"},
			want:    map[string]string{"/batch": "0-1", "/batch/a": "1"},
			problem: "2-4 left out: /batch, the cgroup above, has 0-1",
		},
		{
			name:    "above is advised to widen",
			advised: map[string]string{"/batch": "0-5", "/batch/a": "3-7"},
			want:    map[string]string{"/batch": "0-5", "/batch/a": "3-5"},
			problem: "6-7 left out: /batch, the cgroup above, has 0-5",
		},
		{
			name:    "above is not advised",
			advised: map[string]string{"/batch/a": "2-5"},
			want:    map[string]string{"/batch": "0-3", "/batch/a": "2-3"},
			problem: "4-5 left out: /batch, the cgroup above, has 0-3",
		},
		{
			name:    "above has none of it: it follows",
			advised: map[string]string{"/batch": "0-1", "/batch/a": "6-7"},
			want:    map[string]string{"/batch": "0-1", "/batch/a": "0-1"},
			problem: "6-7 left out: /batch, the cgroup above, has 0-1",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := cpus.New(0, 1, 2, 3, 4, 5, 6, 7)
			k := &kernel{version: 1, all: all, sets: map[string]cpus.Set{"/batch": cpus.New(0, 1, 2, 3), "/batch/a": cpus.New(0, 1, 2, 3)}}
			var desired []tick.Cgroup
			for name, list := range c.advised {
				desired = append(desired, tick.Cgroup{Cgroup: name, CPUSetCPUs: list})
			}
			settings, problems := Translate(machine(1, all), desired)
			if len(problems) > 0 {
				t.Fatalf("problems: %v", problems)
			}
			k.present(settings)
			writes, problems := Make(machine(1, all), settings, k.around(settings))
			for i, w := range writes {
				if err := k.write(w); err != nil {
					t.Fatalf("write %d of %v: %v", i, steps(writes), err)
				}
			}
			for name, want := range c.want {
				if got := k.sets[name].String(); got != want {
					t.Errorf("%s is on %s, want %s", name, got, want)
				}
			}
			if len(problems) != 1 || problems[0].Cgroup != "/batch/a" || problems[0].Error != c.problem {
				t.Errorf("problems %v; want %q of /batch/a", problems, c.problem)
			}
		})
	}
}
