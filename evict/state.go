package main

import (
	"errors"
	"sync"
	"time"

	"polder/evict/fleet"
	"polder/lib/stage"
	"polder/lib/tick"
)

const (
	stateVersion = 1
	saveEvery    = 10 * time.Second
)

// saved is the state file's content.
type saved struct {
	Nodes map[string]*node `json:"nodes"`
	Fleet *fleet.State     `json:"fleet,omitempty"`
}

func (e *engine) load() error {
	var s saved
	found, err := e.session.LoadState(stateVersion, &s)
	if err != nil || !found {
		return err
	}
	if e.centre != nil && s.Fleet != nil {
		e.centre.state = *s.Fleet
		e.centre.state.Init()
	}
	for name, n := range s.Nodes {
		if n != nil {
			e.nodes[name] = n
		}
	}
	return nil
}

// snapshot encodes what is remembered, on the goroutine of the stream.
func (e *engine) snapshot() (tick.Raw, error) {
	for _, n := range e.nodes {
		for name, w := range n.Windows {
			raw, err := tick.Marshal(w)
			if err != nil {
				return nil, err
			}
			if n.Rules == nil {
				n.Rules = map[string]tick.Raw{}
			}
			n.Rules[name] = raw
		}
	}
	s := saved{Nodes: e.nodes}
	if e.centre != nil {
		s.Fleet = &e.centre.state
	}
	return tick.Marshal(s)
}

// saver writes the state file beside the stream, which a slow disk must not hold up. With --dry-run it writes nothing:
// what did not happen is not to be remembered.
type saver struct {
	session *stage.Session
	off     bool
	at      time.Time // when the state was last saved, by the session's clock

	mu      sync.Mutex
	made    int64 // counts the snapshots, so that an older one never replaces a newer one
	written int64
	busy    sync.WaitGroup
}

func newSaver(s *stage.Session) *saver {
	return &saver{session: s, off: s.State == "" || s.DryRun, at: s.Now()}
}

// prepare takes a snapshot now and returns the function that writes it.
func (v *saver) prepare(snapshot func() (tick.Raw, error)) func() error {
	if v.off {
		return func() error { return nil }
	}
	state, err := snapshot()
	v.made++
	number := v.made
	return func() error {
		if err != nil {
			return err
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		if number < v.written {
			return nil
		}
		v.written = number
		return v.session.SaveState(stateVersion, state)
	}
}

// maybe saves when the last time is long ago.
func (v *saver) maybe(snapshot func() (tick.Raw, error)) {
	now := v.session.Now()
	if v.off || now.Sub(v.at) < saveEvery && !now.Before(v.at) {
		return
	}
	v.at = now
	write := v.prepare(snapshot)
	v.busy.Go(func() {
		if err := write(); err != nil {
			v.session.Log.Warn("save what is remembered", "error", err)
		}
	})
}

// last saves at the end.
func (v *saver) last(err error, snapshot func() (tick.Raw, error)) error {
	v.busy.Wait()
	return errors.Join(err, v.prepare(snapshot)())
}
