package customconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"polder/lib/fields"
)

// Document is an object of a file, with its place.
type Document struct {
	Object Object
	// At is the place of a field ("FILE:12"), or of the object itself.
	At func(path ...string) string
}

// File contains the objects of a file of configuration objects, the same ones that a cluster may have. It is immutable.
type File struct {
	configs Configs
	at      map[*Candidate]func(path ...string) string
}

// defaultNamespace is the namespace of an object without one, as in kubectl.
const defaultNamespace = "default"

// specFields are the allowed fields of an object's spec: any other is a typing error.
var specFields = map[string][]string{
	targetKind:    {"targetType", "disableRevisionHistory", "nodeLabelSelectorKey", "nodeLabelSelectorAllowedKeyList"},
	Eviction.Name: {"nodeLabelSelector", "priority", "ephemeralSelector", "revisionHistoryLimit", "paused", "updateStrategy", "config"},
	AdminQoS.Name: {"nodeLabelSelector", "priority", "ephemeralSelector", "revisionHistoryLimit", "paused", "updateStrategy", "config"},
}

// FileOf reads the objects of a file. An invalid object, or one that a cluster would ignore, is an error with its place:
// the whole file is rejected.
func FileOf(documents []Document) (*File, error) {
	f := &File{configs: Configs{Candidates: map[Kind][]*Candidate{}}, at: map[*Candidate]func(...string) string{}}
	var errs []error
	seen := map[string]bool{}
	for _, d := range documents {
		if len(errs) > maxProblems {
			break
		}
		if err := f.add(d, seen); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	for _, kind := range Kinds {
		if err := f.check(kind); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return f, nil
}

func (f *File) add(d Document, seen map[string]bool) error {
	name := fields.Text(d.Object, "kind")
	if got := fields.Text(d.Object, "apiVersion"); got != group+"/"+version {
		return fmt.Errorf("%s: apiVersion %q: want %s/%s", d.At("apiVersion"), fields.Clip(got), group, version)
	}
	known, ok := specFields[name]
	if !ok {
		return fmt.Errorf("%s: kind %q: want some of %s", d.At("kind"), fields.Clip(name), strings.Join(slices.Sorted(maps.Keys(specFields)), ", "))
	}
	metadata := fields.Child(d.Object, "metadata")
	if fields.Text(metadata, "name") == "" {
		return fmt.Errorf("%s: the %s has no name", d.At("metadata"), name)
	}
	if fields.Text(metadata, "namespace") == "" {
		metadata["namespace"] = defaultNamespace
	}
	id := fmt.Sprintf("%s %s/%s", name, fields.Text(metadata, "namespace"), fields.Text(metadata, "name"))
	if seen[id] {
		return fmt.Errorf("%s: %s occurs twice", d.At("metadata", "name"), id)
	}
	seen[id] = true
	for _, key := range slices.Sorted(maps.Keys(fields.Child(d.Object, "spec"))) {
		if !slices.Contains(known, key) {
			return fmt.Errorf("%s: %s: key %s is not known in its spec", d.At("spec", key), id, fields.Clip(key))
		}
	}
	if name == targetKind {
		return f.target(TargetOf(d.Object), d)
	}
	kind := Kinds[slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == name })]
	c := CandidateOf(kind, d.Object)
	if c.Err != nil {
		return located(c, d.At)
	}
	f.configs.Candidates[kind] = append(f.configs.Candidates[kind], c)
	f.at[c] = d.At
	return nil
}

func (f *File) target(t *Target, d Document) error {
	i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Resource == t.Resource })
	if i < 0 {
		return fmt.Errorf("%s: KatalystCustomConfig %s/%s is for an unsupported kind: want group %s, version %s and resource %s",
			d.At("spec", "targetType"), t.Namespace, t.Name, group, version, resources())
	}
	f.configs.Targets = append(f.configs.Targets, t)
	if targets := f.configs.targets(Kinds[i]); len(targets) > 1 {
		return fmt.Errorf("%s: %w", d.At("spec", "targetType"), overlapping(Kinds[i], targets))
	}
	if f.configs.Candidates[Kinds[i]] == nil {
		f.configs.Candidates[Kinds[i]] = []*Candidate{}
	}
	return nil
}

