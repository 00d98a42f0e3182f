package burst

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/advise/koordinator/annotation"
	"polder/advise/koordinator/revert"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// The reasons state the load of the share pool, and count the actions.
func TestReasonsCountOperations(t *testing.T) {
	unpaid := burstPolicy("auto")
	unpaid.Burst.CFSQuotaBurstPeriodSeconds = new(int64(0))
	pool := func(used, percent, state string) string {
		return "CPU burst: share pool of 10000m - 0m of LSE and LSR pods = 10000m uses " + used + "m on average of 5.0s = " + percent +
			" % (sharePoolThresholdPercent 50): " + state
	}
	p := pod(1000)
	p.Containers[0].ThrottledPercent = new(float64(1))
	st := new(State)
	for i, step := range []struct {
		s    *sloconfig.Strategies
		used float64
		want []string
	}{
		{burstPolicy("auto"), 1000, []string{pool("1000", "10.0", "idle"), "CPU burst: 1 pod may burst, 2 cgroups over the limit; 1 quota raised, 0 lowered, 0 without tokens"}},
		{burstPolicy("auto"), 4500, []string{pool("4500", "45.0", "cooling"), "CPU burst: 1 pod may burst, 2 cgroups over the limit; 0 quotas raised, 0 lowered, 0 without tokens"}},
		{burstPolicy("auto"), 9000, []string{pool("9000", "90.0", "overload"), "CPU burst: 1 pod may burst, 0 cgroups over the limit; 0 quotas raised, 1 lowered, 0 without tokens"}},
		{burstPolicy("auto"), 9000, []string{pool("9000", "90.0", "overload"), "CPU burst: 1 pod may burst, 0 cgroups over the limit; 0 quotas raised, 0 lowered, 0 without tokens"}},
		{burstPolicy("auto"), 1000, []string{pool("1000", "10.0", "idle"), "CPU burst: 1 pod may burst, 2 cgroups over the limit; 1 quota raised, 0 lowered, 0 without tokens"}},
		{burstPolicy("cpuBurstOnly"), 1000, []string{"CPU burst: 1 pod may burst, 0 cgroups over the limit; 0 quotas raised, 1 lowered, 0 without tokens"}},
		{burstPolicy("cpuBurstOnly"), 1000, []string{"CPU burst: 1 pod may burst, 0 cgroups over the limit; 0 quotas raised, 0 lowered, 0 without tokens"}},
		{unpaid, 1000, []string{pool("1000", "10.0", "idle"), "CPU burst: 1 pod may burst, 0 cgroups over the limit; 0 quotas raised, 0 lowered, 1 without tokens"}},
		{burstPolicy("none"), 1000, nil},
	} {
		a := advise(st, step.s, sampleOf(step.used, p), time.Duration(i)*6*time.Second)
		if diff := cmp.Diff(step.want, a.Reasons); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}

// If the number of CPUs is unknown a quota neither grows nor shrinks.
func TestQuotaOfAnUnknownMachineStays(t *testing.T) {
	p := pod(1000)
	p.Containers[0].ThrottledPercent = new(float64(1))
	st := new(State)
	advise(st, burstPolicy("auto"), sampleOf(1000, p), 0)
	s := sampleOf(1000, p)
	s.Topology = nil
	if got := entryOf(t, advise(st, burstPolicy("auto"), s, time.Second).Cgroups, containerPath); orZero(got.CPUMaxMilliCPU) != 1200 {
		t.Errorf("quota %d, want the 1200 that it had", orZero(got.CPUMaxMilliCPU))
	}
}

// One cgroup of a pod is reverted although the others never had other values: a container may have been restarted.
func TestOneCgroupIsReverted(t *testing.T) {
	for _, cgroup := range []string{podPath, containerPath} {
		st := &State{Cgroups: map[string]*advised{cgroup: {BurstWasChanged: true, Last: revert.Last{At: start}}}}
		a := advise(st, burstPolicy("none"), sampleOf(1000, pod(1000)), time.Second)
		if diff := cmp.Diff([]tick.Cgroup{{Cgroup: cgroup, CPUBurstMilliCPU: new(int64(0))}}, a.Cgroups); diff != "" {
			t.Errorf("%s (-want +got):\n%s", cgroup, diff)
		}
	}
}

// An annotation may have each setting's bounds, and the reason states whether all or a part of an invalid one is ignored.
func TestEndsOfAnAnnotation(t *testing.T) {
	const of = `CPU burst: annotation koordinator.sh/cpuBurst of pod "ns/p": `
	for text, want := range map[string]string{
		`{"cpuBurstPercent":1,"cfsQuotaBurstPercent":0,"cfsQuotaBurstPeriodSeconds":-1}`:                      "",
		`{"cpuBurstPercent":10000,"cfsQuotaBurstPercent":2147483647,"cfsQuotaBurstPeriodSeconds":2147483647}`: "",
		`{"cpuBurstPercent":0}`: of + "a part of it is ignored: cpuBurstPercent 0 is not between 1 and 10000",
		`{"policy":7}`:          of + "it is ignored: ",
	} {
		p := pod(1000)
		p.Annotations[annotation.CPUBurst] = text
		a := advise(new(State), burstPolicy("none"), sampleOf(1000, p), 0)
		got := ""
		if len(a.Reasons) == 1 {
			got = a.Reasons[0]
		}
		if len(a.Reasons) > 1 || want == "" && got != "" || len(got) < len(want) || got[:len(want)] != want {
			t.Errorf("%s: %q; want %q", text, a.Reasons, want)
		}
	}
}

// A pod may set its time over the limit to zero, even if the administrator allows some.
func TestAPodMayBurstForNoTime(t *testing.T) {
	node := sloconfig.CPUBurst{CFSQuotaBurstPeriodSeconds: new(int64(60))}
	for own, want := range map[int64]int64{0: 0, 59: 59, 61: 60, -1: 60} {
		if got := override(node, &sloconfig.CPUBurst{CFSQuotaBurstPeriodSeconds: &own}).CFSQuotaBurstPeriodSeconds; *got != want {
			t.Errorf("a pod's own %d s are %d, want %d", own, *got, want)
		}
	}
}
