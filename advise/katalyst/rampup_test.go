package katalyst

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/advise/policy"
	"polder/lib/tick"
)

// needOf returns the need of pods that have run for long.
func needOf(pods ...tick.Pod) estimate {
	tk := at(0, pods...)
	in := inputs{sample: tk.Sample, shape: &shape{Shape: new(policy.Shape)}, settings: Defaults()}
	members, _ := New(Defaults()).classify(in)
	rampUp(members, nil, tk.Time)
	return sumNeeds(in, members, make([]group, 1))
}

func newPod(name string, started string, cores, request float64) tick.Pod {
	p := shared(name, cores)
	p.UID, p.StartTime, p.Requests = "uid-"+name, started, &tick.Resources{MilliCPU: &request}
	return p
}

// The guide's pod starts: at first it runs on all CPUs and its request counts, then it joins its pool.
func TestRampUp(t *testing.T) {
	const all, share = "0-47", "11,22-23,35,46-47"
	started := func(seconds float64) string {
		return start.Add(time.Duration(seconds * float64(time.Second))).Format(time.RFC3339)
	}
	for _, c := range []struct {
		name    string
		started string
		seconds []float64
		lists   []string
	}{
		{"by its start time", started(10), []float64{12, 39.9, 40, 41}, []string{all, all, share, share}},
		{"by when it was seen", "", []float64{12, 41.9, 42, 43}, []string{all, all, share, share}},
		{"an invalid start time", "yesterday", []float64{12, 41, 42}, []string{all, all, share}},
		{"started long ago, seen now", started(-100), []float64{12}, []string{share}},
		{"a start time ahead", started(3600), []float64{12, 42}, []string{all, share}},
		{"the clock is set back", "", []float64{12, -3600, -3571, -3570}, []string{all, all, all, share}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := New(Defaults())
			if a := d.Decide(at(0)); *a.Reclaimed.MilliCPU != 44000 {
				t.Fatalf("reclaimed %d before the pod; want 44000", *a.Reclaimed.MilliCPU)
			}
			for i, seconds := range c.seconds {
				a := d.Decide(at(seconds, newPod("a", c.started, 1, 2000), reclaimed("b")))
				want := map[string]string{"a": c.lists[i], "besteffort/b": "0-10,12-21,24-34,36-45"}
				if diff := cmp.Diff(want, listsByCgroup(a.Cgroups)); diff != "" {
					t.Errorf("at %vs (-want +got):\n%s", seconds, diff)
				}
				if *a.Reclaimed.MilliCPU != 42000 {
					t.Errorf("at %vs: reclaimed %d; want 42000 steadily", seconds, *a.Reclaimed.MilliCPU)
				}
			}
		})
	}
}

func TestWhichPodsRampUp(t *testing.T) {
	now := start.Add(time.Minute).Format(time.RFC3339)
	d := New(Defaults())
	running := newPod("there", start.Add(-time.Second).Format(time.RFC3339), 1, 8000)
	if a := d.Decide(at(0, running)); listsByCgroup(a.Cgroups)["there"] != poolsOf(a)["share"] || *a.Reclaimed.MilliCPU != 42000 {
		t.Errorf("what runs when advise starts: %v; want it in its pool", listsByCgroup(a.Cgroups))
	}
	// Its request counts while it is new, also beside a larger use; dedicated and named pods' CPUs are not taken.
	batch := newPod("new", now, 1, 9000)
	batch.Annotations = map[string]string{cpuEnhancement: `{"cpuset_pool":"batch"}`}
	busy := newPod("busy", now, 5, 2000)
	absent := newPod("absent", now, 0, 3000)
	absent.Missing, absent.Containers, absent.Cgroup = tick.MissingCgroup, nil, "/kubepods/absent"
	a := d.Decide(at(60, running, batch, busy, absent, dedicated("db", 2000)))
	pools := poolsOf(a)
	// share: 2 + 1 + 5 + 3 = 11; batch: 2 + 9 = 11
	if got := []int{mustParse(t, pools["share"]).Size(), mustParse(t, pools["batch"]).Size()}; !slices.Equal(got, []int{12, 12}) {
		t.Errorf("share and batch have %v CPUs; want 12 each: %q", got, a.Reasons)
	}
	want := map[string]string{"there": pools["share"], "new": "1-23,25-47", "busy": "1-23,25-47", "db": "0,24"}
	if diff := cmp.Diff(want, listsByCgroup(a.Cgroups)); diff != "" {
		t.Errorf("cgroups (-want +got):\n%s", diff)
	}
	for _, c := range a.Fallback {
		if strings.HasSuffix(c.Cgroup, "new") && !mustParse(t, c.CPUSetCPUs).Intersection(mustParse(t, "0,24")).IsEmpty() {
			t.Errorf("fallback %+v is on dedicated CPUs", c)
		}
	}
	// It came to the node without a start time: its time counts from now.
	here := absent
	here.Missing, here.StartTime, here.Cgroup = "", "", "/kubepods/absent"
	if a := d.Decide(at(61, running, here)); listsByCgroup(a.Cgroups)["absent"] != "0-47" {
		t.Errorf("a pod that came to the node: %v; want it everywhere", listsByCgroup(a.Cgroups))
	}
	// A restart continues from the saved state.
	d = restarted(t, d)
	if a := d.Decide(at(62, running, here)); listsByCgroup(a.Cgroups)["absent"] != "0-47" || listsByCgroup(a.Cgroups)["there"] == "0-47" {
		t.Errorf("after a restart: %v", listsByCgroup(a.Cgroups))
	}
	if len(d.Nodes["n"].RampUpEnds) != 2 {
		t.Errorf("%v are remembered; want the two that are there", d.Nodes["n"].RampUpEnds)
	}
}

