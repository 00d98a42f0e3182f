package sloconfig

import (
	"errors"
	"fmt"

	"polder/lib/tick"
)

// Key is the strategies' key in sample.config.
const Key = "koordinator"

// ErrNone is that a tick's configuration has no strategies: nobody has read a ConfigMap.
var ErrNone = errors.New("no strategies of Koordinator in sample.config")

// Read takes the strategies from a tick's configuration. What is missing there has its default; the error is [ErrNone] where
// nothing is said of Koordinator at all, and another where it is not what collect writes.
func Read(raw tick.Raw) (*Strategies, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, ErrNone
	}
	var top map[string]tick.Raw
	if err := tick.Unmarshal(raw, &top); err != nil {
		return nil, fmt.Errorf("sample.config: %w", err)
	}
	own := top[Key]
	if len(own) == 0 || string(own) == "null" {
		return nil, ErrNone
	}
	s := Defaults()
	if err := tick.Unmarshal(own, &s); err != nil {
		return nil, fmt.Errorf("sample.config.%s: want strategies as collect writes them: %w", Key, err)
	}
	return &s, nil
}
