package katalyst

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/cpus"
	"polder/lib/tick"
)

func mustParse(t *testing.T, list string) cpus.Set {
	t.Helper()
	set, err := cpus.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// checkWhole checks that a pool of the guide's node has both threads of its cores.
func checkWhole(t *testing.T, name string, set cpus.Set) {
	t.Helper()
	for _, cpu := range set.List() {
		if !set.Contains((cpu + 24) % 48) {
			t.Errorf("pool %s has CPU %d without its sibling: %s", name, cpu, set)
		}
	}
}

// pinned returns a container that kubelet gave CPUs to.
func pinned(p tick.Pod, list string, request float64) tick.Pod {
	p.Containers[0].CPUSetCPUs = list
	p.Containers[0].Requests = &tick.Resources{MilliCPU: &request}
	return p
}

func TestKubeletExclusiveCPUs(t *testing.T) {
	sidecar := pinned(shared("a", 2), "10-11,34-35", 4000)
	sidecar.Containers = append(sidecar.Containers, shared("side", 1).Containers[0])
	for _, c := range []struct {
		name     string
		pod      tick.Pod
		pools    map[string]string
		cgroups  map[string]string
		milliCPU int64
	}{
		{
			"its container is not changed and needs nothing", pinned(shared("a", 2), "10-11,34-35", 4000),
			map[string]string{"share": "9,23,33,47", "reclaim": "0-8,12-22,24-32,36-46"},
			map[string]string{},
			40000,
		},
		{
			"a container beside it runs in kubelet's pool, and counts", sidecar,
			map[string]string{"share": "9,22-23,33,46-47", "reclaim": "0-8,12-21,24-32,36-45"},
			map[string]string{},
			38000,
		},
		{
			"a dedicated pod has them for its own", pinned(dedicated("a", 4000), "10-11,34-35", 4000),
			map[string]string{"share": "9,23,33,47", "reclaim": "0-8,12-22,24-32,36-46"},
			map[string]string{},
			40000,
		},
		{
			"they were in its pool before kubelet assigned them to another pod", pinned(shared("a", 2), "10-11", 500),
			map[string]string{"share": "9,22-23,33,46-47", "reclaim": "0-8,12-21,24-32,36-45"},
			map[string]string{"a": "9,22-23,33,46-47"},
			38000,
		},
		{
			"a list that is wider is kubelet's common one", pinned(shared("a", 2), "0-47", 4000),
			map[string]string{"share": "9,22-23,33,46-47", "reclaim": "0-8,12-21,24-32,36-45"},
			map[string]string{"a": "9,22-23,33,46-47"},
			38000,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tk := at(0, c.pod)
			tk.Sample.Kubelet = &tick.Kubelet{CPUManagerPolicy: "static", ExclusiveCPUs: "10-11,34-35"}
			a := New(Defaults()).Decide(tk)
			if diff := cmp.Diff(c.pools, poolsOf(a)); diff != "" {
				t.Errorf("pools (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.cgroups, listsByCgroup(a.Cgroups)); diff != "" {
				t.Errorf("cgroups (-want +got):\n%s", diff)
			}
			if *a.Reclaimed.MilliCPU != c.milliCPU {
				t.Errorf("reclaimed %d; want %d", *a.Reclaimed.MilliCPU, c.milliCPU)
			}
			wantReason(t, a, "CPUs 10-11,34-35 are in no pool: kubelet assigned them to containers exclusively")
		})
	}
}

func TestKubeletAssignsCPUsOfAnotherSize(t *testing.T) {
	d := New(Defaults())
	first := d.Decide(at(0, shared("a", 1), bound("db", 2000), reclaimed("b")))
	tk := at(1, shared("a", 1), bound("db", 2000), reclaimed("b"))
	tk.Sample.Kubelet = &tick.Kubelet{ExclusiveCPUs: "0-99x"}
	a := d.Decide(tk)
	if a.Reclaimed != nil || a.Cgroups != nil || cmp.Diff(first.Fallback, a.Fallback) != "" {
		t.Errorf("with an invalid list: %+v; want no decision", a)
	}
	wantReason(t, a, "kubelet's exclusive CPUs: ")
	tk.Sample.Kubelet.ExclusiveCPUs = "0,24" // db's
	a = d.Decide(tk)
	wantReason(t, a, `dedicated pod default/db moves from CPUs "0,24" to 1,25`)
	tk.Sample.Kubelet.ExclusiveCPUs = "0-47"
	a = d.Decide(tk)
	if *a.Reclaimed.MilliCPU != 0 || len(a.Cgroups) != 0 || len(a.Fallback) != 0 || a.Reclaimed.MemoryBytes == nil {
		t.Errorf("with all CPUs assigned exclusively: %+v; want an offer of none", a)
	}
	// On a small machine exclusive CPUs are not part of any quota.
	tk.Sample.Topology, tk.Sample.Kubelet.ExclusiveCPUs = &tick.Topology{CPUs: "0-3"}, "1"
	s := Defaults()
	s.ReserveMilliCPU = 500
	a = New(s).Decide(tk)
	if got := *a.Reclaimed.MilliCPU; got != 400 { // with 4 CPUs it would be 4000 - 500 - 1000 - 2000
		t.Errorf("reclaimed %d; want the floor, a tenth of 4 CPUs: %q", got, a.Reasons)
	}
}

func inTier(p tick.Pod, path string) tick.Pod {
	p.Cgroup = path
	p.Containers[0].Cgroup = path + "/c"
	return p
}

func TestTier(t *testing.T) {
	const fs, systemd = "/kubepods/besteffort", "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice"
	b := inTier(reclaimed("b"), fs+"/podb")
	missing := tick.Pod{Namespace: "default", Name: "late", UID: "late", QoS: tick.QoSShared, Missing: tick.MissingCgroup}
	late := missing
	late.Requests = &tick.Resources{MilliCPU: new(100.0)}
	unknown := inTier(shared("u", 1), fs+"/podu")
	unknown.QoS = ""
	for _, c := range []struct {
		name    string
		version int
		policy  string // of kubelet's CPU manager; "-" without kubelet
		pods    []tick.Pod
		tier    string
		reason  string // why it is not pinned; "" if it is
	}{
		{"version 2", 2, "-", []tick.Pod{b, shared("a", 1)}, fs, ""},
		{"version 2, static", 2, "static", []tick.Pod{b}, fs, ""},
		{"version 1, none", 1, "none", []tick.Pod{b}, fs, ""},
		{"systemd names, below kubelet's own", 2, "none", []tick.Pod{inTier(reclaimed("b"), systemd+"/kubelet-kubepods-besteffort-podb.slice")}, systemd, ""},
		{"version 1, static", 1, "static", []tick.Pod{b}, fs, `on cgroup v1 kubelet's CPU manager (policy "static") must be able to give`},
		{"version 1, no kubelet known", 1, "-", []tick.Pod{b}, fs, "the policy of kubelet's CPU manager is unknown"},
		{"a service in it", 2, "none", []tick.Pod{b, inTier(shared("a", 1), fs+"/poda")}, fs, `pod "default/a" in it is not of class reclaimed`},
		{"one of no class in it", 2, "none", []tick.Pod{b, unknown}, fs, `pod "default/u" in it is not of class reclaimed`},
		{"a service that will be in it", 2, "none", []tick.Pod{b, missing}, fs, `pod "default/late" in it`},
		{"one that will not", 2, "none", []tick.Pod{b, late}, fs, ""},
		{"two of them", 2, "none", []tick.Pod{b, inTier(reclaimed("c"), systemd+"/kubelet-kubepods-besteffort-podc.slice")}, fs, "there is more than one"},
		{"not kubelet's", 2, "none", []tick.Pod{inTier(reclaimed("b"), "/batch/besteffort/b")}, "", ""},
		{"a name like it", 2, "none", []tick.Pod{inTier(reclaimed("b"), "/x-kubepods-besteffort.slice/x-kubepods-besteffort-podb.slice")}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			tk := at(0, c.pods...)
			tk.Sample.CgroupVersion = c.version
			if c.policy != "-" {
				tk.Sample.Kubelet = &tick.Kubelet{CPUManagerPolicy: c.policy}
			}
			a := New(Defaults()).Decide(tk)
			got, held := listsByCgroup(a.Cgroups)[strings.TrimPrefix(c.tier, "/kubepods/")]
			switch {
			case c.tier == "":
				wantNoReason(t, a, "is not confined to the reclaim pool")
				for _, confined := range a.Cgroups {
					if confined.CPUSetCPUs != "" && !strings.HasSuffix(confined.Cgroup, "/c") {
						t.Errorf("%s is confined to %s; want the containers alone", confined.Cgroup, confined.CPUSetCPUs)
					}
				}
			case c.reason != "":
				wantReason(t, a, c.reason)
				if held {
					t.Errorf("the tier is confined to %s", got)
				}
			case got != poolsOf(a)["reclaim"]:
				t.Errorf("the tier is confined to %q; want the reclaim pool: %q", got, a.Reasons)
			default:
				wantNoReason(t, a, "is not confined to the reclaim pool")
			}
		})
	}
}

