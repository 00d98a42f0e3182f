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
	// leastGrace is in seconds. With 0 the API server removes the object before kubelet has ended the pod: that would be a forced
	// deletion, and the pod's successor would start beside it.
	leastGrace = 1
	// pollPod is how often the API server's list is checked for whether a pod has ended.
	pollPod = 2 * time.Second
	// budgetPause is Katalyst's wait before an eviction that a disruption budget refused is retried.
	budgetPause = 5 * time.Second
	// budgetTries bounds these retries, so that another pod can be tried while the need lasts; then the pod is spared for budgetRest.
	budgetTries = 3
	budgetRest  = 30 * time.Second
	// forbiddenFor is how long "forbidden" is retried: an API server that has just started has not loaded its roles yet.
	forbiddenFor = 5 * time.Second
	// askWithin is how long an API server that does not respond is retried: after that the need is measured again.
	askWithin = 30 * time.Second
	// longestGrace bounds a pod's own grace period, which its owner chooses.
	longestGrace = 24 * time.Hour
)

// Evict requests the pod's eviction, which disruption budgets may refuse, and waits until the pod has ended.
func (c *Cluster) Evict(ctx context.Context, o Order, report func(string, error)) error {
	return c.end(ctx, o, report, func(ctx context.Context) error {
		_, err := c.Client.Create(ctx, kube.Pods, o.Eviction.Namespace, evictionOf(&o.Eviction), "eviction")
		return err
	})
}

// Delete deletes the pod, which bypasses disruption budgets, and waits until it has ended.
func (c *Cluster) Delete(ctx context.Context, o Order, report func(string, error)) error {
	return c.end(ctx, o, report, func(ctx context.Context) error {
		grace := int64(-1)
		if g := o.Eviction.GracePeriodSeconds; g != nil && *g >= 0 {
			grace = max(*g, leastGrace)
		}
		return c.Client.Delete(ctx, kube.Pods, o.Eviction.Namespace, o.Eviction.Name, o.Eviction.UID, grace)
	})
}

// evictionOf returns the Eviction of exactly this pod: a later pod of the same name has another UID, and is not evicted.
func evictionOf(e *tick.PodEviction) kube.Object {
	options := kube.Object{"preconditions": kube.Object{"uid": e.UID}}
	if g := e.GracePeriodSeconds; g != nil && *g >= 0 {
		options["gracePeriodSeconds"] = max(*g, leastGrace)
	}
	return kube.Object{
		"apiVersion":    "policy/v1",
		"kind":          "Eviction",
		"metadata":      kube.Object{"name": e.Name, "namespace": e.Namespace},
		"deleteOptions": options,
	}
}

func (c *Cluster) end(ctx context.Context, o Order, report func(string, error), ask func(context.Context) error) error {
	if o.Eviction.Name == "" || o.Eviction.Namespace == "" {
		return errors.New("the sample does not have the pod's namespace and name: is collect running with --kubeconfig?")
	}
	if o.Asked == NotAsked {
		gone, err := c.ask(ctx, o, report, ask)
		switch {
		case gone:
			return nil
		case errors.Is(err, context.Canceled):
			return err
		case err != nil:
			c.recordEvent(o, failed, err)
			return err
		}
		c.recordEvent(o, created, nil)
		report(tick.StateCreated, nil)
	}
	return c.await(ctx, o)
}

func (c *Cluster) recordEvent(o Order, what happening, err error) {
	words := katalyst
	if o.Koordinator {
		words = koordinator
	}
	if x := words(&o.Eviction, what, err); x != nil {
		c.Events.Record(&o.Eviction, *x)
	}
}

// ask retries until the API server has accepted. It returns true if the pod has ended meanwhile.
func (c *Cluster) ask(ctx context.Context, o Order, report func(string, error), ask func(context.Context) error) (bool, error) {
	began := time.Now()
	refused := 0
	pause := 500 * time.Millisecond
	var forbidden time.Time // start of an unbroken series: a restarted API server has not loaded its roles yet
	for {
		err := ask(ctx)
		if !kube.IsForbidden(err) {
			forbidden = time.Time{}
		} else if forbidden.IsZero() {
			forbidden = time.Now()
		}
		switch {
		case err == nil:
			return false, nil
		case kube.IsNotFound(err), kube.IsConflict(err):
			// No pod has that name, or its UID differs. A conflict may also be temporary.
			gone, _, err := c.gone(ctx, &o.Eviction)
			if gone || err != nil && !kube.IsUnreachable(err) {
				return gone, err
			}
		case kube.IsDisruptionBudget(err):
			if refused++; refused == budgetTries {
				return false, &laterError{fmt.Errorf("refused %d times: %w", refused, err), budgetRest}
			}
			report(tick.StateRequested, err)
			if err := sleep(ctx, max(budgetPause, kube.RetryAfter(err))); err != nil {
				return false, err
			}
			continue
		case kube.IsForbidden(err) && time.Since(forbidden) < forbiddenFor:
		case kube.IsServerError(err): // the server failed, not the pod: the order of victims must not change because of it
		case !kube.IsUnreachable(err) && !kube.IsTooManyRequests(err): // too many requests: an overloaded server, which is asked again
			return false, err
		}
		if time.Since(began) > askWithin {
			return false, &laterError{fmt.Errorf("no answer of the API server for %s: %w", askWithin, err), budgetRest}
		}
		report(tick.StateRequested, err)
		if err := sleep(ctx, pause/2+rand.N(pause)); err != nil {
			return false, err
		}
		pause = min(2*pause, budgetPause)
	}
}

// await waits until the pod has ended, for 1.5 times its grace period. If the order does not contain the pod's own grace
// period, the pod does once the API server has accepted.
func (c *Cluster) await(ctx context.Context, o Order) error {
	began, patience := time.Now(), o.Patience
	var known time.Duration
	var forbidden time.Time // start of an unbroken series
	for {
		gone, grace, err := c.gone(ctx, &o.Eviction)
		if grace > known {
			known = grace
			patience = max(patience, grace*3/2)
			if o.graceIs != nil {
				o.graceIs(grace)
			}
		}
		switch {
		case gone:
			c.recordEvent(o, succeeded, nil)
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case kube.IsForbidden(err) && !forbidden.IsZero() && time.Since(forbidden) > forbiddenFor:
			return fmt.Errorf("check whether the pod has ended: %w", err)
		case time.Since(began) > patience:
			c.recordEvent(o, exceeded, nil)
			if err != nil {
				return fmt.Errorf("not known to have ended after %s: %w", patience, err)
			}
			return fmt.Errorf("still there after %s", patience)
		}
		if !kube.IsForbidden(err) {
			forbidden = time.Time{}
		} else if forbidden.IsZero() {
			forbidden = time.Now()
		}
		if err := sleep(ctx, pollPod); err != nil {
			return err
		}
	}
}

// gone reports whether the pod no longer exists; another pod of its name does not count. While the pod terminates, grace is its
// grace period.
func (c *Cluster) gone(ctx context.Context, e *tick.PodEviction) (gone bool, grace time.Duration, err error) {
	pod, err := c.Client.Get(ctx, kube.Pods, e.Namespace, e.Name)
	switch {
	case kube.IsNotFound(err):
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
	return time.Duration(min(seconds, longestGrace.Seconds())) * time.Second
}
