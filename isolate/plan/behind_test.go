package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// What an earlier plan left behind follows although the value above does not change, as far as that allows, and nothing else does.
func TestBehindFollowsUnchangedParent(t *testing.T) {
	list := File{Controller: "cpuset", Cgroup: "/b/x", Name: fileCPUs}
	quota := File{Controller: "cpu", Cgroup: "/b/x", Name: fileQuota}
	below := func(f File) File {
		f.Cgroup += "/c"
		return f
	}
	for _, c := range []struct {
		name       string
		neighbours []Neighbour
		want       []string
		recorded   string // the original value of the first write
	}{
		{
			"a list",
			[]Neighbour{{File: list, Observed: "0", Original: "0-3", IsBehind: true}},
			[]string{"/b/x cpuset.cpus: 0 -> 0-2 (implied)"},
			"0-3",
		},
		{
			"a list of its own",
			[]Neighbour{{File: list, Observed: "0", Original: "1", IsBehind: true}},
			[]string{"/b/x cpuset.cpus: 0 -> 1 (implied)"},
			"1",
		},
		{
			"a list that was filled just before",
			[]Neighbour{{File: list, Observed: "0", IsBehind: true}},
			[]string{"/b/x cpuset.cpus: 0 -> 0-2 (implied)"},
			"0-3",
		},
		{
			"those below it follow",
			[]Neighbour{
				{File: list, Observed: "0", Original: "0-3", IsBehind: true}, {File: below(list), Observed: "0", Original: "0-3"},
			},
			[]string{"/b/x cpuset.cpus: 0 -> 0-2 (implied)", "/b/x/c cpuset.cpus: 0 -> 0-2 (implied) needs [0]"},
			"0-3",
		},
		{"the parent has no more", []Neighbour{{File: list, Observed: "0-2", Original: "0-3", IsBehind: true}}, nil, ""},
		{"a list that is not behind", []Neighbour{{File: list, Observed: "0", Original: "0-3"}}, nil, ""},
		{
			"a quota",
			[]Neighbour{{File: quota, Observed: "20000", Period: "100000", Original: "90000", IsBehind: true}},
			[]string{"/b/x cpu.cfs_quota_us: 20000 -> 90000 (implied)"},
			"",
		},
		{
			"a quota over the parent's",
			[]Neighbour{{File: quota, Observed: "20000", Period: "100000", Original: "160000", IsBehind: true}},
			[]string{"/b/x cpu.cfs_quota_us: 20000 -> 150000 (implied)"},
			"",
		},
		{
			"a quota and one below it",
			[]Neighbour{
				{File: quota, Observed: "20000", Period: "100000", Original: "90000", IsBehind: true},
				{File: below(quota), Observed: "20000", Period: "100000", Original: "80000"},
			},
			[]string{"/b/x cpu.cfs_quota_us: 20000 -> 90000 (implied)", "/b/x/c cpu.cfs_quota_us: 20000 -> 80000 (implied) needs [0]"},
			"",
		},
		{"a quota that is not behind", []Neighbour{{File: quota, Observed: "20000", Period: "100000", Original: "90000"}}, nil, ""},
		{
			"a burst",
			[]Neighbour{
				{File: quota, Observed: "90000", Period: "100000", Burst: "20000", OriginalBurst: "60000", IsBurstBehind: true},
			},
			[]string{"/b/x cpu.cfs_burst_us: 20000 -> 60000 (implied)"},
			"",
		},
		{
			"a burst over its quota",
			[]Neighbour{
				{File: quota, Observed: "50000", Period: "100000", Burst: "20000", OriginalBurst: "60000", IsBurstBehind: true},
			},
			[]string{"/b/x cpu.cfs_burst_us: 20000 -> 50000 (implied)"},
			"",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := cpus.New(0, 1, 2, 3)
			settings, _ := Translate(machine(1, all), []tick.Cgroup{{Cgroup: "/b", CPUSetCPUs: "0-2", CPUMaxMilliCPU: new(int64(1500))}})
			for i := range settings {
				switch s := &settings[i]; s.Name {
				case fileCPUs:
					s.Observed, s.Original = "0-2", "0-3"
				case fileQuota:
					s.Observed, s.Period = "150000", "100000"
				}
			}
			writes, problems := Make(machine(1, all), settings, c.neighbours)
			if diff := cmp.Diff(c.want, steps(writes)); diff != "" || len(problems) > 0 {
				t.Fatalf("problems %v, steps (-want +got):\n%s", problems, diff)
			}
			if len(writes) > 0 && writes[0].Original != c.recorded {
				t.Errorf("%+v; want the original value %q", writes[0], c.recorded)
			}
		})
	}
}

// The burst of a named quota that an earlier plan left behind is raised although the quota is as desired, on both versions.
func TestBehindBurstOfNamedQuota(t *testing.T) {
	for version, c := range map[int]struct{ observed, want string }{
		1: {"150000", "/b cpu.cfs_burst_us: 20000 -> 60000 (implied)"},
		2: {"150000 100000", "/b cpu.max.burst: 20000 -> 60000 (implied)"},
	} {
		settings, _ := Translate(machine(version, cpus.New(0)), []tick.Cgroup{{Cgroup: "/b", CPUMaxMilliCPU: new(int64(1500))}})
		s := &settings[0]
		s.Observed, s.Period, s.Burst, s.OriginalBurst = c.observed, "100000", "20000", "60000"
		for _, isBehind := range []bool{true, false} {
			s.IsBurstBehind = isBehind
			want := []string{c.want}
			if !isBehind {
				want = nil
			}
			writes, problems := Make(machine(version, cpus.New(0)), settings, nil)
			if diff := cmp.Diff(want, steps(writes)); diff != "" || len(problems) > 0 {
				t.Errorf("version %d, behind %v: problems %v, steps (-want +got):\n%s", version, isBehind, problems, diff)
			}
		}
	}
}

func TestMayBeImplied(t *testing.T) {
	for name, versions := range map[string][3]bool{
		fileCPUs: {1: true}, fileMems: {1: true}, fileQuota: {1: true}, fileBurst: {1: true, 2: true}, fileMaxBurst: {1: true, 2: true},
		fileMax: {}, "cpu.shares": {}, "memory.limit_in_bytes": {},
	} {
		for _, version := range []int{1, 2} {
			f := File{Name: name}
			if got := f.MayBeImplied(version); got != versions[version] {
				t.Errorf("%s of version %d: %v", name, version, got)
			}
		}
	}
}
