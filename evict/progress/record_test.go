package progress

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"polder/evict/act"
	"polder/evict/pick"
	"polder/evict/rule"
	"polder/lib/tick"
)

// Failed orders determine which pods count, which are no candidates, and which requests are repeated.
func TestResults(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	pod := &tick.Pod{UID: "u", Namespace: "default", Name: "p"}
	unreachable := &url.Error{Op: "Post", Err: errors.New("connection refused")}
	status := func(code int) error {
		return apierrors.NewGenericServerResponse(code, http.MethodPost, schema.GroupResource{}, "", "from a proxy", 0, true)
	}
	tooMany, proxyNotFound := apierrors.NewTooManyRequests("slow down", 1), status(http.StatusNotFound)
	webhookError := apierrors.NewInternalError(errors.New("a webhook has failed"))
	for _, tt := range []struct {
		name       string
		errs       []error
		unanswered bool // else it is no candidate for some time
	}{
		{"no answer, repeatedly", []error{unreachable, unreachable, unreachable}, true},
		{"nothing found by a proxy, repeatedly", []error{proxyNotFound, proxyNotFound, proxyNotFound}, true},
		{"too many requests", []error{tooMany}, true},
		{"too many requests twice", []error{tooMany, tooMany}, false},
		{"too many requests, not in a row", []error{tooMany, unreachable, tooMany}, true},
		{"unavailable twice", []error{apierrors.NewServiceUnavailable("a webhook has no answer"), status(http.StatusServiceUnavailable)}, false},
		{"a timeout twice", []error{apierrors.NewTimeoutError("a webhook is slow", 1), status(http.StatusGatewayTimeout)}, false},
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

// An API server that refuses one pod with 429, as a webhook may, does not protect the others: after two rounds the next one is tried, and
// neither the hourly limit nor the cooldown is used up. A pod that gets no answer is requested first for as long as that lasts.
func TestRefusedPodBlocksNoOther(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	candidates := []rule.Candidate{
		{Pod: &tick.Pod{UID: "large", QoS: tick.QoSReclaimed}, Rank: []float64{2}, Releases: 2},
		{Pod: &tick.Pod{UID: "small", QoS: tick.QoSReclaimed}, Rank: []float64{1}, Releases: 1},
	}
	need := rule.Finding{
		PressureFinding: tick.PressureFinding{Rule: "r", Scope: "s", Value: 9, Threshold: 8, Met: true, Hard: true},
		Candidates:      candidates, Cooldown: time.Hour,
	}
	limits := pick.Limits{PerRule: 1, PerTick: 1, PerHour: 1, PerNamespace: pick.Unlimited}
	for _, tt := range []struct {
		name string
		err  error
		want []string // the victims of the rounds
	}{
		{"refused", apierrors.NewTooManyRequests("not this one", 1), []string{"large", "large", "small"}},
		{"no answer", &url.Error{Op: "Post", Err: errors.New("connection refused")}, []string{"large", "large", "large"}},
	} {
		n := &Record{}
		n.Init("n")
		var got []string
		for range tt.want {
			for _, v := range pick.Choose(now, []rule.Finding{need}, limits, &n.State).Victims {
				got = append(got, v.Pod.UID)
				n.RecordRequest(v, now)
				if v.Pod.UID == "large" {
					n.recordResult(act.Result{UID: "large", State: tick.StateFailed, Err: tt.err, RetryAfter: time.Minute}, now, act.EvictPods)
				}
			}
			now = now.Add(30 * time.Second)
			n.Observe(now, nil, pick.Pods{ByUID: map[string]*tick.Pod{"large": candidates[0].Pod, "small": candidates[1].Pod}, AreComplete: true})
		}
		if !slices.Equal(got, tt.want) || len(n.LastHour) != 1 || n.LastHour[0].UID != got[len(got)-1] {
			t.Errorf("%s: the victims are %v, the hour's evictions %+v; want %v, and the last one counted", tt.name, got, n.LastHour, tt.want)
		}
	}
}

// A freeze that an earlier run requested and did not do leaves nothing: its pod is a candidate at once.
func TestStaleFreezeIsDecidedAgain(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	n := &Record{}
	n.Init("n")
	n.RecordRequest(pick.Victim{Pod: &tick.Pod{UID: "u"}, Cooldowns: []string{"r"}, Eviction: tick.PodEviction{UID: "u"}}, at)
	n.recordResult(act.Result{UID: "u", State: tick.StateFailed, Err: fmt.Errorf("freeze: %w", act.ErrStale)}, at, act.FreezePods)
	if len(n.InProgress) > 0 || len(n.LastHour) > 0 || n.CooldownLeft("r", at, time.Minute) > 0 {
		t.Errorf("in progress %v, hour %v, cooldowns %v; want none", n.InProgress, n.LastHour, n.Cooldowns)
	}
	if changes := n.takeChanges(); len(changes) != 1 || changes[0].State != tick.StateFailed {
		t.Errorf("reported %+v; want the failure", changes)
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