// A confined tier is widened when necessary, and confined again when possible; an empty tier stays confined for the next pod.
func TestTierIsWidened(t *testing.T) {
	const tier = "/kubepods/besteffort"
	d := New(Defaults())
	b, a := inTier(reclaimed("b"), tier+"/podb"), inTier(shared("a", 1), tier+"/poda")
	for i, step := range []struct {
		pods []tick.Pod
		want string // "" means the reclaim pool
	}{{[]tick.Pod{b}, ""}, {[]tick.Pod{b, a}, "0-47"}, {[]tick.Pod{a}, "0-47"}, {[]tick.Pod{b}, ""}, {nil, ""}} {
		tk := at(float64(i), step.pods...)
		tk.Sample.CgroupVersion = 2
		advice := d.Decide(tk)
		want := step.want
		if want == "" {
			want = poolsOf(advice)["reclaim"]
		}
		if got := listsByCgroup(advice.Cgroups)["besteffort"]; got != want && got != "" || got == "" {
			t.Errorf("step %d: the tier has %q; want %q", i, got, want)
		}
	}
	tk := at(9, b)
	tk.Sample.CgroupVersion, tk.Sample.Topology = 2, &tick.Topology{CPUs: "0-3"} // too small for pools now
	if got := listsByCgroup(d.Decide(tk).Cgroups)["besteffort"]; got != "0-3" {
		t.Errorf("on a small machine the tier has %q; want all CPUs", got)
	}
}
