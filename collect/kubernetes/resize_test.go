package kubernetes

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A pod that is resized in place has the requests that the scheduler counts, and the smaller one of the desired and the actual
// limits: kubelet cannot lower a quota below a burst that follows from the actual limit.
func TestResize(t *testing.T) {
	const with = `{"metadata": {"name": "a", "namespace": "d", "uid": "8f4e8a3a-1111-4000-8000-000000000001"},
		"spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {
			"requests": {"cpu": %q, "memory": "1Gi", "kubernetes.io/batch-cpu": "500"}, "limits": {"cpu": %[1]q, "memory": "2Gi"}}}]},
		"status": {"phase": "Running", "conditions": [{"type": %q, "status": %q, "reason": %q}],
			"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2", "memory": "1Gi"},
				"resources": {"requests": {"cpu": %q, "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}}]}}`
	for name, tt := range map[string]struct {
		desired, condition, status, reason, actual string
		request, limit                             float64
	}{
		"infeasible":              {"64", "PodResizePending", "True", "Infeasible", "2", 2000, 2000},
		"deferred":                {"8", "PodResizePending", "True", "Deferred", "2", 8000, 2000},
		"in progress":             {"1", "PodResizeInProgress", "True", "", "4", 4000, 1000},
		"smaller, and deferred":   {"1", "PodResizePending", "True", "Deferred", "1", 2000, 1000},
		"no longer pending":       {"3", "PodResizePending", "False", "Infeasible", "2", 3000, 3000},
		"another condition alone": {"3", "Ready", "True", "", "2", 3000, 3000},
	} {
		r := Reading{}
		p := r.Pod(decoded(t, fmt.Sprintf(with, tt.desired, tt.condition, tt.status, tt.reason, tt.actual)))
		if diff := cmp.Diff(amountsOf(tt.request, 1<<30, 500, -1), p.Tick.Requests); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(amountsOf(tt.limit, 2<<30, -1, -1), p.Tick.Limits); diff != "" {
			t.Errorf("%s: limits (-want +got):\n%s", name, diff)
		}
		if len(p.Tick.Errors) > 0 {
			t.Errorf("%s: %q", name, p.Tick.Errors)
		}
	}
}

// What grows and what shrinks is compared for the whole pod, as the scheduler does: the largest sizes of single containers would add up to
// more than any quota has counted. Containers have what they were given. Resources of the pod as a whole are treated alike.
func TestResizeOfSeveralContainers(t *testing.T) {
	const resizing = `{"metadata": {"name": "a", "namespace": "d", "uid": "8f4e8a3a-1111-4000-8000-000000000001"},
		"spec": {"nodeName": "n", %s "containers": [
			{"name": "grows", "resources": {"requests": {"cpu": "10"}}}, {"name": "shrinks", "resources": {"requests": {"cpu": "1"}}}]},
		"status": {"phase": "Running", "conditions": [{"type": "PodResizePending", "status": "True", "reason": %q}], %s
			"containerStatuses": [
				{"name": "grows", "allocatedResources": {"cpu": "1"}}, {"name": "shrinks", "allocatedResources": {"cpu": "9"}}]}}`
	const whole = `"resources": {"requests": {"cpu": "64"}},`
	const wholeStatus = `"allocatedResources": {"cpu": "12"}, "resources": {"requests": {"cpu": "12"}},`
	for name, tt := range map[string]struct {
		spec, reason, status string
		want                 float64
	}{
		"deferred":              {"", "Deferred", "", 11000},
		"infeasible":            {"", "Infeasible", "", 10000},
		"the pod's, deferred":   {whole, "Deferred", wholeStatus, 64000},
		"the pod's, infeasible": {whole, "Infeasible", wholeStatus, 12000},
	} {
		r := Reading{}
		p := r.Pod(decoded(t, fmt.Sprintf(resizing, tt.spec, tt.reason, tt.status)))
		if diff := cmp.Diff(amountsOf(tt.want, -1, -1, -1), p.Tick.Requests); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", name, diff)
		}
		for i, want := range []float64{1000, 9000} {
			if diff := cmp.Diff(amountsOf(want, -1, -1, -1), p.Containers[i].Requests); diff != "" {
				t.Errorf("%s: requests of container %d (-want +got):\n%s", name, i, diff)
			}
		}
	}
}
