package kubernetes

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A pod that is resized in place has the requests that the scheduler counts, and the limits that are in force.
func TestResize(t *testing.T) {
	const with = `{"metadata": {"name": "a", "namespace": "d", "uid": "8f4e8a3a-1111-4000-8000-000000000001"},
		"spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {
			"requests": {"cpu": %q, "memory": "1Gi", "kubernetes.io/batch-cpu": "500"}, "limits": {"cpu": %[1]q, "memory": "2Gi"}}}]},
		"status": {"phase": "Running", "conditions": [{"type": %q, "status": %q, "reason": %q}],
			"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2", "memory": "1Gi"},
				"resources": {"requests": {"cpu": %q, "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}}]}}`
	for name, tt := range map[string]struct {
		wish, condition, status, reason, actual string
		request, limit                          float64
	}{
		"infeasible":              {"64", "PodResizePending", "True", "Infeasible", "2", 2000, 2000},
		"deferred":                {"8", "PodResizePending", "True", "Deferred", "2", 8000, 2000},
		"in progress":             {"1", "PodResizeInProgress", "True", "", "4", 4000, 2000},
		"smaller, and deferred":   {"1", "PodResizePending", "True", "Deferred", "1", 2000, 2000},
		"no longer pending":       {"3", "PodResizePending", "False", "Infeasible", "2", 3000, 3000},
		"another condition alone": {"3", "Ready", "True", "", "2", 3000, 3000},
	} {
		r := Reading{}
		p := r.Pod(decoded(t, fmt.Sprintf(with, tt.wish, tt.condition, tt.status, tt.reason, tt.actual)))
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
