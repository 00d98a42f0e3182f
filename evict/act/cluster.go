package act

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"polder/lib/kube"
	"polder/lib/tick"
)

// Cluster ends pods through the API server.
type Cluster struct {
	Client *kube.Client
	Events *Events
}

const (
	// With less than minGraceSeconds, 0, the API server removes the object before kubelet has ended the pod: that would be a forced
	// deletion, and the pod's successor would start beside it.
	minGraceSeconds = 1
	// podPollInterval is how often evict asks the API server whether a pod has ended.
	podPollInterval = 2 * time.Second
	// budgetRetryInterval is Katalyst's wait before an eviction that a disruption budget refused is retried.
	budgetRetryInterval = 5 * time.Second
	// maxBudgetAttempts bounds these retries, so that another pod can be tried while the need lasts; then the pod is no candidate for
	// failureBackoff.
	maxBudgetAttempts = 3
	failureBackoff    = 30 * time.Second
	// forbiddenTimeout is how long "forbidden" is retried: an API server that has just started has not loaded its roles yet.
	forbiddenTimeout = 5 * time.Second
	// noAnswerTimeout is how long an API server that does not respond, or that refuses for a reason that may pass, is retried: after that
	// the need is measured again.
	noAnswerTimeout = 30 * time.Second
	// maxGrace bounds a pod's own grace period, which its owner chooses.
	maxGrace = 24 * time.Hour
)

// Evict requests the pod's eviction, which disruption budgets may refuse, and waits until the pod has ended.
func (c *Cluster) Evict(ctx context.Context, o Order, report func(string, error)) error {
	return c.endPod(ctx, o, report, func(ctx context.Context) error {
		_, err := c.Client.Create(ctx, kube.Pods, o.Eviction.Namespace, evictionOf(&o.Eviction), "eviction")
		return err
	})
}

// Delete deletes the pod, which bypasses disruption budgets, and waits until it has ended.
func (c *Cluster) Delete(ctx context.Context, o Order, report func(string, error)) error {
	return c.endPod(ctx, o, report, func(ctx context.Context) error {
		grace := int64(-1)
		if g := o.Eviction.GracePeriodSeconds; g != nil && *g >= 0 {
			grace = max(*g, minGraceSeconds)
		}
		return c.Client.Delete(ctx, kube.Pods, o.Eviction.Namespace, o.Eviction.Name, o.Eviction.UID, grace)
	})
}

// evictionOf returns the Eviction of exactly this pod: a later pod of the same name has another UID, and is not evicted.
func evictionOf(e *tick.PodEviction) kube.Object {
	options := kube.Object{"preconditions": kube.Object{"uid": e.UID}}
	if g := e.GracePeriodSeconds; g != nil && *g >= 0 {
		options["gracePeriodSeconds"] = max(*g, minGraceSeconds)
	}
	return kube.Object{
		"apiVersion":    "policy/v1",
		"kind":          "Eviction",
		"metadata":      kube.Object{"name": e.Name, "namespace": e.Namespace},
		"deleteOptions": options,
	}
}

func (c *Cluster) endPod(ctx context.Context, o Order, report func(string, error), request func(context.Context) error) error {
	if o.Eviction.Name == "" || o.Eviction.Namespace == "" {
		return errors.New("the sample has no namespace and name of the pod (does collect run with --kubeconfig?)")
	}
	if o.Requested == NotRequested {
		ended, err := c.request(ctx, o, report, request)
		switch {
		case ended:
			return nil
		case errors.Is(err, context.Canceled):
			return err
		case err != nil:
			c.recordEvent(o, stepFailed, err)
			return err
		}
		c.recordEvent(o, stepCreated, nil)
		report(tick.StateCreated, nil)
	}
	return c.await(ctx, o)
}

func (c *Cluster) recordEvent(o Order, step evictionStep, err error) {
	newEvent := katalystEvent
	if o.Koordinator {
		newEvent = koordinatorEvent
	}
	if x := newEvent(&o.Eviction, step, err); x != nil {
		c.Events.Record(&o.Eviction, *x)
	}
}

