package act

import (
	"errors"
	"strings"
	"testing"

	"polder/lib/tick"
)

// The texts of events are fixed, because clusters search for them.
func TestWords(t *testing.T) {
	refused := errors.New("Cannot evict pod as it would violate the pod's disruption budget.")
	satisfaction := &tick.PodEviction{Namespace: "default", Name: "be-pod-demo", Reason: "EvictPodByBECPUSatisfaction", Message: "killAndEvictBEPodsRelease for node(n1), need realase CPU : 1200"}
	memory := &tick.PodEviction{Namespace: "default", Name: "be", Reason: "EvictPodByNodeMemoryUsage", Message: "killAndEvictBEPods for node(n1), need to release memory: 4096"}
	newer := &tick.PodEviction{Namespace: "default", Name: "be", Reason: "evicted", Message: "trigger by koordlet feature CPUEvict, kill pod: be"}
	plugin := &tick.PodEviction{Namespace: "default", Name: "be", Reason: "met threshold in scope: s from plugin: r", Message: "m"}
	for _, tt := range []struct {
		words func(*tick.PodEviction, happening, error) *event
		of    *tick.PodEviction
		what  happening
		err   error
		want  string // empty if nothing is reported
	}{
		{koordinator, satisfaction, created, nil, "Warning evictPodSuccess evict Pod:be-pod-demo, reason: EvictPodByBECPUSatisfaction, message: killAndEvictBEPodsRelease for node(n1), need realase CPU : 1200"},
		{koordinator, satisfaction, failed, refused, "Warning evictPodFail evict Pod:be-pod-demo, reason: EvictPodByBECPUSatisfaction, message: killAndEvictBEPodsRelease for node(n1), need realase CPU : 1200: Cannot evict pod as it would violate the pod's disruption budget."},
		{koordinator, memory, created, nil, "Warning evictPodSuccess evict Pod:be, reason: EvictPodByNodeMemoryUsage, message: killAndEvictBEPods for node(n1), need to release memory: 4096"},
		{koordinator, newer, created, nil, "Warning evictPodSuccess evict Pod:default/be, reason: evicted, message: trigger by koordlet feature CPUEvict, kill pod: be"},
		{koordinator, newer, succeeded, nil, ""},
		{koordinator, newer, exceeded, nil, ""},
		{katalyst, plugin, created, nil, "Normal EvictCreated Successfully create eviction; reason: met threshold in scope: s from plugin: r"},
		{katalyst, plugin, failed, refused, "Warning EvictFailed Evict failed: Cannot evict pod as it would violate the pod's disruption budget."},
		{katalyst, plugin, succeeded, nil, "Normal EvictSucceeded Evicted pod has been deleted physically; reason: met threshold in scope: s from plugin: r"},
		{katalyst, plugin, exceeded, nil, "Warning EvictExceededGracePeriod Container runtime did not kill the pod within specified grace period"},
	} {
		got := ""
		if x := tt.words(tt.of, tt.what, tt.err); x != nil {
			got = strings.Join([]string{x.kind, x.reason, x.note}, " ")
		}
		if got != tt.want {
			t.Errorf("%q; want %q", got, tt.want)
		}
	}
}
