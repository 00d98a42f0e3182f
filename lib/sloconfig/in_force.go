package sloconfig

import (
	"bytes"
	"errors"
	"slices"

	"polder/lib/tick"
)

// ErrUnread is that nobody could read the ConfigMap yet.
var ErrUnread = errors.New("the ConfigMap could not be read yet (sample.errors)")

// InForce are the strategies that hold on a node by its ticks. The last good ones stay while it is not known what holds.
type InForce struct {
	// Last are these: nil where nobody reads a ConfigMap, or before the first was read.
	Last *Strategies `json:"strategies,omitempty"`

	raw            tick.Raw // what was read last, and what came of it
	unread, looked bool
	err            error
}

// Take reads a sample's configuration, where it is another one than before. The error is why the last ones stay.
func (f *InForce) Take(s *tick.Sample) error {
	if s == nil {
		return nil
	}
	return f.TakeRaw(s.Config, s.Unread("config"))
}

// TakeRaw is [InForce.Take] of a configuration; unread reports whether collect could not read all of it.
func (f *InForce) TakeRaw(raw tick.Raw, unread bool) error {
	if f.looked && f.unread == unread && bytes.Equal(f.raw, raw) {
		return f.err
	}
	read, err := Read(raw)
	switch {
	case err == nil:
		f.Last = read
	case errors.Is(err, ErrNone) && unread:
		err = ErrUnread
	case errors.Is(err, ErrNone):
		f.Last, err = nil, nil
	}
	f.raw, f.unread, f.looked, f.err = slices.Clone(raw), unread, true, err
	return err
}

// Colocation are the strategies of what is offered and measured: the defaults where nobody reads a ConfigMap.
func (f *InForce) Colocation() Colocation {
	if f.Last != nil {
		return f.Last.Colocation
	}
	return Defaults().Colocation
}
