package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// Values are set neither on the root nor on what the kernel does not accept.
func TestIsCgroup(t *testing.T) {
	for path, want := range map[string]bool{
		"": false, "/": false, "a": false, "ab": false, "/a": true,
		"/" + strings.Repeat("a", maxPath-1): true, "/" + strings.Repeat("a", maxPath): false,
	} {
		if got := IsCgroup(path); got != want {
			t.Errorf("%.20s of %d bytes: %v", path, len(path), got)
		}
	}
}

// A pod that was deleted from the cluster is batch while its processes run, if its class is known; one without a cgroup is not.
func TestRunningBatch(t *testing.T) {
	for name, tt := range map[string]struct {
		pod  tick.Pod
		want bool
	}{
		"batch":             {tick.Pod{QoS: tick.QoSReclaimed, Cgroup: "/a"}, true},
		"a service":         {tick.Pod{QoS: tick.QoSShared, Cgroup: "/a"}, false},
		"deleted":           {tick.Pod{QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromKatalyst, Cgroup: "/a", Missing: tick.MissingCluster}, true},
		"an unknown class":  {tick.Pod{QoS: tick.QoSReclaimed, Cgroup: "/a", Missing: tick.MissingCluster}, false},
		"no cgroup":         {tick.Pod{QoS: tick.QoSReclaimed, Cgroup: "/a", Missing: tick.MissingCgroup}, false},
		"ended":             {tick.Pod{QoS: tick.QoSReclaimed, Cgroup: "/a", Phase: "Succeeded"}, false},
		"in the root":       {tick.Pod{QoS: tick.QoSReclaimed, Cgroup: "/"}, false},
		"without any value": {tick.Pod{}, false},
	} {
		if got := IsRunningBatch(&tt.pod); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// The root is no batch cgroup, but one with a name of one letter is; kubelet's are not, nor one with a service.
func TestBatchCgroups(t *testing.T) {
	s := &tick.Sample{
		BatchCgroups: []string{"/", "", "g", "/g", "/grid", "/mixed", "/kubepods/besteffort", "/my-kubepods-jobs"},
		Pods:         []tick.Pod{{QoS: tick.QoSShared, Cgroup: "/mixed/web"}, {QoS: tick.QoSReclaimed, Cgroup: "/grid/job"}},
	}
	if got := BatchCgroups(s); !slices.Equal(got, []string{"/g", "/grid", "/my-kubepods-jobs"}) {
		t.Errorf("%q; want /g, /grid and /my-kubepods-jobs", got)
	}
	for cgroup, want := range map[string]bool{"/grid": true, "/grid/job": true, "/g": false, "/mixed": false} {
		if got := HasOnlyBatch(s, cgroup); got != want {
			t.Errorf("%s has only batch: %t", cgroup, got)
		}
	}
}

// Each running batch pod counts in the outermost cgroup of batch alone: cgroups without running pods do not occur.
func TestOutermostBatch(t *testing.T) {
	batch := func(cgroup string) tick.Pod { return tick.Pod{QoS: tick.QoSReclaimed, Cgroup: cgroup} }
	ended := batch("/over/job")
	ended.Phase = "Failed"
	s := &tick.Sample{
		BatchCgroups: []string{"/grid", "/grid/inner", "/empty", "/over", "/mixed"},
		Tiers: []tick.Tier{
			{Name: tick.TierBurstable, Cgroup: "/kubepods/burstable"},
			{Name: tick.TierBestEffort, Cgroup: "/kubepods/besteffort"},
		},
		Pods: []tick.Pod{
			batch("/grid/inner/a"), batch("/grid/b"), batch("/grid2"), ended, batch("/mixed/c"),
			{QoS: tick.QoSShared, Cgroup: "/mixed/web"},
			batch("/kubepods/besteffort/d"), batch("/kubepods/burstable/e"), batch("/alone"), batch("/alone/nested"), batch("/grid/inner"),
		},
	}
	outermost := func() map[string][]string {
		found := map[string][]string{}
		for cgroup, p := range OutermostBatch(s) {
			found[cgroup] = append(found[cgroup], p.Cgroup)
		}
		return found
	}
	want := map[string][]string{
		"/grid": {"/grid/inner/a", "/grid/b", "/grid/inner"}, "/grid2": {"/grid2"}, "/mixed/c": {"/mixed/c"},
		"/kubepods/besteffort": {"/kubepods/besteffort/d"}, "/kubepods/burstable/e": {"/kubepods/burstable/e"},
		"/alone": {"/alone", "/alone/nested"},
	}
	if d := cmp.Diff(want, outermost()); d != "" {
		t.Error(d)
	}
	s.Pods = append(s.Pods, tick.Pod{QoS: tick.QoSShared, Cgroup: "/kubepods/besteffort/web"})
	if got := outermost()["/kubepods/besteffort/d"]; len(got) != 1 {
		t.Error("kubelet's cgroup of the BestEffort pods counts as batch although it contains a service")
	}
	for range OutermostBatch(s) { // a caller may stop early
		break
	}
}
