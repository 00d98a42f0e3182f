package kube

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Selection selects the objects of a watch.
type Selection struct {
	Resource Resource
	// Namespace is empty for all of them.
	Namespace string
	// Fields and Labels are selectors, as in "spec.nodeName=n".
	Fields, Labels string
	// RetryUnknown is for kinds that a cluster need not have: if it is not zero, a server that does not know the kind
	// results in an empty list instead of an error, and the kind is requested again after this time.
	RetryUnknown time.Duration
}

// Watch keeps a list of objects current, each as a T. While the server does not respond, the last known list stays, and State
// has the time since when. It is safe for concurrent use.
type Watch[T any] struct {
	selection Selection
	convert   func(Object) T
	now       func() time.Time

	mu           sync.Mutex
	objects      map[string]T
	version      uint64
	state        State
	unknownSince time.Time // since when it has responded so without a break; by the wall clock
	unknownAt    time.Time // when the server last responded that it does not know the kind; by the wall clock
	changed      chan struct{}
}

// State shows whether a watch's list is current.
type State struct {
	// Synced means that the list was read at least once; before that it is empty and unknown.
	Synced bool
	// Absent means that the server does not know the kind; see [Selection.RetryUnknown].
	Absent bool
	// Err is why the server does not respond now, nil if it does. With an error the list is from Since.
	Err   error
	Since time.Time
}

// ErrNoResponse is a watch's error until the first response.
var ErrNoResponse = errors.New("no response from the API server yet")

// The backoff between two attempts to reach a server grows from half a second to maxBackoff, so that an agent is up to date
// within seconds after the server responds again, but a thousand agents do not connect at once.
const maxBackoff = 8 * time.Second

func init() { klog.SetLogger(logr.Discard()) } // the client's own log: State has its errors

// Start begins a watch that runs until ctx ends. Objects are converted on arrival and not kept: the memory is that of T.
func Start[T any](ctx context.Context, c *Client, s Selection, now func() time.Time, convert func(Object) T) *Watch[T] {
	w := &Watch[T]{selection: s, convert: convert, now: now, objects: map[string]T{}, changed: make(chan struct{}, 1)}
	w.state = State{Err: ErrNoResponse, Since: now()}
	at := c.watches.Resource(s.Resource.gvr()).Namespace(s.Namespace)
	selectors := func(o *metav1.ListOptions) {
		o.FieldSelector, o.LabelSelector = s.Fields, s.Labels
	}
	lists := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			selectors(&o)
			if err := w.waitIfUnknown(ctx); err != nil {
				return nil, err
			}
			list, err := at.List(withObserver(ctx, w.begin), o)
			if err != nil { // otherwise the store gets the list, once it is complete
				w.recordFailure(ctx, c, err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			selectors(&o)
			if err := w.waitIfUnknown(ctx); err != nil {
				return nil, err
			}
			stream, err := at.Watch(withObserver(ctx, w.begin), o)
			// After failed attempts to reach a server the client returns an ended stream without an error: that is no response. And
			// a stream that should begin with the whole list may begin with an error: there the list counts as the response.
			streaming := o.SendInitialEvents != nil && *o.SendInitialEvents
			switch {
			case err != nil:
				w.recordFailure(ctx, c, err)
			case !streaming && reflect.TypeOf(stream) != emptyWatch:
				return w.confirm(ctx, stream), nil
			}
			return stream, err
		},
	}
	discard := klog.Logger(logr.Discard())
	r := cache.NewReflectorWithOptions(lists, &unstructured.Unstructured{}, (*store[T])(w), cache.ReflectorOptions{
		Name: s.Resource.String(), TypeDescription: s.Resource.String(), Logger: &discard,
		Backoff: &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: maxBackoff},
	})
	reportSilence(ctx, s.Resource, w.State, now)
	go r.RunWithContext(klog.NewContext(ctx, discard))
	return w
}

// recordResult records the result of a request.
func (w *Watch[T]) recordResult(ctx context.Context, err error) {
	w.recordSince(ctx, err, false, w.now())
}

// recordFailure records the error of a request.
func (w *Watch[T]) recordFailure(ctx context.Context, c *Client, err error) {
	since := w.now()
	isUnknown := w.selection.RetryUnknown > 0 && c.IsAbsent(ctx, w.selection.Resource, err)
	w.recordSince(ctx, err, isUnknown, since)
}

