package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/cpus"
	"polder/lib/kubepods"
	"polder/lib/tick"
)

const uid = "5d1c7c1e-0c1b-4a8e-9d53-3f7a5f0f6a11"

// A cgroup whose weight kubelet writes at each start never becomes idle, with either driver, and wherever its root is.
func TestKubeletsTiersAreNotIdle(t *testing.T) {
	const uid = "0123abcd-0000-4000-8000-0123456789ab"
	const slice = "kubepods-besteffort-pod0123abcd_0000_4000_8000_0123456789ab.slice"
	for cgroup, want := range map[string]string{
		"/kubepods": "0", "/kubepods/besteffort": "0", "/kubepods/burstable": "0", "/a/kubepods/besteffort": "0",
		"/kubepods.slice": "0", "/kubepods.slice/kubepods-besteffort.slice": "0", "/a.slice/a-kubepods.slice/a-kubepods-burstable.slice": "0",
		"/kubepods/besteffort/pod" + uid: "1", "/kubepods/pod" + uid: "1", "/kubepods/besteffort/pod" + uid + "/c": "1",
		"/kubepods.slice/kubepods-besteffort.slice/" + slice: "1", "/kubepods.slice/kubepods-besteffort.slice/" + slice + "/cri-containerd-c.scope": "1",
		"/spark": "1", "/a.slice": "1",
	} {
		for _, idle := range []bool{true, false} {
			settings, problems := Translate(machine(2, cpus.New(0)), []tick.Cgroup{{Cgroup: cgroup, CPUIdle: &idle}})
			if len(settings) != 1 {
				t.Fatalf("%s: %d settings, problems %v", cgroup, len(settings), problems)
			}
			got, err := settings[0].Desired()
			if err != nil {
				t.Fatal(err)
			}
			switch refused := idle && want == "0"; {
			case idle && got != want, !idle && got != "0", refused != (len(problems) == 1):
				t.Errorf("%s: %t is written as %s, problems %v", cgroup, idle, got, problems)
			}
		}
	}
}

// The ancestors of kubelet's root are known by the roots that were found.
func TestPlaceOf(t *testing.T) {
	for cgroup, want := range map[string]kubepods.Level{
		"/": kubepods.Above, "/node-0": kubepods.Above, "/node-0/kubepods": kubepods.Root, "/node-0/kubepods/pod1": kubepods.Pod,
		"/node-0/system": kubepods.Outside, "/node": kubepods.Outside, "/kubepods/besteffort": kubepods.Tier,
	} {
		if got := beside().placeOf(cgroup).Level; got != want {
			t.Errorf("%s: level %d; want %d", cgroup, got, want)
		}
	}
	var none *Kubelet
	if got := none.placeOf("/node-0").Level; got != kubepods.Outside {
		t.Errorf("without a kubelet: level %d", got)
	}
}

// A cgroup whose name contains kubelet's, or that a container named like one of kubelet's, is handled like its neighbours.
func TestNamesLikeKubelets(t *testing.T) {
	for cgroup, want := range map[string]bool{
		"/kubepods/besteffort": true, "/a.slice/a-kubepods.slice": true,
		"/batch.slice/my-kubepods.slice": false, "/batch.slice/kubepods-job": false,
		"/kubepods/besteffort/pod1/c/kubepods": false, "/kubepods/besteffort/pod1/kubepods": false,
	} {
		_, problems := Translate(machine(2, cpus.New(0)), []tick.Cgroup{{Cgroup: cgroup, CPUIdle: new(true)}})
		if got := len(problems) > 0; got != want {
			t.Errorf("%s: refused %t; want %t: %v", cgroup, got, want, problems)
		}
		_, refused := ValidReclaims([]tick.CgroupReclaim{{Cgroup: cgroup, Bytes: 1}})
		if got := len(refused) > 0; got != want {
			t.Errorf("a reclaim from %s is refused: %t; want %t: %v", cgroup, got, want, refused)
		}
	}
}

// beside is a kubelet with the static policy: CPU 1 belongs to a container of the pod, CPU 5 to another one's.
func beside() *Kubelet {
	return &Kubelet{
		WritesLists: true, Policy: "static", Default: cpus.New(0, 2, 3, 4, 6, 7), Exclusive: cpus.New(1, 5),
		Pods:       map[string]cpus.Set{uid: cpus.New(1)},
		Containers: map[string]cpus.Set{"feed": cpus.New(5)},
		Roots:      []string{"/node-0/kubepods"},
	}
}

