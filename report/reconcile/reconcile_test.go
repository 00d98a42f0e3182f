package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"polder/lib/tick"
	"polder/report/object"
)

// thing is an object with a number.
type thing struct {
	key                     string
	want, written, observed int
	forget                  bool
}

type job struct {
	key   string
	value int
}

// lab is a queue of things, whose server answers when the test sends an answer, or at once where answers is nil.
type lab struct {
	*Queue[thing, job]
	log     bytes.Buffer
	answers chan error
	begun   chan job
	err     error // of all writes, where answers is nil
	blocked error // why nothing can be written
}

func open(ctx context.Context, o Options) *lab {
	l := &lab{begun: make(chan job, 1000)}
	o.Name, o.Label, o.Context, o.Now, o.Log = "thing", "node", ctx, time.Now, slog.New(slog.NewTextHandler(&l.log, nil))
	if o.Limit == 0 {
		o.Limit = 1000
	}
	l.Queue = Start(o, Target[thing, job]{
		New: func(key string, _ time.Time) (*thing, error) {
			if key == "" {
				return nil, errors.New("no key")
			}
			return &thing{key: key}, nil
		},
		Due: func(s *thing, _ time.Time) object.Due {
			switch {
			case s.want != s.written:
				return object.FiguresChanged
			case s.observed != s.written:
				return object.ChangedExternally
			}
			return object.NotDue
		},
		Desired: func(s *thing, _ time.Time) *job { return &job{s.key, s.want} },
		Write: func(ctx context.Context, j *job) (bool, error) {
			l.begun <- *j
			if l.answers == nil {
				l.mu.Lock()
				defer l.mu.Unlock()
				return true, l.err
			}
			select {
			case err := <-l.answers:
				return true, err
			case <-ctx.Done():
				return false, ctx.Err()
			}
		},
		Settle: func(s *thing, j *job, err error, _ time.Time) bool {
			if err != nil {
				return false
			}
			changed := s.written != j.value
			s.written, s.observed = j.value, j.value
			return changed
		},
		Show:    func(j *job, _ time.Time) (string, error) { return strconv.Itoa(j.value), nil },
		Ready:   func(*thing) error { return l.blocked },
		Forget:  func(s *thing, _ time.Time) bool { return s.forget },
		Explain: func(err error) error { return fmt.Errorf("explained: %w", err) },
	})
	return l
}

// put is a tick with the desired value.
func (l *lab) put(key string, value int) tick.Target {
	return l.Put(key, time.Now(), func(s *thing, _ time.Time) { s.want = value })
}

// change is an external change.
func (l *lab) change(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items[key].state.observed = -1
}

// began are the writes that have begun since the last call.
func (l *lab) began() string {
	synctest.Wait()
	var all []string
	for len(l.begun) > 0 {
		j := <-l.begun
		all = append(all, fmt.Sprint(j.key, j.value))
	}
	return strings.Join(all, " ")
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q; want %q", what, got, want)
	}
}

func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t.Context(), Options{})
		l.answers = make(chan error)
		expectState := func(what string, got tick.Target, state string, changed bool) {
			t.Helper()
			if got.State != state || got.Changed != changed || (got.Error != "") != (state == tick.TargetFailed) {
				t.Errorf("%s: %+v; want %s, changed %v", what, got, state, changed)
			}
		}
		expectState("nothing is desired", l.put("a", 0), tick.TargetUnchanged, false)
		expectState("the first value", l.put("a", 1), tick.TargetPending, true)
		expect(t, "writes", l.began(), "a1")
		l.answers <- errors.New("away")
		synctest.Wait()
		expectState("failed", l.put("a", 1), tick.TargetFailed, true)
		expect(t, "writes before the backoff is over", l.began(), "")
		time.Sleep(time.Second)
		expectState("tried again", l.put("a", 1), tick.TargetFailed, true)
		l.answers <- nil
		synctest.Wait()
		expectState("written", l.put("a", 1), tick.TargetWritten, true)
		expectState("nothing new", l.put("a", 1), tick.TargetUnchanged, false)
		expectState("a bad key", l.put("", 1), tick.TargetFailed, false)
		expect(t, "times that the log has the refusal", strconv.Itoa(strings.Count(l.log.String(), "explained: away")), "1")
		expect(t, "the log has that it works again", strconv.Itoa(strings.Count(l.log.String(), "written again")), "1")
	})
}

