package act

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An API server that was away for longer than "forbidden" is retried has no roles yet when it is back: that is still no
// refusal.
func TestForbiddenAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		isBack := time.Now().Add(forbiddenTimeout + 100*time.Millisecond)
		refused := false
		ended, err := new(Cluster).request(t.Context(), Order{}, func(string, error) {}, func(context.Context) error {
			switch {
			case time.Now().Before(isBack):
				return &url.Error{Op: "Post", Err: errors.New("connection refused")}
			case !refused:
				refused = true
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "batch", errors.New("no roles yet"))
			}
			return nil
		})
		if ended || err != nil || !refused {
			t.Errorf("request = %t, %v, refused %t; want the request to be accepted", ended, err, refused)
		}
	})
}