// request retries until the API server has accepted. It returns true if the pod has ended meanwhile.
func (c *Cluster) request(ctx context.Context, o Order, report func(string, error), request func(context.Context) error) (bool, error) {
	start := time.Now()
	refusals := 0
	backoff := 500 * time.Millisecond
	var forbiddenSince time.Time // start of an unbroken series: a restarted API server has not loaded its roles yet
	for {
		err := request(ctx)
		if !kube.IsForbidden(err) {
			forbiddenSince = time.Time{}
		} else if forbiddenSince.IsZero() {
			forbiddenSince = time.Now()
		}
		switch {
		case err == nil:
			return false, nil
		case kube.IsNotFound(err), kube.IsConflict(err):
			// No pod has that name, or its UID differs. A conflict may also be temporary, and a proxy may find nothing at all.
			ended, _, err := c.ended(ctx, &o.Eviction)
			if ended || err != nil && !kube.IsUnreachable(err) && !kube.IsNotFound(err) {
				return ended, err
			}
		case kube.IsDisruptionBudget(err):
			if refusals++; refusals == maxBudgetAttempts {
				return false, &retryError{fmt.Errorf("eviction refused %d times: %w", refusals, err), failureBackoff}
			}
			report(tick.StateRequested, err)
			if err := sleep(ctx, max(budgetRetryInterval, kube.RetryAfter(err))); err != nil {
				return false, err
			}
			continue
		case kube.IsForbidden(err) && time.Since(forbiddenSince) < forbiddenTimeout:
		case kube.IsServerError(err): // the server failed, not the pod: the order of victims must not change because of it
		case !kube.IsUnreachable(err) && !kube.IsTooManyRequests(err): // too many requests: an overloaded server: the request is repeated
			return false, err
		}
		if time.Since(start) > noAnswerTimeout {
			return false, &retryError{withDuration(err), failureBackoff}
		}
		report(tick.StateRequested, err)
		if err := sleep(ctx, backoff/2+rand.N(backoff)); err != nil {
			return false, err
		}
		backoff = min(2*backoff, budgetRetryInterval)
	}
}

// withDuration says what the last of the requests within noAnswerTimeout had for an answer.
func withDuration(err error) error {
	if kube.IsAnswer(err) {
		return fmt.Errorf("refused by the API server for %s: %w", noAnswerTimeout, err)
	}
	return fmt.Errorf("no answer from the API server for %s: %w", noAnswerTimeout, err)
}

// await waits until the pod has ended, for 1.5 times its grace period. If the order does not contain the pod's own grace
// period, the pod does once the API server has accepted.
func (c *Cluster) await(ctx context.Context, o Order) error {
	start, timeout := time.Now(), o.Timeout
	var knownGrace time.Duration
	var forbiddenSince time.Time // start of an unbroken series
	for {
		ended, grace, err := c.ended(ctx, &o.Eviction)
		if grace > knownGrace {
			knownGrace = grace
			timeout = max(timeout, grace*3/2)
			if o.reportGrace != nil {
				o.reportGrace(grace)
			}
		}
		switch {
		case ended:
			c.recordEvent(o, stepSucceeded, nil)
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case kube.IsForbidden(err) && !forbiddenSince.IsZero() && time.Since(forbiddenSince) > forbiddenTimeout:
			return fmt.Errorf("check whether the pod has ended: %w", err)
		case time.Since(start) > timeout:
			c.recordEvent(o, stepTimedOut, nil)
			if err != nil {
				return fmt.Errorf("it is unknown whether the pod has ended after %s: %w", timeout, err)
			}
			return fmt.Errorf("the pod still exists after %s", timeout)
		}
		if !kube.IsForbidden(err) {
			forbiddenSince = time.Time{}
		} else if forbiddenSince.IsZero() {
			forbiddenSince = time.Now()
		}
		if err := sleep(ctx, podPollInterval); err != nil {
			return err
		}
	}
}

// ended reports whether the pod no longer exists, by the API server's own word; another pod of its name does not count. While the pod
// terminates, grace is its grace period.
func (c *Cluster) ended(ctx context.Context, e *tick.PodEviction) (ended bool, grace time.Duration, err error) {
	pod, err := c.Client.Get(ctx, kube.Pods, e.Namespace, e.Name)
	switch {
	case kube.IsMissing(err, kube.Pods, e.Name):
		return true, 0, nil
	case err != nil:
		return false, 0, err
	}
	metadata, _ := pod["metadata"].(kube.Object)
	return metadata["uid"] != e.UID, graceOf(metadata), nil
}

// graceOf returns the grace period of a pod that terminates, 0 for any other.
func graceOf(metadata kube.Object) time.Duration {
	seconds := 0.0
	switch s := metadata["deletionGracePeriodSeconds"].(type) {
	case int64:
		seconds = float64(s)
	case float64:
		seconds = s
	}
	if !(seconds > 0) {
		return 0
	}
	return time.Duration(min(seconds, maxGrace.Seconds())) * time.Second
}