// check checks the objects of a kind against each other.
func (f *File) check(kind Kind) error {
	list := f.configs.Candidates[kind]
	targets := f.configs.targets(kind)
	if len(targets) == 0 && len(list) > 0 {
		return fmt.Errorf("%s: %s %s is ignored: the file has no KatalystCustomConfig for %s", f.at[list[0]](), kind.Name, list[0].name(), kind.Resource)
	}
	var errs []error
	if len(targets) > 0 {
		for _, p := range validate(list, targets[0]) {
			errs = append(errs, fmt.Errorf("%s: %w", f.at[p.Objects[0]]("spec"), p.Err))
		}
	}
	return errors.Join(errs...)
}

// located returns an object's errors with the places of their fields.
func located(c *Candidate, at func(...string) string) error {
	all := []error{c.Err}
	if joined, ok := c.Err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for i, err := range all {
		var path []string
		if field := (*FieldError)(nil); errors.As(err, &field) {
			path = field.Path
		}
		all[i] = fmt.Errorf("%s: %s: %w", at(path...), c.name(), err)
	}
	return errors.Join(all...)
}

// Objects returns the file's objects, in its order, as if each were in force: for checks.
func (f *File) Objects() map[Kind][]*Chosen {
	all := map[Kind][]*Chosen{}
	for kind, list := range f.configs.Candidates {
		for _, c := range list {
			all[kind] = append(all[kind], f.chosen(&Chosen{Namespace: c.Namespace, Name: c.Name, Config: c.Config}, kind))
		}
	}
	return all
}

// chosen names the object's place.
func (f *File) chosen(c *Chosen, kind Kind) *Chosen {
	for _, x := range f.configs.Candidates[kind] {
		if c != nil && x.Namespace == c.Namespace && x.Name == c.Name {
			c.At = f.at[x]()
		}
	}
	return c
}

// Local resolves a file's objects for one node; the zero value is ready. It resolves again only if something has changed.
type Local struct {
	// Version changes whenever the result may have.
	Version uint64

	file   *File
	labels map[string]string
	next   time.Time
	chosen map[string]*Chosen
	errs   []error
}

// InForce returns the object in force of each kind, by its key. The map must not be changed; after a change it is a new one.
func (l *Local) InForce(f *File, node string, labels map[string]string, now time.Time) (map[string]*Chosen, []error) {
	if f == nil {
		if l.file != nil {
			*l = Local{Version: l.Version + 1}
		}
		return nil, nil
	}
	if l.file == f && maps.Equal(l.labels, labels) && (l.next.IsZero() || now.Before(l.next)) {
		return l.chosen, l.errs
	}
	last := l.chosen
	*l = Local{Version: l.Version + 1, file: f, labels: maps.Clone(labels)}
	l.chosen, l.next, l.errs = f.configs.InForce(node, labels, last, now)
	for _, kind := range Kinds {
		f.chosen(l.chosen[kind.Key], kind)
	}
	return l.chosen, l.errs
}

// Overlay returns a tick's configuration with a file's objects instead of the cluster's of the same kinds.
func Overlay(raw json.RawMessage, chosen map[string]*Chosen) json.RawMessage {
	if len(chosen) == 0 {
		return raw
	}
	top, katalyst := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if json.Unmarshal(raw, &top) != nil || top == nil { // an invalid one is not passed on
		top = map[string]json.RawMessage{}
	}
	if json.Unmarshal(top["katalyst"], &katalyst) != nil || katalyst == nil {
		katalyst = map[string]json.RawMessage{}
	}
	for key, c := range chosen {
		if data, err := json.Marshal(c); err == nil {
			katalyst[key] = data
		}
	}
	top["katalyst"], _ = json.Marshal(katalyst) // of what was JSON before
	out, _ := json.Marshal(top)
	return out
}
