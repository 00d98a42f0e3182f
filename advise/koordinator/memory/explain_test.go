package memory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/advise/koordinator/annotation"
	"polder/advise/koordinator/revert"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// The reasons count the pods with memory protection, throttling or a priority, and the containers with an unknown limit.
func TestReasonsCountPods(t *testing.T) {
	const kept = `; "kubepods" has min 0 and low 0 bytes; "burstable" has min 0 and low 0 bytes; "besteffort" has min 0 and low 0 bytes`
	for _, tt := range []struct {
		name    string
		m       sloconfig.MemoryQOS
		pod     tick.Pod
		unknown bool // allocatable
		want    []string
	}{
		{"protected", sloconfig.MemoryQOS{LowLimitPercent: new(int64(100))}, pod(4096, 0), false, []string{
			`memory QoS: 1 pod; "kubepods" has min 0 and low 4096 bytes; "burstable" has min 0 and low 4096 bytes; "besteffort" has min 0 and low 0 bytes`,
		}},
		{"of a priority", sloconfig.MemoryQOS{Priority: new(int64(5))}, pod(0, 0), false, []string{"memory QoS: 1 pod" + kept}},
		{"nothing is set", sloconfig.MemoryQOS{}, pod(4096, 0), false, nil},
		{"nothing to protect", sloconfig.MemoryQOS{LowLimitPercent: new(int64(100))}, pod(0, 0), false, nil},
		{"no limit is known", sloconfig.MemoryQOS{ThrottlingPercent: new(int64(50))}, pod(0, 0), true, []string{
			"memory QoS: 1 container without a limit: the allocatable memory is unknown, memory.high stays unchanged",
		}},
	} {
		s := sampleOf(tt.pod)
		if tt.unknown {
			s.Allocatable = nil
		}
		a := advise(new(State), with(ls, tt.m), s, 0)
		if diff := cmp.Diff(tt.want, a.Reasons); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Without a sample the values stay, which is reported if there are any or any are desired.
func TestWithoutASampleMemoryStays(t *testing.T) {
	off, st := sloconfig.Defaults(), &State{Cgroups: map[string]*advised{"/a": {Keys: keyMin, Last: revert.Last{At: start}}}}
	want := []string{"memory QoS: no sample: all memory values stay unchanged"}
	for name, a := range map[string]*tick.Advice{
		"held": advise(st, &off, nil, 0), "wanted": advise(new(State), with(ls, sloconfig.MemoryQOS{}), nil, 0),
	} {
		if diff := cmp.Diff(want, a.Reasons); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if a := advise(new(State), &off, nil, 0); len(a.Reasons) > 0 {
		t.Errorf("nothing is set or desired: %q", a.Reasons)
	}
}

// One cgroup of a pod is reverted although the others never had other values: a container may have been restarted.
func TestOneCgroupIsReverted(t *testing.T) {
	off, p := sloconfig.Defaults(), pod(4096, 0)
	for _, cgroup := range []string{p.Cgroup, p.Containers[0].Cgroup} {
		st := &State{Cgroups: map[string]*advised{cgroup: {Keys: keyMin, Last: revert.Last{At: start}}}}
		a := advise(st, &off, sampleOf(p), time.Second)
		if diff := cmp.Diff([]tick.Cgroup{{Cgroup: cgroup, MemoryMinBytes: new(int64(0))}}, a.Cgroups); diff != "" {
			t.Errorf("%s (-want +got):\n%s", cgroup, diff)
		}
	}
}

// A page is the smallest limit: no process could run in less.
func TestTheLeastThrottlingIsAPage(t *testing.T) {
	for limit, want := range map[float64]*int64{2 * PageBytes: new(int64(PageBytes)), 2*PageBytes - 2: nil} {
		p := pod(0, limit)
		a := advise(new(State), with(ls, sloconfig.MemoryQOS{ThrottlingPercent: new(int64(50))}), sampleOf(p), 0)
		if diff := cmp.Diff(want, entry(t, a, p.Containers[0].Cgroup).MemoryHighBytes); diff != "" {
			t.Errorf("half of %v bytes (-want +got):\n%s", limit, diff)
		}
	}
}

// The reason states whether all or a part of an invalid annotation is ignored.
func TestFaultsOfAnAnnotation(t *testing.T) {
	const of = `memory QoS: annotation koordinator.sh/memoryQOS of pod "ns/p": `
	off := sloconfig.Defaults()
	for text, want := range map[string]string{
		`{"wmarkRatio":101}`: of + "a part of it is ignored: wmarkRatio 101 is not between 0 and 100",
		`{"policy":7}`:       of + "it is ignored: ",
	} {
		p := pod(0, 0)
		p.Annotations[annotation.MemoryQOS] = text
		if a := advise(new(State), &off, sampleOf(p), 0); len(a.Reasons) != 1 || len(a.Reasons[0]) < len(want) || a.Reasons[0][:len(want)] != want {
			t.Errorf("%s: %q; want %q", text, a.Reasons, want)
		}
	}
}
