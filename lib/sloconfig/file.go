package sloconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// File is a ConfigMap in a file. It is immutable.
type File struct {
	config *ConfigMap
	// Problems are doubtful values that are in force, Unsupported settings without effect.
	Problems    []error
	Unsupported []string
}

// FileOf reads a ConfigMap's data from a file; at returns the place of a line of a key's document ("FILE:12"). A file with an
// invalid document or node entry is rejected as a whole.
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
	c := LastValid{}.Parse(from, data)
	return &File{config: c, Problems: c.Problems, Unsupported: c.Unsupported}, nil
}

func refusals[T any](k *kind[T], data map[string]string, at func(string, int) string) (errs []error) {
	text := data[k.key]
	if strings.TrimSpace(text) == "" {
		return nil
	}
	d, faults := k.read(text)
	if d != nil {
		faults = append(faults, d.invalidEntries...)
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

// Local resolves a file for one node; the zero value is ready. It resolves again only if something has changed.
type Local struct {
	// Version changes whenever the result may have.
	Version uint64

	file                *File
	labels, annotations map[string]string
	raw                 json.RawMessage
	errs                []error
}

// InForce returns the strategies of a file for a node, as they are in sample.config; nil without a file. The caller
// must report the errors.
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

// Overlay returns a tick's configuration with these strategies instead of its own; if they are nil, the tick's unchanged.
func Overlay(raw, strategies json.RawMessage) json.RawMessage {
	if strategies == nil {
		return raw
	}
	top := map[string]json.RawMessage{}
	if json.Unmarshal(raw, &top) != nil || top == nil { // an invalid one is not forwarded
		top = map[string]json.RawMessage{}
	}
	top[Key] = slices.Clone(strategies)
	out, err := json.Marshal(top)
	if err != nil { // of what was JSON before
		return raw
	}
	return out
}