// A tick waits for no write; a bounded number of writes is in progress, one of each object, and the newest value wins.
func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t.Context(), Options{})
		l.answers = make(chan error)
		for i := range 3 * writesAtOnce {
			if got := l.put(fmt.Sprint("n", i), 1); got.State != tick.TargetPending {
				t.Fatalf("%+v", got)
			}
		}
		expect(t, "writes at once", strconv.Itoa(len(strings.Fields(l.began()))), strconv.Itoa(writesAtOnce))
		l.put("n0", 2)
		l.put("n0", 3)
		expect(t, "a second write of an object that is being written", l.began(), "")
		for range 3*writesAtOnce + 1 {
			l.answers <- nil
		}
		rest := strings.Fields(l.began())
		expect(t, "the others, and n0 again", strconv.Itoa(len(rest)), strconv.Itoa(2*writesAtOnce+1))
		if !strings.Contains(strings.Join(rest, " ")+" ", "n03 ") || strings.Contains(strings.Join(rest, " ")+" ", "n02 ") {
			t.Errorf("%v; want n0's newest value alone", rest)
		}
	})
}

// A queued write that is no longer due is not carried out.
func TestTurnThatIsNoLongerNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t.Context(), Options{})
		l.answers = make(chan error)
		for i := range writesAtOnce {
			l.put(fmt.Sprint("n", i), 1)
		}
		l.put("late", 1)
		l.put("late", 0)
		for range writesAtOnce {
			l.answers <- nil
		}
		if got := l.began(); strings.Contains(got, "late") {
			t.Errorf("%s; want no write of what is as it was", got)
		}
	})
}

func TestBackoff(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", errors.New("no"))
	away := errors.New("connection refused")
	var b Backoff
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for i, tt := range []struct {
		err  error
		want time.Duration
	}{
		{away, 500 * time.Millisecond},
		{away, time.Second},
		{away, 2 * time.Second},
		{away, 4 * time.Second},
		{away, 8 * time.Second},
		{away, 8 * time.Second},
		{forbidden, 500 * time.Millisecond}, // it has just started, and has not read its roles yet
		{forbidden, time.Second},
		{forbidden, 2 * time.Second},
		{forbidden, 4 * time.Second},
		{forbidden, 8 * time.Second},
		{forbidden, 16 * time.Second},
		{forbidden, 30 * time.Second},
		{forbidden, 30 * time.Second},
		{away, 500 * time.Millisecond},
		{apierrors.NewTooManyRequests("slowly", 20), 20 * time.Second}, // the delay that the server demands
	} {
		wait := b.Failed(tt.err, noon)
		if wait < tt.want*3/4 || wait > tt.want*5/4 || !b.until.Equal(noon.Add(wait)) {
			t.Errorf("%d: %v: again after %s, until %s; want about %s", i, tt.err, wait, b.until, tt.want)
		}
	}
}

// An external change is reverted after a wait that grows with each further one, and is the first one again after a calm time.
func TestRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 250 * time.Millisecond
		l := open(t.Context(), Options{Every: every})
		l.put("a", 1)
		expect(t, "writes", l.began(), "a1")
		undone := func(wait time.Duration) {
			t.Helper()
			l.change("a")
			time.Sleep(wait - 1)
			expect(t, fmt.Sprintf("restored before %s", wait), l.began(), "")
			time.Sleep(2*every + 1)
			expect(t, fmt.Sprintf("restored after %s", wait), l.began(), "a1")
		}
		for _, seconds := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
			undone(seconds * time.Second)
		}
		time.Sleep(restoreReset)
		undone(FirstRestore)
		if n := strings.Count(l.log.String(), "restoring the object after an external change"); n != 8 {
			t.Errorf("logged %d times; want each of 8", n)
		}
		// A new desired state does not wait for that, and an external restore ends the wait.
		l.change("a")
		time.Sleep(every)
		l.put("a", 2)
		expect(t, "a new value", l.began(), "a2")
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestClockRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t.Context(), Options{Every: 250 * time.Millisecond})
		l.err = errors.New("away")
		l.put("a", 1)
		expect(t, "the first attempt", l.began(), "a1")
		time.Sleep(time.Second)
		expect(t, "the second one, without a tick", l.began(), "a1")
		l.mu.Lock()
		l.err = nil
		l.mu.Unlock()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		expect(t, "the end of the input", l.began(), "a1")
	})
}

