package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Selection is what a watch is of.
type Selection struct {
	Resource Resource
	// Namespace is empty for all of them.
	Namespace string
	// Fields and Labels are selectors, as in "spec.nodeName=n".
	Fields, Labels string
}

// Watch keeps a list of objects current, each as a T. When the server is away, the last known list stays, and State says
// since when. All of it may be called by several goroutines.
type Watch[T any] struct {
	selection Selection
	convert   func(Object) T
	now       func() time.Time

	mu      sync.Mutex
	objects map[string]T
	version uint64
	state   State
	changed chan struct{}
}

// State is how good a watch's list is.
type State struct {
	// Synced says that the list was read once; before that it is empty, which means nothing.
	Synced bool
	// Err is why the server is not heard now, nil where it is. The list is of Since then.
	Err   error
	Since time.Time
}

// The pause between two attempts to reach a server that is away grows from half a second to this, so that an agent is
// up to date within seconds of the server's return, and a thousand of them do not fall upon it at once.
const longestPause = 8 * time.Second

func init() { klog.SetLogger(logr.Discard()) } // the client's own log: what it has to say is in State

// Start begins a watch that runs until ctx ends. Objects are converted on arrival and not kept: the memory is that of T.
func Start[T any](ctx context.Context, c *Client, s Selection, now func() time.Time, convert func(Object) T) *Watch[T] {
	w := &Watch[T]{selection: s, convert: convert, now: now, objects: map[string]T{}, changed: make(chan struct{}, 1)}
	w.state = State{Err: fmt.Errorf("not heard of the API server yet"), Since: now()}
	at := c.watches.Resource(s.Resource.gvr()).Namespace(s.Namespace)
	selectors := func(o *metav1.ListOptions) {
		o.FieldSelector, o.LabelSelector = s.Fields, s.Labels
	}
	lists := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			selectors(&o)
			list, err := at.List(ctx, o)
			w.heard(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			selectors(&o)
			stream, err := at.Watch(ctx, o)
			w.heard(ctx, err)
			return stream, err
		},
	}
	discard := klog.Logger(logr.Discard())
	r := cache.NewReflectorWithOptions(lists, &unstructured.Unstructured{}, (*store[T])(w), cache.ReflectorOptions{
		Name: s.Resource.String(), TypeDescription: s.Resource.String(), Logger: &discard,
		Backoff: &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: longestPause},
	})
	go r.RunWithContext(klog.NewContext(ctx, discard))
	return w
}

// heard notes what came of a request.
func (w *Watch[T]) heard(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		return // we ended it
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.state.Err = nil
	case w.state.Err == nil:
		w.state.Err, w.state.Since = err, w.now()
	default:
		w.state.Err = err
	}
}

// State is how good the list is now.
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

// List is the objects that are known, in no order.
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

func (s *store[T]) set(objects ...any) error {
	for _, o := range objects {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("%s: got a %T", s.selection.Resource, o)
		}
		s.objects[key(u)] = s.convert(u.Object)
	}
	s.touch()
	return nil
}

func key(m metav1.Object) string { return m.GetNamespace() + "/" + m.GetName() }

// touch is called with the lock held.
func (s *store[T]) touch() {
	s.version++
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *store[T]) Add(o any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set(o)
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
	s.touch()
	return nil
}

func (s *store[T]) Replace(list []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.objects)
	s.state.Synced = true
	return s.set(list...)
}

func (s *store[T]) Resync() error { return nil }

var _ cache.ReflectorStore = (*store[Object])(nil)

