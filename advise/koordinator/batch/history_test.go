package batch

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"polder/lib/tick"
)

// The average use of a minute is counted once, at its end; a minute without known use counts nothing.
func TestHistoryTrainsOnceAMinute(t *testing.T) {
	h, begin := history{}, time.Unix(1_767_225_600, 0)
	counted := func() (n int) {
		for _, c := range h.System.Counts[cpu].Counts {
			if c > 0.9 {
				n++
			}
		}
		return n
	}
	for _, step := range []struct {
		second, used int64
		measured     bool
		want         int // buckets with a count
	}{
		{0, 1000, true, 0}, {59, 3000, true, 0}, {60, 2000, true, 1}, {61, 9000, true, 1}, {119, 9000, true, 1}, {120, 9000, true, 2}, {180, 500, false, 2},
	} {
		h.observe(begin.Add(time.Duration(step.second)*time.Second), nil, amounts{cpu: step.used}, resourceFlags{cpu: step.measured})
		if got := counted(); got != step.want {
			t.Errorf("after %d s %d buckets have a count, want %d", step.second, got, step.want)
		}
	}
	used := h.System.Counts[cpu]
	if first, last := used.First, used.First+len(used.Counts)-1; first != bucketOf(2000, firstBucket[cpu]) || last != bucketOf(9000, firstBucket[cpu]) {
		t.Errorf("buckets %d to %d, want those of 2000m and 9000m", first, last)
	}
}

// All counts lose weight equally, and empty ones at both ends are dropped.
func TestDecay(t *testing.T) {
	for _, tt := range []struct{ of, want histogram }{
		{histogram{First: 3, Counts: []float32{1, 2, 0, 4}}, histogram{First: 3, Counts: []float32{0.5, 1, 0, 2}}},
		{histogram{First: 3, Counts: []float32{1e-5, 2, 1e-5, 4, 1e-5}}, histogram{First: 4, Counts: []float32{1, 5e-6, 2}}},
		{histogram{First: 3, Counts: []float32{1e-5}}, histogram{}},
	} {
		got := histogram{First: tt.of.First, Counts: append([]float32(nil), tt.of.Counts...)}
		got.decay(0.5)
		if diff := cmp.Diff(tt.want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.of, diff)
		}
	}
}

// A pod's history is removed with the pod, or when its class changes; a pod without history leaves no entry.
func TestHistoriesOfEndedPodsAreRemoved(t *testing.T) {
	h := history{Pods: map[string]*usage{"stays": {}, "other class": {}, "gone": {}}}
	h.removeEnded([]pod{
		{Pod: &tick.Pod{UID: "stays"}, isProd: true}, {Pod: &tick.Pod{UID: "other class"}}, {Pod: &tick.Pod{UID: "not remembered"}, isProd: true},
	})
	if len(h.Pods) != 1 || h.Pods["stays"] == nil {
		t.Errorf("remembered: %v", h.Pods)
	}
}

// A tick without the pods' list, on which running pods are missing from the cluster, removes no history.
func TestHistoryOfPodsMissingFromTheClusterStays(t *testing.T) {
	pods := []tick.Pod{onePod("a", "Burstable", 6, 20, 1, 5)}
	st, after := trained(t, pods, 2)
	offered := func(after time.Duration, pod tick.Pod) int64 {
		a := &tick.Advice{}
		st.Advise(at(idleNode(pod), after), shipped(), a)
		return *a.Mid.MilliCPU
	}
	before := offered(after, pods[0])
	lost := onePod("a", "", -1, 0, 1, 5)
	lost.UID, lost.Missing, lost.QoSSource, lost.QoS, lost.Labels = pods[0].UID, tick.MissingCluster, tick.QoSFromRule, tick.QoSShared, nil
	offered(after+time.Second, lost)
	if got := offered(after+2*time.Second, pods[0]); got != before || before == 0 {
		t.Errorf("mid %d before and %d after a tick without the list; want the same", before, got)
	}
	ended := idleNode()
	st.Advise(at(ended, after+3*time.Second), shipped(), &tick.Advice{})
	if len(st.History.Pods) > 0 {
		t.Errorf("after its end %d histories; want none", len(st.History.Pods))
	}
}

// A pause, as a restart with a state file of yesterday or a clock that is corrected after the boot, is no history.
func TestPauseIsNoHistory(t *testing.T) {
	pods := []tick.Pod{onePod("a", "Burstable", 6, 20, 1, 5)}
	st, after := trained(t, pods, 0)
	for i := range 3 {
		a := &tick.Advice{}
		st.Advise(at(idleNode(pods[0]), after+time.Duration(i)*26*time.Hour), shipped(), a)
		if *a.Mid.MilliCPU != 0 {
			t.Errorf("%d pauses of 26 hours after the first tick mid is %d; want 0", i, *a.Mid.MilliCPU)
		}
	}
}
