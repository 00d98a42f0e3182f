package kube_test

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
