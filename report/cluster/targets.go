package cluster

import (
	"slices"

	"polder/lib/stage"
	"polder/lib/tick"
)

// Target is one kind of objects that ticks are reported to.
type Target interface {
	// Put reports a tick.
	Put(stage.Incoming) (tick.Target, error)
	// Close is called once, when no more ticks come.
	Close() error
}

// Targets are the targets of one stream.
type Targets []Target

// Put reports a tick to each target, in their order, and returns the results. The first error of a target ends it.
func (all Targets) Put(in stage.Incoming) (any, error) {
	section := &tick.Report{Refused: in.Refused, Targets: []tick.Target{}}
	for _, t := range all {
		result, err := t.Put(in)
		if err != nil {
			return nil, err
		}
		section.Targets = append(section.Targets, result)
	}
	return section, nil
}

// Close closes all targets, the last one first, and returns the first error.
func (all Targets) Close() (err error) {
	for _, t := range slices.Backward(all) {
		if e := t.Close(); err == nil {
			err = e
		}
	}
	return err
}