// These are the writes and reports beside kubelet. Present is the cgroup's list.
func TestBesideKubelet(t *testing.T) {
	for _, c := range []struct {
		name            string
		version         int
		kubelet         func(*Kubelet)
		cgroup, present string
		want            tick.Cgroup
		writes, problem string
	}{
		{
			name: "a service's cgroup gets what is left", cgroup: "/serve", present: "0-7", want: tick.Cgroup{CPUSetCPUs: "0-5"},
			writes: "0,2-4", problem: "CPUs 1,5 left out: kubelet assigned them exclusively to containers",
		},
		{
			name: "nothing is left", cgroup: "/serve", present: "0-7", want: tick.Cgroup{CPUSetCPUs: "1,5"},
			problem: "not written: kubelet assigned all of CPUs 1,5 exclusively to containers",
		},
		{
			name: "nothing is left, and an empty list would mean all CPUs", cgroup: "/serve", present: "0-7", version: 2,
			want:    tick.Cgroup{CPUSetCPUs: "1,5"},
			problem: "not written: kubelet assigned all of CPUs 1,5 exclusively to containers",
		},
		{name: "a container", cgroup: "/kubepods/burstable/podx/c", present: "0,2-4,6-7", want: tick.Cgroup{CPUSetCPUs: "6-7"}, writes: "6-7"},
		{
			name: "a container with CPUs of its own", cgroup: "/kubepods/pod" + uid + "/c", present: "1", want: tick.Cgroup{CPUSetCPUs: "6-7"},
			problem: "not written: kubelet assigned CPUs 1 exclusively to this container",
		},
		{
			name: "one that was just made, with the list above", cgroup: "/kubepods/pod" + uid + "/c", present: "0-7", want: tick.Cgroup{CPUSetCPUs: "6-7"},
			problem: "not written: kubelet assigned CPUs 1 exclusively to this container",
		},
		{
			name: "one without a list of its own", version: 2, cgroup: "/kubepods/pod" + uid + "/c", present: "", want: tick.Cgroup{CPUSetCPUs: "6-7"},
			problem: "it has no list",
		},
		{name: "one beside it that has none of them", cgroup: "/kubepods/pod" + uid + "/side", present: "0,2-4,6-7", want: tick.Cgroup{CPUSetCPUs: "6-7"}, writes: "6-7"},
		{
			name: "one that an old kubelet names by its id", cgroup: "/kubepods/pody/feed", present: "5", want: tick.Cgroup{CPUSetCPUs: "6-7"},
			problem: "not written: kubelet assigned CPUs 5 exclusively to this container",
		},
		{
			name: "its slice", cgroup: "/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/cri-containerd-1.scope", present: "1", version: 2,
			want: tick.Cgroup{CPUSetCPUs: "6-7"}, problem: "not written: kubelet assigned CPUs 1",
		},
		{
			name: "memory nodes of its pod", cgroup: "/kubepods/pod" + uid + "/side", present: "0", want: tick.Cgroup{CPUSetMems: "1"},
			problem: "not written: kubelet assigned CPUs 1",
		},
		{
			name: "a tier on version 1", cgroup: "/kubepods/besteffort", present: "0-7", want: tick.Cgroup{CPUSetCPUs: "6-7"},
			problem: `policy is "static", and on cgroup v1 the next container could not start below a narrowed cgroup`,
		},
		{name: "a pod on version 1", cgroup: "/kubepods/besteffort/podx", present: "0-7", want: tick.Cgroup{CPUSetCPUs: "6-7"}, problem: "on cgroup v1"},
		{name: "above all pods on version 1", cgroup: "/node-0", present: "0-7", want: tick.Cgroup{CPUSetCPUs: "6-7"}, problem: "on cgroup v1"},
		{name: "memory nodes of a tier on version 1", cgroup: "/kubepods/besteffort", present: "0-1", want: tick.Cgroup{CPUSetMems: "0"}, problem: "on cgroup v1"},
		{
			name: "a tier on version 1 and no policy", cgroup: "/kubepods/besteffort", present: "0-7", want: tick.Cgroup{CPUSetCPUs: "6-7"}, writes: "6-7",
			kubelet: func(k *Kubelet) { *k = Kubelet{Policy: "none"} },
		},
		{
			name: "a tier on version 2", version: 2, cgroup: "/kubepods/besteffort", present: "", want: tick.Cgroup{CPUSetCPUs: "5-7"}, writes: "6-7",
			problem: "CPUs 5 left out",
		},
		{
			name: "the pod that has them on version 2", version: 2, cgroup: "/kubepods/pod" + uid, present: "", want: tick.Cgroup{CPUSetCPUs: "6-7"},
			problem: "not written: kubelet assigned CPUs exclusively to containers below (1)",
		},
		{name: "another pod on version 2", version: 2, cgroup: "/kubepods/podx", present: "", want: tick.Cgroup{CPUSetCPUs: "6-7"}, writes: "6-7"},
		{
			name: "above all pods on version 2", version: 2, cgroup: "/node-0", present: "", want: tick.Cgroup{CPUSetCPUs: "6-7"},
			problem: "kubelet assigned CPUs exclusively to containers below (1,5)",
		},
		{
			name: "above all pods while nothing is given away", version: 2, cgroup: "/kubepods", present: "", want: tick.Cgroup{CPUSetCPUs: "6-7"}, writes: "6-7",
			kubelet: func(k *Kubelet) { *k = Kubelet{WritesLists: true, Policy: "static"} },
		},
		{
			name: "nothing is known", cgroup: "/kubepods/burstable/podx/c", present: "0-7", want: tick.Cgroup{CPUSetCPUs: "6-7"},
			problem: "not written, like all of kubelet's cpusets: the CPUs that it assigned exclusively are unknown (torn)",
			kubelet: func(k *Kubelet) { *k = Kubelet{UnknownReason: "torn"} },
		},
		{
			name: "nothing is known, and a service", cgroup: "/serve", present: "0-7", want: tick.Cgroup{CPUSetCPUs: "6-7"}, writes: "6-7",
			kubelet: func(k *Kubelet) { *k = Kubelet{UnknownReason: "torn"} },
		},
		{
			name: "what is no cpuset", cgroup: "/kubepods/besteffort", present: "100", want: tick.Cgroup{CPUWeight: new(int64(5))}, writes: "5", version: 2,
			kubelet: func(k *Kubelet) { *k = Kubelet{UnknownReason: "torn"} },
		},
	} {
		m := machine(max(1, c.version), cpus.New(0, 1, 2, 3, 4, 5, 6, 7))
		m.Mems = cpus.New(0, 1)
		m.Kubelet = beside()
		if c.kubelet != nil {
			c.kubelet(m.Kubelet)
		}
		c.want.Cgroup = c.cgroup
		settings, problems := Translate(m, []tick.Cgroup{c.want})
		reported := fmt.Sprint(problems)
		var free []Setting
		for _, s := range settings {
			s.Observed = c.present
			if why := s.ExclusiveReason(); why != "" {
				reported += why
				continue
			}
			free = append(free, s)
		}
		writes, _ := Make(m, free, nil)
		var wrote []string
		for _, w := range writes {
			wrote = append(wrote, w.New)
		}
		if got := strings.Join(wrote, " "); got != c.writes || c.writes == "" && len(wrote) > 0 {
			t.Errorf("%s: writes %q, want %q", c.name, wrote, c.writes)
		}
		if c.problem == "" && reported != "[]" || !strings.Contains(reported, c.problem) {
			t.Errorf("%s: reported %s, want %q", c.name, reported, c.problem)
		}
	}
}

