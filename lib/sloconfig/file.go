package sloconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// File is a ConfigMap in a file. It is not changed after it was made.
type File struct {
	config *ConfigMap
	// Problems are what holds all the same, Unsupported what is set and not acted on.
	Problems    []error
	Unsupported []string
}

// FileOf takes a ConfigMap's data from a file; at returns where a line of a key's document stands ("FILE:12"). One with a document
// or a node entry that is invalid is refused whole.
func FileOf(from string, data map[string]string, at func(key string, line int) string) (*File, error) {
	var errs []error
	errs = append(errs, refusals(colocationKind, data, at)...)
	errs = append(errs, refusals(thresholdKind, data, at)...)
	errs = append(errs, refusals(qosKind, data, at)...)
	errs = append(errs, refusals(burstKind, data, at)...)
	errs = append(errs, refusals(systemKind, data, at)...)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	c := Memory{}.Settle(from, data)
	return &File{config: c, Problems: c.Problems, Unsupported: c.Unsupported}, nil
}

func refusals[T any](k *kind[T], data map[string]string, at func(string, int) string) (errs []error) {
	text := data[k.key]
	if strings.TrimSpace(text) == "" {
		return nil
	}
	d, faults := k.read(text)
	if d != nil {
		faults = append(faults, d.wrong...)
	}
	for i, f := range faults {
		if i == maxFaults {
			return append(errs, fmt.Errorf("%s: %s: and %d more", at(k.key, 1), k.key, len(faults)-i))
		}
		line := 1
		switch {
		case f.field != "" && d != nil:
			line = d.scan.line(f.field)
		case f.offset > 0:
			line = lineAt([]byte(text), f.offset-1)
		}
		errs = append(errs, fmt.Errorf("%s: %s: %w", at(k.key, line), k.key, f))
	}
	return errs
}

// Local is what a file contains for one node; the zero value is ready. It resolves again only where something changed.
type Local struct {
	// Version changes whenever the result may have.
	Version uint64

	file                *File
	labels, annotations map[string]string
	raw                 json.RawMessage
	errs                []error
}

// InForce are the strategies of a file for a node, as they are in sample.config; nil without a file. The errors are what is to
// be reported of them.
func (l *Local) InForce(f *File, labels, annotations map[string]string) (json.RawMessage, []error) {
	if f == nil {
		if l.file != nil {
			*l = Local{Version: l.Version + 1}
		}
		return nil, nil
	}
	if l.file == f && maps.Equal(l.labels, labels) && maps.Equal(l.annotations, annotations) {
		return l.raw, l.errs
	}
	s, errs := f.config.Resolve(labels, annotations)
	raw, err := json.Marshal(s)
	if err != nil {
		errs = append(errs, err)
	}
	*l = Local{Version: l.Version + 1, file: f, labels: maps.Clone(labels), annotations: maps.Clone(annotations), raw: raw, errs: errs}
	return l.raw, l.errs
}

// Over is a tick's configuration with these strategies in the place of its own; where they are nil, the tick's as it is.
func Over(raw, strategies json.RawMessage) json.RawMessage {
	if strategies == nil {
		return raw
	}
	top := map[string]json.RawMessage{}
	if json.Unmarshal(raw, &top) != nil || top == nil { // what is none is not passed on
		top = map[string]json.RawMessage{}
	}
	top[Key] = slices.Clone(strategies)
	out, err := json.Marshal(top)
	if err != nil { // of what was JSON before
		return raw
	}
	return out
}
