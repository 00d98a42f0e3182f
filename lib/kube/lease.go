package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"polder/lib/fields"
)

// Leases is the resource Lease of coordination.k8s.io.
var Leases = Resource{"coordination.k8s.io", "v1", "leases"}

// Election names the lease and the candidate. The times and the format are those of client-go's own leader election: any
// program that uses it can compete for the same Lease. client-go's own is not used, because it would add the typed client on
// every node, and it counts the term from the server's answer: see docs/adr/0012-own-lease.md.
type Election struct {
	Namespace, Name, Identity string
	// Duration is how long the others wait after the last renewal that they observed; 15 s if it is zero.
	Duration time.Duration
	// RenewDeadline is how long the holder leads without a renewal, less than Duration; 10 s if it is zero.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two attempts; 2 s if it is zero.
	RetryPeriod time.Duration
}

func (e *Election) defaults() error {
	for into, value := range map[*time.Duration]time.Duration{
		&e.Duration: 15 * time.Second, &e.RenewDeadline: 10 * time.Second,
		&e.RetryPeriod: 2 * time.Second,
	} {
		if *into == 0 {
			*into = value
		}
	}
	if e.Namespace == "" || e.Name == "" || e.Identity == "" {
		return errors.New("lease: want a namespace, a name and an identity")
	}
	if e.Duration%time.Second != 0 || e.RenewDeadline >= e.Duration || 2*e.RetryPeriod > e.RenewDeadline {
		return fmt.Errorf("lease %s/%s: want a duration of whole seconds (%s), longer than the renewal deadline (%s), and that at least twice the retry period (%s)",
			e.Namespace, e.Name, e.Duration, e.RenewDeadline, e.RetryPeriod)
	}
	return nil
}

// Lease is a candidacy for a lease, or its possession. It is safe for concurrent use.
type Lease struct {
	client *Client
	e      Election

	acquired  chan struct{}
	lost      chan struct{}
	stop      context.CancelFunc
	ended     chan struct{}
	err       error        // why it was lost; valid once lost is closed
	expiresAt atomic.Int64 // nanoseconds since startedAt: when the lease expires unless it is renewed
	startedAt time.Time
	holder    atomic.Pointer[string]
	lastError atomic.Pointer[error]

	object  Object    // the lease as last read or written
	version string    // its version
	seenAt  time.Time // when that version was first seen; by the monotonic clock
}