// A problem of many cgroups is reported for the first one.
func TestBesideKubeletIsReportedOnce(t *testing.T) {
	m := machine(1, cpus.New(0, 1, 2, 3, 4, 5, 6, 7))
	m.Kubelet = beside()
	var desired []tick.Cgroup
	for i := range 100 {
		desired = append(desired, tick.Cgroup{Cgroup: fmt.Sprintf("/kubepods/podx%d/c", i), CPUSetCPUs: "0-5"}, tick.Cgroup{Cgroup: fmt.Sprintf("/kubepods/podx%d", i), CPUSetCPUs: "0-5"})
	}
	settings, problems := Translate(m, desired)
	if len(settings) != 100 || len(problems) != 2 {
		t.Errorf("%d settings and %d problems, want 100 and 2", len(settings), len(problems))
	}
}

func TestRestoreTextBesideKubelet(t *testing.T) {
	for _, c := range []struct{ cgroup, first, present, want, problem string }{
		{"/serve", "0-7", "2-3", "0,2-4,6-7", ""},
		{"/serve", "2-3", "6-7", "2-3", ""},
		{"/serve", "0-7", "0-7", "0-7", ""}, // the original list
		{"/serve", "1,5", "6-7", "", "kubelet assigned all of CPUs 1,5"},
		{"/kubepods/besteffort", "0-7", "6-7", "0-7", ""},
		{"/kubepods/podx/c", "0-7", "6-7", "0,2-4,6-7", ""},
		{"/kubepods/podx/c", "0,2-3", "6-7", "0,2-4,6-7", ""}, // all released since
		{"/kubepods/podx/c/inner", "0-2", "6-7", "0,2", ""},
		{"/kubepods/pod" + uid + "/c", "0-7", "1", "", "not written: kubelet assigned CPUs 1"},
	} {
		got, err := beside().RestoreText(File{Controller: "cpuset", Cgroup: c.cgroup, Name: "cpuset.cpus"}, c.first, c.present)
		if got != c.want || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s with %s from %s: %q, %v; want %q, %q", c.cgroup, c.first, c.present, got, err, c.want, c.problem)
		}
	}
	var none *Kubelet
	if got, err := none.RestoreText(File{Cgroup: "/kubepods/podx/c", Name: "cpuset.cpus"}, "0-7", "1"); got != "0-7" || err != nil {
		t.Errorf("without a kubelet: %q, %v", got, err)
	}
	unknown := &Kubelet{UnknownReason: "torn"}
	if _, err := unknown.RestoreText(File{Cgroup: "/kubepods/podx/c", Name: "cpuset.cpus"}, "0-7", "1"); err == nil || !strings.Contains(err.Error(), "torn") {
		t.Errorf("with nothing known: %v", err)
	}
}

