package kube_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"polder/lib/kube"
)

func TestIsDisruptionBudget(t *testing.T) {
	budget := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	budget.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "DisruptionBudget"}}
	several := errors.New("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"a budget", budget, true},
		{"several budgets", fmt.Errorf("asked: %w", apierrors.NewInternalError(several)), true},
		{"too many requests", apierrors.NewTooManyRequests("slow down", 1), false},
		{"another failure", apierrors.NewInternalError(errors.New("etcd is away")), false},
		{"no answer", several, false},
		{"none", nil, false},
	} {
		if got := kube.IsDisruptionBudget(tt.err); got != tt.want {
			t.Errorf("%s: %t; want %t", tt.name, got, tt.want)
		}
	}
}

// Only a Status object that names the object says that it is missing: a proxy's 404, and that of an unknown kind, do not, and no
// server has answered for a proxy.
func TestIsMissing(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	text := apierrors.NewGenericServerResponse(http.StatusNotFound, http.MethodGet, pods, "p", "404 page not found", 0, true)
	bare := apierrors.NewGenericServerResponse(http.StatusNotFound, http.MethodGet, schema.GroupResource{}, "", "", 0, false)
	for _, tt := range []struct {
		name                      string
		err                       error
		missing, notFound, answer bool
	}{
		{"a missing pod", fmt.Errorf("asked: %w", apierrors.NewNotFound(pods, "p")), true, true, true},
		{"another missing pod", apierrors.NewNotFound(pods, "q"), false, true, true},
		{"a missing namespace", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "p"), false, true, true},
		{"a Status without details", bare, false, true, true},
		{"a proxy", fmt.Errorf("asked: %w", text), false, true, false},
		{"another answer", apierrors.NewTooManyRequests("slow down", 1), false, false, true},
		{"no answer", errors.New("connection refused"), false, false, false},
		{"none", nil, false, false, false},
	} {
		missing, notFound, answer := kube.IsMissing(tt.err, kube.Pods, "p"), kube.IsNotFound(tt.err), kube.IsAnswer(tt.err)
		if missing != tt.missing || notFound != tt.notFound || answer != tt.answer {
			t.Errorf("%s: missing %t, not found %t, answer %t; want %t, %t, %t",
				tt.name, missing, notFound, answer, tt.missing, tt.notFound, tt.answer)
		}
	}
}
