package progress

import (
	"errors"
	"net/url"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"polder/evict/act"
	"polder/evict/pick"
	"polder/lib/tick"
)

// Failed orders determine which pods count, which are no candidates, and which requests are repeated.
func TestResults(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	pod := &tick.Pod{UID: "u", Namespace: "default", Name: "p"}
	unreachable := &url.Error{Op: "Post", Err: errors.New("connection refused")}
	webhookError := apierrors.NewInternalError(errors.New("a webhook has failed"))
	for _, tt := range []struct {
		name       string
		errs       []error
		unanswered bool // else it is no candidate for some time
	}{
		{"no answer, repeatedly", []error{unreachable, unreachable, unreachable}, true},
		{"too many requests, repeatedly", []error{apierrors.NewTooManyRequests("slow down", 1), apierrors.NewTooManyRequests("slow down", 1)}, true},
		{"the server's failure", []error{webhookError}, true},
		{"the server's failure twice", []error{webhookError, webhookError}, false},
		{"the server's failure, not in a row", []error{webhookError, unreachable, webhookError}, true},
		{"two budgets", []error{apierrors.NewInternalError(errors.New("This pod has more than one PodDisruptionBudget"))}, false},
		{"forbidden", []error{apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", nil)}, false},
	} {
		n := &Record{}
		n.Init("n")
		for _, err := range tt.errs {
			n.RecordRequest(pick.Victim{Pod: pod, Eviction: tick.PodEviction{UID: pod.UID}}, at)
			n.recordResult(act.Result{UID: pod.UID, State: tick.StateFailed, Err: err}, at, act.EvictPods)
		}
		if n.InProgress.Unanswered(pod.UID) != tt.unanswered || n.InProgress.FailedRecently(pod.UID) == tt.unanswered {
			t.Errorf("%s: unanswered %t, failed recently %t; want unanswered %t", tt.name, n.InProgress.Unanswered(pod.UID), n.InProgress.FailedRecently(pod.UID), tt.unanswered)
		}
	}
}

// A pod's own grace period, which becomes known while it ends, does not restart its wait.
func TestResultGrace(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	n := &Record{}
	n.Init("n")
	l := n.RecordRequest(pick.Victim{Pod: &tick.Pod{UID: "u"}, Eviction: tick.PodEviction{UID: "u"}}, at)
	for i, r := range []act.Result{{State: tick.StateCreated}, {State: tick.StateCreated, OwnGrace: time.Hour}} {
		r.UID = "u"
		n.recordResult(r, at.Add(time.Duration(i+1)*time.Second), act.EvictPods)
	}
	if !l.RequestedAt.Equal(at.Add(time.Second)) || l.OwnGrace != time.Hour {
		t.Errorf("requested %s, grace %s; want a second later, and an hour", l.RequestedAt, l.OwnGrace)
	}
	if !l.StillAwaited(at.Add(90*time.Minute)) || l.StillAwaited(at.Add(91*time.Minute)) {
		t.Error("the next run does not wait for 1.5 x its grace period")
	}
}