// FuzzBesideKubelet plans for arbitrary advice beside a kubelet: no written list has a CPU that was assigned exclusively,
// none is of a container that runs on such CPUs, and on version 1 none is of a cgroup above kubelet's containers.
func FuzzBesideKubelet(f *testing.F) {
	for _, cgroup := range []string{
		"/serve", "/kubepods", "/kubepods/besteffort", "/kubepods/pod" + uid, "/kubepods/pod" + uid + "/c", "/node-0", "/kubepods/podx/c/d",
		"/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/crio-1.scope",
	} {
		for _, present := range []string{"", "0-7", "1", "6", "x"} {
			f.Add(cgroup, "0-7", "6", present)
		}
	}
	f.Fuzz(func(t *testing.T, cgroup, list, other, present string) {
		for _, version := range []int{1, 2} {
			m := machine(version, cpus.New(0, 1, 2, 3, 4, 5, 6, 7))
			m.Kubelet = beside()
			settings, _ := Translate(m, []tick.Cgroup{{Cgroup: cgroup, CPUSetCPUs: list, CPUSetMems: "0"}, {Cgroup: cgroup + "/x", CPUSetCPUs: other}})
			var free []Setting
			for _, s := range settings {
				if s.Observed = present; s.ExclusiveReason() == "" {
					free = append(free, s)
				}
			}
			writes, _ := Make(m, free, nil)
			for _, w := range writes {
				p := kubepods.Of(w.Cgroup)
				if w.Cgroup == "/node-0" {
					t.Errorf("version %d: %s has all pods below and is written: %q", version, w.Cgroup, w.New)
				}
				if w.Name != fileCPUs {
					continue
				}
				set, err := cpus.Parse(w.New)
				old, _ := cpus.Parse(w.Old)
				// In between a cgroup may keep its old CPUs.
				if err != nil || !set.Difference(old).Intersection(m.Kubelet.Exclusive).IsEmpty() {
					t.Errorf("version %d: %s gets %q from %q", version, w.Cgroup, w.New, w.Old)
				}
				hasOwn := p.UID == uid && (p.Level == kubepods.Pod || !old.Intersection(cpus.New(1)).IsEmpty())
				if hasOwn || version == 1 && p.Level != kubepods.Outside && p.Level < kubepods.Container {
					t.Errorf("version %d: %s is written: %q", version, w.Cgroup, w.New)
				}
			}
		}
	})
}

