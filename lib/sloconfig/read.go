package sloconfig

import (
	"bytes"
	"errors"
	"fmt"

	"polder/lib/tick"
)

// Key is the strategies' key in sample.config.
const Key = "koordinator"

// ErrNotConfigured means that a tick's configuration has no strategies, because no ConfigMap is read.
var ErrNotConfigured = errors.New("no strategies of Koordinator in sample.config")

// Read reads the strategies from a tick's configuration. Missing settings have their default; the error is [ErrNotConfigured] if
// the tick contains nothing of Koordinator, and another one if it is not in collect's format.
func Read(raw tick.Raw) (*Strategies, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, ErrNotConfigured
	}
	var top map[string]tick.Raw
	if err := tick.Unmarshal(raw, &top); err != nil {
		return nil, fmt.Errorf("sample.config: %w", err)
	}
	own := top[Key]
	if len(own) == 0 || string(own) == "null" {
		return nil, ErrNotConfigured
	}
	refuse := func(err error) (*Strategies, error) {
		return nil, fmt.Errorf("sample.config.%s: want strategies as collect writes them: %w", Key, err)
	}
	s := Defaults()
	if err := tick.Unmarshal(own, &s); err != nil {
		return refuse(err)
	}
	if bytes.Contains(own, []byte("null")) { // collect writes no null, which means the default
		defaults := Defaults()
		s = *merged(&defaults, &s)
	}
	if err := s.check(); err != nil {
		return refuse(err)
	}
	return &s, nil
}

// check checks strategies against the bounds of a ConfigMap, because a tick may come from any program.
func (s *Strategies) check() error {
	for _, part := range []struct {
		name   string
		faults []*fault
	}{
		{"colocation", s.Colocation.check()},
		{"resourceThreshold", s.Threshold.check()},
		{"resourceQOS", s.QOS.check()},
		{"cpuBurst", s.Burst.check()},
		{"system", s.System.check()},
	} {
		if len(part.faults) > 0 {
			return inside(part.name, part.faults)[0]
		}
	}
	return nil
}