// Compete competes for the lease until Release is called. The end of ctx does not end that, so that the lease is held during the last
// work. The server need not respond yet.
func (c *Client) Compete(ctx context.Context, e Election) (*Lease, error) {
	if err := e.defaults(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	l := &Lease{
		client: c, e: e, acquired: make(chan struct{}), lost: make(chan struct{}), stop: stop, ended: make(chan struct{}),
		startedAt: time.Now(),
	}
	go l.run(ctx)
	return l, nil
}

// Acquired is closed when the lease is held.
func (l *Lease) Acquired() <-chan struct{} { return l.acquired }

// Lost is closed when the lease was held and is lost; Err returns why. There is no further attempt.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err returns why the lease was lost, nil while it is not.
func (l *Lease) Err() error {
	select {
	case <-l.lost:
		return l.err
	default:
		return nil
	}
}

// IsHeld reports whether it is held now: it is not if a renewal is overdue, even before Lost is closed.
func (l *Lease) IsHeld() bool {
	until := l.expiresAt.Load()
	return until > 0 && time.Since(l.startedAt) < time.Duration(until)
}

// Holder returns the last known holder, empty if there is none.
func (l *Lease) Holder() string {
	if h := l.holder.Load(); h != nil {
		return *h
	}
	return ""
}

// LastError returns why the last attempt failed, nil if the server responded.
func (l *Lease) LastError() error {
	if err := l.lastError.Load(); err != nil {
		return *err
	}
	return nil
}

// Release ends the candidacy, and releases a held lease, so that another candidate need not wait until it expires.
func (l *Lease) Release(ctx context.Context) error {
	l.stop()
	<-l.ended
	held := l.IsHeld()
	l.expiresAt.Store(0)
	if !held {
		return nil
	}
	now := time.Now()
	spec := l.spec("", now, now)
	spec["leaseDurationSeconds"] = int64(1)
	err := l.update(ctx, spec)
	if l.object == nil { // it has changed, perhaps by our own last renewal whose response was lost
		if err = l.read(ctx); err == nil && l.Holder() == l.e.Identity {
			err = l.update(ctx, spec)
		}
	}
	if err != nil {
		return fmt.Errorf("release lease %s/%s: %w", l.e.Namespace, l.e.Name, err)
	}
	return nil
}

func (l *Lease) run(ctx context.Context) {
	defer close(l.ended)
	for isHeld := false; ; {
		requestedAt := time.Now()
		limit := requestedAt.Add(l.e.RenewDeadline / 2)
		if until := l.startedAt.Add(time.Duration(l.expiresAt.Load())); isHeld && until.Before(limit) {
			limit = until
		}
		attempt, cancel := context.WithDeadline(ctx, limit)
		isOurs, err := l.acquireOrRenew(attempt, isHeld)
		cancel()
		if ctx.Err() != nil {
			if isOurs && err == nil {
				l.extend(requestedAt)
			}
			return
		}
		l.lastError.Store(&err)
		switch {
		case isOurs && err == nil:
			l.extend(requestedAt)
			if !isHeld {
				isHeld = true
				close(l.acquired)
			}
		case isHeld && err == nil:
			l.lose(fmt.Errorf("lease %s/%s is held by %s now", l.e.Namespace, l.e.Name, l.Holder()))
			return
		case isHeld && !l.IsHeld():
			l.lose(fmt.Errorf("lease %s/%s was not renewed for %s: %w", l.e.Namespace, l.e.Name, l.e.RenewDeadline, err))
			return
		}
		wait := l.e.RetryPeriod
		if !isHeld {
			wait += time.Duration(rand.Float64() * 0.2 * float64(wait)) // so that the candidates' attempts do not coincide
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// extend records a renewal that was requested at that time: the term counts from then, not from the response.
func (l *Lease) extend(requestedAt time.Time) {
	l.expiresAt.Store(int64(requestedAt.Add(l.e.RenewDeadline).Sub(l.startedAt)))
}

func (l *Lease) lose(err error) {
	l.expiresAt.Store(0)
	l.err = err
	close(l.lost)
}

// acquireOrRenew acquires or renews the lease. It is no error if another candidate holds it.
func (l *Lease) acquireOrRenew(ctx context.Context, isHeld bool) (isOurs bool, err error) {
	if !isHeld || l.object == nil || l.Holder() != l.e.Identity {
		if err := l.read(ctx); IsMissing(err, Leases, l.e.Name) {
			return l.create(ctx)
		} else if err != nil {
			return false, err
		}
	}
	holder := l.Holder()
	if holder != "" && holder != l.e.Identity {
		if seconds, _ := fields.Integer(l.object, "spec", "leaseDurationSeconds"); isHeld || time.Since(l.seenAt) < time.Duration(seconds)*time.Second {
			return false, nil
		}
	}
	now := time.Now()
	acquired := now
	if holder == l.e.Identity {
		if t := fields.Time(l.object, "spec", "acquireTime"); !t.IsZero() {
			acquired = t
		}
	}
	spec := l.spec(l.e.Identity, now, acquired)
	if holder != l.e.Identity {
		changes, _ := fields.Integer(l.object, "spec", "leaseTransitions")
		spec["leaseTransitions"] = changes + 1
	}
	err = l.update(ctx, spec)
	if IsConflict(err) && !isHeld { // conflict: another candidate has written it meanwhile
		return false, nil
	}
	return err == nil, err
}

// spec returns the lease's desired content.
func (l *Lease) spec(holder string, renewed, acquired time.Time) Object {
	changes, _ := fields.Integer(l.object, "spec", "leaseTransitions")
	return Object{
		"holderIdentity": holder, "leaseDurationSeconds": int64(l.e.Duration / time.Second), "leaseTransitions": changes,
		"renewTime": MicroTime(renewed), "acquireTime": MicroTime(acquired),
	}
}

// MicroTime formats a time as the API's MicroTime.
func MicroTime(t time.Time) string { return t.UTC().Format(metav1.RFC3339Micro) }

func (l *Lease) read(ctx context.Context) error {
	o, err := l.client.Get(ctx, Leases, l.e.Namespace, l.e.Name)
	if err != nil {
		return err
	}
	l.observe(o)
	return nil
}

// observe records the lease's content. Its time counts from when it was read here, because clocks may differ.
func (l *Lease) observe(o Object) {
	if v := fields.Text(o, "metadata", "resourceVersion"); v != l.version || l.seenAt.IsZero() {
		l.version, l.seenAt = v, time.Now()
	}
	l.object = o
	holder := fields.Text(o, "spec", "holderIdentity")
	l.holder.Store(&holder)
}

func (l *Lease) create(ctx context.Context) (bool, error) {
	now := time.Now()
	l.object = nil
	o := Object{
		"apiVersion": Leases.Group + "/" + Leases.Version, "kind": "Lease",
		"metadata": Object{"namespace": l.e.Namespace, "name": l.e.Name}, "spec": l.spec(l.e.Identity, now, now),
	}
	o, err := l.client.Create(ctx, Leases, l.e.Namespace, o)
	switch {
	case IsAlreadyExists(err):
		return false, nil
	case err != nil:
		return false, err
	}
	l.observe(o)
	return true, nil
}

// update changes the lease if no other client has changed it since it was read. After a conflict the next attempt reads it again.
func (l *Lease) update(ctx context.Context, spec Object) error {
	if l.object == nil {
		return errors.New("the lease was not read")
	}
	u := (&unstructured.Unstructured{Object: l.object}).DeepCopy()
	leaseSpec := fields.Child(u.Object, "spec")
	if leaseSpec == nil {
		leaseSpec = Object{}
		u.Object["spec"] = leaseSpec
	}
	maps.Copy(leaseSpec, spec)
	written, err := l.client.at(Leases, l.e.Namespace).Update(ctx, u, metav1.UpdateOptions{})
	if IsConflict(err) || IsNotFound(err) {
		l.object = nil
	}
	if err != nil {
		return err
	}
	l.observe(written.Object)
	return nil
}
