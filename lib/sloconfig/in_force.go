package sloconfig

import (
	"bytes"
	"errors"
	"slices"

	"polder/lib/tick"
)

// ErrNotRead means that the ConfigMap was not read yet.
var ErrNotRead = errors.New("the ConfigMap could not be read yet (sample.errors)")

// InForce are the strategies in force on a node, from its ticks. The last valid ones stay while the present ones are unknown.
type InForce struct {
	// Last are the last valid ones: nil if no ConfigMap is read, or before it was first read.
	Last *Strategies `json:"strategies,omitempty"`

	raw              tick.Raw // the last text that was read, and the result
	isUnread, isRead bool
	err              error
}

// Update reads a sample's configuration if it has changed. The error says why the last ones stay.
func (f *InForce) Update(s *tick.Sample) error {
	if s == nil {
		return nil
	}
	return f.UpdateRaw(s.Config, s.IsUnread("config"))
}

// UpdateRaw is like [InForce.Update] for a configuration; isUnread reports whether collect could not read all of it.
func (f *InForce) UpdateRaw(raw tick.Raw, isUnread bool) error {
	if f.isRead && f.isUnread == isUnread && bytes.Equal(f.raw, raw) {
		return f.err
	}
	strategies, err := Read(raw)
	switch {
	case err == nil:
		f.Last = strategies
	case errors.Is(err, ErrNotConfigured) && isUnread:
		err = ErrNotRead
	case errors.Is(err, ErrNotConfigured):
		f.Last, err = nil, nil
	}
	f.raw, f.isUnread, f.isRead, f.err = slices.Clone(raw), isUnread, true, err
	return err
}

// Colocation returns the strategies of offers and measurements: the defaults if no ConfigMap is read.
func (f *InForce) Colocation() Colocation {
	if f.Last != nil {
		return f.Last.Colocation
	}
	return Defaults().Colocation
}