func TestClose(t *testing.T) {
	for _, tt := range []struct {
		name    string
		noFlush bool
		signal  bool
		err     error
		freeze  bool // the server does not answer
		wait    time.Duration
		want    string
		writes  int
	}{
		{"all is written", false, false, nil, false, 0, "", 3 * writesAtOnce},
		{"a server that is away", false, false, errors.New("away"), false, flushTimeout, "thing: 48 nodes not written at the end of the input: explained: away", -1},
		{"one that does not answer", false, false, nil, true, flushTimeout, "thing: 48 nodes not written at the end of the input: the API server has not answered yet", writesAtOnce},
		{"what waits is dropped", true, false, nil, true, stopTimeout, "", writesAtOnce},
		{"a signal", false, true, nil, true, stopTimeout, "", writesAtOnce},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, signal := context.WithCancel(t.Context())
				l := open(ctx, Options{NoFlush: tt.noFlush})
				l.err = tt.err
				if tt.freeze {
					l.answers = make(chan error)
				}
				for i := range 3 * writesAtOnce {
					l.put(fmt.Sprint("n", i), 1)
				}
				if tt.signal {
					signal()
				}
				begun := time.Now()
				err := l.Close()
				if (err != nil) != (tt.want != "") || err != nil && err.Error() != tt.want {
					t.Errorf("%v; want %q", err, tt.want)
				}
				if took := time.Since(begun); took < tt.wait || took > tt.wait+2*time.Second {
					t.Errorf("it took %s; want about %s", took, tt.wait)
				}
				if n := len(strings.Fields(l.began())); tt.writes >= 0 && n != tt.writes {
					t.Errorf("%d writes; want %d", n, tt.writes)
				}
				if tt.freeze { // a late answer starts no further write
					for range writesAtOnce {
						l.answers <- nil
					}
					expect(t, "writes after the end", l.began(), "")
				}
				signal()
			})
		})
	}
}

// As long as writes succeed, Close waits for the others at the end of the input.
func TestFlushGoesOnWhileItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t.Context(), Options{})
		l.answers = make(chan error)
		const n = 3 * writesAtOnce
		for i := range n {
			l.put(fmt.Sprint("n", i), 1)
		}
		go func() {
			for range n {
				time.Sleep(time.Second)
				l.answers <- nil
			}
		}()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		expect(t, "writes", strconv.Itoa(len(strings.Fields(l.began()))), strconv.Itoa(n))
	})
}

func TestNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t.Context(), Options{})
		l.blocked = errors.New("no node")
		if got := l.put("a", 1); got.State != tick.TargetPending {
			t.Errorf("while the first lists are awaited: %+v", got)
		}
		time.Sleep(startTimeout + 1)
		if got := l.put("a", 1); got.State != tick.TargetFailed || got.Error != "no node" {
			t.Errorf("after that: %+v", got)
		}
		l.blocked = nil
		l.put("a", 1)
		expect(t, "writes", l.began(), "a1")
		if got := l.put("a", 1); got.State != tick.TargetWritten {
			t.Errorf("%+v", got)
		}
	})
}

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t.Context(), Options{Limit: 2})
		l.put("a", 1)
		l.put("b", 1)
		synctest.Wait()
		expect(t, "a third one", l.put("c", 1).Error, "more than 2 nodes")
		l.Put("a", time.Now(), func(s *thing, _ time.Time) { s.forget = true })
		expect(t, "one is forgotten", l.put("c", 1).Error, "")
	})
}

func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t.Context(), Options{})
		for _, key := range []string{"a", "b", "c"} {
			if err := l.Set(key, time.Now(), func(s *thing, _ time.Time) { s.want, s.forget = 1, key == "c" }); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		got := map[string]string{}
		l.Each(time.Now(), func(s *thing, x tick.Target) { got[s.key] = x.State })
		if d := cmp.Diff(map[string]string{"a": tick.TargetWritten, "b": tick.TargetWritten}, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

// A dry run uses the ticks' clock and writes nothing.
func TestDryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t.Context(), Options{DryRun: true, Every: time.Second})
		for i, want := range []struct {
			value   int
			state   string
			changed bool
		}{{0, tick.TargetUnchanged, false}, {1, tick.TargetPending, true}, {1, tick.TargetUnchanged, false}, {2, tick.TargetPending, true}} {
			if got := l.put("a", want.value); got.State != want.state || got.Changed != want.changed {
				t.Errorf("%d: %+v; want %+v", i, got, want)
			}
		}
		expect(t, "writes", l.began(), "")
		expect(t, "shown", strconv.Itoa(strings.Count(l.log.String(), "would be written")), "2")
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}