func TestKubeletsOwnList(t *testing.T) {
	got := map[string]bool{}
	for _, c := range []string{"/kubepods/podx/c 0,2-4,6-7", "/kubepods/podx/c 0-1", "/kubepods/podx 0,2-4,6-7", "/serve 0,2-4,6-7"} {
		cgroup, text, _ := strings.Cut(c, " ")
		got[c] = beside().IsDefaultList(File{Cgroup: cgroup, Name: fileCPUs}, text)
	}
	want := map[string]bool{"/kubepods/podx/c 0,2-4,6-7": true, "/kubepods/podx/c 0-1": false, "/kubepods/podx 0,2-4,6-7": false, "/serve 0,2-4,6-7": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var none *Kubelet
	if none.IsDefaultList(File{Cgroup: "/kubepods/podx/c", Name: fileCPUs}, "0") || none.MustRestore(File{Cgroup: "/kubepods", Name: fileCPUs}, 1) {
		t.Error("no kubelet has a list")
	}
}

// Only values that kubelet, or systemd for it, writes to the cgroups above containers count as kubelet's.
func TestResetByKubelet(t *testing.T) {
	const systemd, cgroupfs = "/kubepods.slice/kubepods-besteffort.slice", "/kubepods/besteffort"
	for _, c := range []struct {
		cgroup, file, text string
		want               bool
	}{
		{systemd, "cpu.max", "max 100000", true},
		{systemd, "cpu.max", "50000 100000", false},
		{systemd, "cpu.cfs_quota_us", "-1", true},
		{systemd, "cpu.cfs_quota_us", "1000", false},
		{systemd, "cpu.weight", "1", true},
		{systemd, "cpu.idle", "0", true},
		{systemd, "cpu.idle", "1", false},
		{systemd, "cpuset.cpus", "0-7", false},
		{systemd, "cpuset.cpus", "", true},
		{systemd, "cpuset.mems", "", true},
		{cgroupfs, "cpuset.cpus", "", false},
		{systemd, "memory.max", "max", true},
		{systemd, "memory.high", "max", true},
		{systemd, "memory.max", "1000", false},
		{systemd, "memory.low", "0", true},
		{systemd, "memory.low", "4096", false},
		{systemd, "memory.min", "0", true},
		{systemd, "memory.limit_in_bytes", "9223372036854771712", true},
		{systemd, "memory.limit_in_bytes", "4096", false},
		{systemd, "memory.oom.group", "0", false},
		{systemd, "io.weight", "default 100", true},
		{systemd, "io.weight", "default 10", false},
		{cgroupfs, "memory.max", "max", false},
		{cgroupfs, "memory.low", "0", false},
		{cgroupfs, "cpu.shares", "2", true},
		{"/kubepods", "cpu.max", "max 100000", true},
		{"/a.slice/a-kubepods.slice", "cpu.max", "max 100000", true},
		{systemd + "/kubepods-besteffort-podu.slice", "cpu.max", "max 100000", true},
		{systemd + "/kubepods-besteffort-podu.slice", "cpu.max", "50000 100000", false},
		{systemd + "/kubepods-besteffort-podu.slice", "cpuset.cpus", "", true},
		{systemd + "/kubepods-besteffort-podu.slice", "cpuset.cpus", "0-7", false},
		{cgroupfs + "/podu", "cpu.max", "max 100000", false},
		{cgroupfs + "/podu", "cpu.shares", "2", false},
		{systemd + "/kubepods-besteffort-podu.slice/cri-containerd-c.scope", "cpu.max", "max 100000", false},
		{systemd + "/kubepods-besteffort-podu.slice/cri-containerd-c.scope", "memory.max", "max", true},
		{systemd + "/kubepods-besteffort-podu.slice/cri-containerd-c.scope", "memory.max", "1000", false},
		{systemd + "/kubepods-besteffort-podu.slice/cri-containerd-c.scope", "memory.low", "max", false},
		{cgroupfs + "/podu/c", "memory.max", "max", false},
		{"/batch.slice", "cpu.max", "max 100000", false},
		{"/batch.slice", "memory.max", "max", false},
	} {
		if got := IsKubeletReset(File{Controller: "cpu", Cgroup: c.cgroup, Name: c.file}, c.text); got != c.want {
			t.Errorf("%s of %s, %q: %t; want %t", c.file, c.cgroup, c.text, got, c.want)
		}
	}
}
