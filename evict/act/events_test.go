package act

import (
	"errors"
	"strings"
	"testing"

	"polder/lib/tick"
)

// The texts of events are fixed, because clusters search for them.
func TestEventTexts(t *testing.T) {
	refused := errors.New("Cannot evict pod as it would violate the pod's disruption budget.")
	satisfaction := &tick.PodEviction{Namespace: "default", Name: "be-pod-demo", Reason: "EvictPodByBECPUSatisfaction", Message: "killAndEvictBEPodsRelease for node(n1), need realase CPU : 1200"}
	memory := &tick.PodEviction{Namespace: "default", Name: "be", Reason: "EvictPodByNodeMemoryUsage", Message: "killAndEvictBEPods for node(n1), need to release memory: 4096"}
	newerRule := &tick.PodEviction{Namespace: "default", Name: "be", Reason: "evicted", Message: "trigger by koordlet feature CPUEvict, kill pod: be"}
	plugin := &tick.PodEviction{Namespace: "default", Name: "be", Reason: "met threshold in scope: s from plugin: r", Message: "m"}
	for _, tt := range []struct {
		newEvent func(*tick.PodEviction, evictionStep, error) *event
		of       *tick.PodEviction
		step     evictionStep
		err      error
		want     string // empty if nothing is reported
	}{
		{koordinatorEvent, satisfaction, stepCreated, nil, "Warning evictPodSuccess evict Pod:be-pod-demo, reason: EvictPodByBECPUSatisfaction, message: killAndEvictBEPodsRelease for node(n1), need realase CPU : 1200"},
		{koordinatorEvent, satisfaction, stepFailed, refused, "Warning evictPodFail evict Pod:be-pod-demo, reason: EvictPodByBECPUSatisfaction, message: killAndEvictBEPodsRelease for node(n1), need realase CPU : 1200: Cannot evict pod as it would violate the pod's disruption budget."},
		{koordinatorEvent, memory, stepCreated, nil, "Warning evictPodSuccess evict Pod:be, reason: EvictPodByNodeMemoryUsage, message: killAndEvictBEPods for node(n1), need to release memory: 4096"},
		{koordinatorEvent, newerRule, stepCreated, nil, "Warning evictPodSuccess evict Pod:default/be, reason: evicted, message: trigger by koordlet feature CPUEvict, kill pod: be"},
		{koordinatorEvent, newerRule, stepSucceeded, nil, ""},
		{koordinatorEvent, newerRule, stepTimedOut, nil, ""},
		{katalystEvent, plugin, stepCreated, nil, "Normal EvictCreated Successfully create eviction; reason: met threshold in scope: s from plugin: r"},
		{katalystEvent, plugin, stepFailed, refused, "Warning EvictFailed Evict failed: Cannot evict pod as it would violate the pod's disruption budget."},
		{katalystEvent, plugin, stepSucceeded, nil, "Normal EvictSucceeded Evicted pod has been deleted physically; reason: met threshold in scope: s from plugin: r"},
		{katalystEvent, plugin, stepTimedOut, nil, "Warning EvictExceededGracePeriod Container runtime did not kill the pod within specified grace period"},
	} {
		got := ""
		if x := tt.newEvent(tt.of, tt.step, tt.err); x != nil {
			got = strings.Join([]string{x.kind, x.reason, x.note}, " ")
		}
		if got != tt.want {
			t.Errorf("%q; want %q", got, tt.want)
		}
	}
}