func TestMissingAndTerminating(t *testing.T) {
	missing := func(p tick.Pod, side string) tick.Pod { p.Missing = side; return p }
	ending := func(p tick.Pod) tick.Pod { p.Terminating = true; return p }
	bare := tick.Pod{Namespace: "default", Name: "x", UID: "x", QoS: tick.QoSShared, Requests: &tick.Resources{MilliCPU: new(5000.0), MemoryBytes: new(1e9)}}
	unknown := shared("x", 30)
	unknown.QoS = ""
	idle := shared("x", 0)
	idle.Requests = &tick.Resources{MilliCPU: new(9000.0), MemoryBytes: new(1e9)}
	idle.Containers[0].Memory = nil
	used := shared("x", 3)
	used.Requests = idle.Requests
	used.Containers[0].Load5 = nil
	const total = 195924424*1024 - 5<<30
	for _, c := range []struct {
		name     string
		pod      tick.Pod
		milliCPU int64
		bytes    int64
		cgroups  int
	}{
		{"not on the node yet: its request", missing(bare, tick.MissingCgroup), 38000, total - 1e9, 0},
		{"not on the node, whatever is known of its cgroups", missing(shared("x", 3), tick.MissingCgroup), 40000, total - 1, 0},
		{"a dedicated one has its CPUs already", missing(dedicated("x", 4000), tick.MissingCgroup), 40000, total - 8<<30, 0},
		{"a reclaimed one is nothing", missing(reclaimed("x"), tick.MissingCgroup), 44000, total, 0},
		{"a cgroup alone of a known class", missing(shared("x", 3), tick.MissingCluster), 40000, total - 1, 1},
		{"a cgroup alone of no class", missing(unknown, tick.MissingCluster), 44000, total, 0},
		{"ending with use", ending(used), 40000, total - 1, 1},
		{"ending without", ending(idle), 44000, total, 1},
		{"ending before it was here", ending(missing(bare, tick.MissingCgroup)), 44000, total, 0},
		{"ending of which nothing is known", ending(tick.Pod{Name: "x", QoS: tick.QoSShared, Cgroup: "/kubepods/x"}), 44000, total, 1},
		{"ending and dedicated", ending(dedicated("x", 4000)), 40000, total, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := New(Defaults()).Decide(at(0, c.pod))
			if *a.Reclaimed.MilliCPU != c.milliCPU || *a.Reclaimed.MemoryBytes != c.bytes || len(a.Cgroups) != c.cgroups {
				t.Errorf("reclaimed %dm, %d bytes, %d cgroups; want %dm, %d, %d: %q", *a.Reclaimed.MilliCPU, *a.Reclaimed.MemoryBytes, len(a.Cgroups), c.milliCPU, c.bytes, c.cgroups, a.Reasons)
			}
		})
	}
}
