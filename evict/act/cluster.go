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
	// leastGrace is in seconds. With 0 the API server takes the object away while kubelet has not ended the pod yet: that would be
	// forced, and the pod's successor would start beside it.
	leastGrace = 1
	// pollPod is how often it is checked whether a pod has ended, by the API server's list.
	pollPod = 2 * time.Second
	// budgetPause is Katalyst's: how long after a refusal by a disruption budget the eviction is asked for again.
	budgetPause = 5 * time.Second
	// budgetTries bounds that, so that another pod can be tried while the need lasts; then the pod is spared for budgetRest.
	budgetTries = 3
	budgetRest  = 30 * time.Second
	// forbiddenFor is how long a refusal for want of rights may pass: an API server that has just started knows no roles yet.
	forbiddenFor = 5 * time.Second
	// askWithin is how long an API server that does not answer is tried: after that the need is measured again.
	askWithin = 30 * time.Second
	// longestGrace bounds a pod's own grace period, which its owner chooses.
	longestGrace = 24 * time.Hour
)

// Evict asks for the pod's eviction, which disruption budgets may refuse, and waits until the pod has ended.
func (c *Cluster) Evict(ctx context.Context, o Order, report func(string, error)) error {
	return c.end(ctx, o, report, func(ctx context.Context) error {
		_, err := c.Client.Create(ctx, kube.Pods, o.Eviction.Namespace, evictionOf(&o.Eviction), "eviction")
		return err
	})
}

// Delete deletes the pod, past its disruption budgets, and waits until it has ended.
func (c *Cluster) Delete(ctx context.Context, o Order, report func(string, error)) error {
	return c.end(ctx, o, report, func(ctx context.Context) error {
		grace := int64(-1)
		if g := o.Eviction.GracePeriodSeconds; g != nil && *g >= 0 {
			grace = max(*g, leastGrace)
		}
		return c.Client.Delete(ctx, kube.Pods, o.Eviction.Namespace, o.Eviction.Name, o.Eviction.UID, grace)
	})
}

// evictionOf is the Eviction for this very pod: one that took its name since has another UID, and stays.
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

// ask asks until the API server has accepted. It reports true where the pod has ended meanwhile.
func (c *Cluster) ask(ctx context.Context, o Order, report func(string, error), ask func(context.Context) error) (bool, error) {
	began := time.Now()
	refused := 0
	pause := 500 * time.Millisecond
	var forbidden time.Time // since when, without a break: a server that was away knows no roles yet when it is back
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
			// There is no pod of that name, or its UID is another one. A conflict may also be a passing one.
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
		case kube.IsServerError(err): // its trouble, not the pod's: who is evicted first must not change for it
		case !kube.IsUnreachable(err) && !kube.IsTooManyRequests(err): // too many: an overloaded server, which is asked again
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

// await waits until the pod has ended, for as long as its grace period and half of it again; its own, which the order does not
// have, is in the pod once the API server has accepted.
func (c *Cluster) await(ctx context.Context, o Order) error {
	began, patience := time.Now(), o.Patience
	var known time.Duration
	var forbidden time.Time // since when, without a break
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

// gone reports whether the pod is not there any more; another one of its name is not it. While it terminates, grace is the time
// that it has been given to end.
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

// graceOf is the grace period of a pod that terminates, 0 of any other.
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