// recordSince records the result of a request. If it is an error, the list was current until since; isUnknown means that the server does
// not know the kind.
func (w *Watch[T]) recordSince(ctx context.Context, err error, isUnknown bool, since time.Time) {
	if err != nil && ctx.Err() != nil {
		return // this process ended it
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !isUnknown && err == nil {
		w.unknownSince = time.Time{}
	} else if isUnknown && w.unknownSince.IsZero() {
		w.unknownSince = time.Now()
	}
	isAbsent := isUnknown && (!w.state.Synced || w.state.Absent || time.Since(w.unknownSince) > minUnknownTime)
	if isAbsent {
		w.unknownAt = time.Now()
		if !w.state.Absent || len(w.objects) > 0 {
			clear(w.objects)
			(*store[T])(w).notify()
		}
		w.state.Synced = true
	}
	w.state.Absent = isAbsent
	switch {
	case err == nil, isAbsent:
		w.state.Err = nil
	case w.state.Err == nil && (apierrors.IsGone(err) || apierrors.IsResourceExpired(err) || apierrors.IsInvalid(err)):
		// The server responds, and the list was current until now. If its version is too old, or the server cannot stream lists, the
		// reflector requests the whole list at once. After an outage it waits before that, and the list stays old until then.
	case w.state.Err == nil:
		w.state.Err, w.state.Since = err, since
	default:
		w.state.Err = err
	}
}

// minUnknownTime is how long a server must deny a kind that it had until the kind counts as absent: a server that starts may not have read
// its definitions yet.
const minUnknownTime = 10 * time.Second

var emptyWatch = reflect.TypeOf(watch.NewEmptyWatch())

// confirmTime is how long a stream that continues an old list must last without an event for the list to count as current.
const confirmTime = time.Second

// confirm returns the stream. If the list is old, it becomes current with the stream's first event, or after [confirmTime] without one: a
// server accepts a watch from a version that it no longer has, and then ends it with an event of type ERROR.
func (w *Watch[T]) confirm(ctx context.Context, stream watch.Interface) watch.Interface {
	if w.State().Err == nil {
		return stream
	}
	events := make(chan watch.Event)
	confirmed := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer stream.Stop()
		timer := time.NewTimer(confirmTime)
		defer timer.Stop()
		pending := timer.C
		for {
			select {
			case <-confirmed.StopChan():
				return
			case <-pending:
				pending = nil
				w.recordResult(ctx, nil)
			case e, isOpen := <-stream.ResultChan():
				if !isOpen {
					return
				}
				if pending != nil && e.Type != watch.Error {
					w.recordResult(ctx, nil)
				}
				pending = nil
				select {
				case <-confirmed.StopChan():
					return
				case events <- e:
				}
			}
		}
	}()
	return confirmed
}

// begin records an attempt that fails, one of the many that the client makes before it returns an error: since the attempt began, the
// server has not responded.
func (w *Watch[T]) begin(ctx context.Context) (failed func(error)) {
	began := w.now()
	return func(err error) { w.recordSince(ctx, err, false, began) }
}

// waitIfUnknown waits if the server has recently responded that it does not know the kind.
func (w *Watch[T]) waitIfUnknown(ctx context.Context) error {
	w.mu.Lock()
	var remaining time.Duration
	if !w.unknownAt.IsZero() {
		remaining = time.Until(w.unknownAt.Add(wait.Jitter(w.selection.RetryUnknown, 0.2)))
	}
	w.mu.Unlock()
	if remaining <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(remaining):
		return nil
	}
}

// State returns whether the list is current.
func (w *Watch[T]) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Version changes whenever the list does.
func (w *Watch[T]) Version() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.version
}

// List returns the known objects, in no order.
func (w *Watch[T]) List() []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]T, 0, len(w.objects))
	for _, o := range w.objects {
		list = append(list, o)
	}
	return list
}

// Changed has a value after the list has changed or was first read; several changes may be one.
func (w *Watch[T]) Changed() <-chan struct{} { return w.changed }

// WaitSynced waits for the first list.
func (w *Watch[T]) WaitSynced(ctx context.Context) error {
	for {
		if s := w.State(); s.Synced {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("list %s: %w", w.selection.Resource, w.State().Err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// store is the Watch as the reflector's store.
type store[T any] Watch[T]

// converted is an object in the form in which it is kept.
type converted[T any] struct {
	key   string
	value T
}

func (s *store[T]) converted(o any) (*converted[T], error) {
	switch o := o.(type) {
	case *converted[T]:
		return o, nil
	case *unstructured.Unstructured:
		return &converted[T]{key(o), s.convert(o.Object)}, nil
	}
	return nil, fmt.Errorf("%s: got a %T", s.selection.Resource, o)
}

// Transformer makes the reflector convert each object of the first list as it arrives, so that they are never all in
// memory.
func (s *store[T]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return s.converted(o) }
}

func key(m metav1.Object) string { return m.GetNamespace() + "/" + m.GetName() }

// notify must be called with the lock held.
func (s *store[T]) notify() {
	s.version++
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *store[T]) Add(o any) error {
	c, err := s.converted(o) // without the lock, for which the tick would wait
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[c.key] = c.value
	s.notify()
	return nil
}

func (s *store[T]) Update(o any) error { return s.Add(o) }

func (s *store[T]) Delete(o any) error {
	m, err := meta.Accessor(o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key(m))
	s.notify()
	return nil
}

func (s *store[T]) Replace(list []any, _ string) error {
	objects := make(map[string]T, len(list))
	for _, o := range list {
		c, err := s.converted(o)
		if err != nil {
			return err
		}
		objects[c.key] = c.value
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects = objects
	s.state = State{Synced: true}
	s.unknownSince = time.Time{}
	s.notify()
	return nil
}

func (s *store[T]) Resync() error { return nil }

var _ cache.TransformingStore = (*store[Object])(nil)
