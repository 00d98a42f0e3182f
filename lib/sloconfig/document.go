package sloconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"polder/lib/fields"
)

// These keys of the ConfigMap have effect on the tools.
const (
	KeyColocation = "colocation-config"
	KeyThreshold  = "resource-threshold-config"
	KeyQOS        = "resource-qos-config"
	KeyBurst      = "cpu-burst-config"
	KeySystem     = "system-config"
)

// Keys are all of these keys.
var Keys = []string{KeyColocation, KeyThreshold, KeyQOS, KeyBurst, KeySystem}

// These bound one document. A ConfigMap has 1 MiB at most.
const (
	maxDocument = 512 << 10
	maxEntries  = 1000
	maxFaults   = 8
)

// kind describes how one key's document is read. Colocation's contains the cluster's strategy inline.
type kind[T any] struct {
	key, cluster, nodes string
	part                func(*Strategies) *T
	check, warnings     func(*T) []*fault
	unused              func(*T) []string // the known parts that are set without effect
	shape               *shape
}

var (
	colocationKind = newKind(KeyColocation, "", "nodeConfigs", func(s *Strategies) *Colocation { return &s.Colocation }, (*Colocation).check, (*Colocation).warnings, nil)
	thresholdKind  = newKind(KeyThreshold, "clusterStrategy", "nodeStrategies", func(s *Strategies) *Threshold { return &s.Threshold }, (*Threshold).check, nil, nil)
	qosKind        = newKind(KeyQOS, "clusterStrategy", "nodeStrategies", func(s *Strategies) *ResourceQOS { return &s.QOS }, (*ResourceQOS).check, nil, (*ResourceQOS).unused)
	burstKind      = newKind(KeyBurst, "clusterStrategy", "nodeStrategies", func(s *Strategies) *CPUBurst { return &s.Burst }, (*CPUBurst).check, nil, nil)
	systemKind     = newKind(KeySystem, "clusterStrategy", "nodeStrategies", func(s *Strategies) *System { return &s.System }, (*System).check, nil, nil)
)

func newKind[T any](key, cluster, nodes string, part func(*Strategies) *T, check, warnings func(*T) []*fault,
	unused func(*T) []string,
) *kind[T] {
	k := &kind[T]{key: key, cluster: cluster, nodes: nodes, part: part, check: check, warnings: warnings, unused: unused}
	strategy := shapeOf[T]()
	entries := strategy.with(field{"name", nil}, field{"nodeSelector", shapeOf[nodeSelector]()})
	entries.list = true
	if cluster == "" {
		k.shape = strategy.with(field{nodes, entries})
	} else {
		k.shape = &shape{fields: []field{{cluster, strategy}, {nodes, entries}}}
	}
	if warnings == nil {
		k.warnings = func(*T) []*fault { return nil }
	}
	if unused == nil {
		k.unused = func(*T) []string { return nil }
	}
	return k
}

// document is the parsed document of one key.
type document[T any] struct {
	scan    *scan
	cluster *T
	entries []entry[T]
	// invalidEntries are the errors in node entries, warnings the doubtful values in force, unused those without effect.
	invalidEntries, warnings []*fault
	unused                   []string
}

// entry is a document's part for some nodes.
type entry[T any] struct {
	path, name string
	selector   labels.Selector
	strategy   *T // merged over the cluster's; nil if it is invalid: then the cluster's applies
}

// read parses a document. The faults say why it is rejected.
func (k *kind[T]) read(text string) (*document[T], []*fault) {
	if len(text) > maxDocument {
		return nil, []*fault{{err: fmt.Errorf("%d bytes: want %d at most", len(text), maxDocument)}}
	}
	d := &document[T]{scan: &scan{text: []byte(text)}}
	cluster, nodes, err := k.parts([]byte(text))
	if err != nil {
		return d, []*fault{asFault(err, "")}
	}
	if d.scan, err = scanKeys([]byte(text), k.shape); err != nil { // a text that was decoded can be scanned
		return d, []*fault{asFault(err, "")}
	}
	if len(nodes) > maxEntries {
		return d, []*fault{{field: k.nodes, err: fmt.Errorf("%d entries: want %d at most", len(nodes), maxEntries)}}
	}
	for _, path := range d.scan.duplicates {
		d.warnings = append(d.warnings, &fault{field: path, err: errors.New("it occurs twice: the last one applies")})
	}
	own := new(T)
	if len(cluster) > 0 {
		if err := decodeStrategy(cluster, own); err != nil {
			return d, []*fault{asFault(err, k.cluster)}
		}
	}
	d.addUnused(k.cluster, k.unused(own))
	defaults := Defaults()
	d.cluster = merged(k.part(&defaults), own)
	if faults := k.check(d.cluster); len(faults) > 0 {
		return d, inside(k.cluster, faults)
	}
	d.warnings = append(d.warnings, inside(k.cluster, k.warnings(d.cluster))...)
	for i, text := range nodes {
		d.entry(k, i, text)
	}
	return d, nil
}

// parts returns the texts of the cluster's strategy and of the nodes'.
func (k *kind[T]) parts(text []byte) (cluster json.RawMessage, nodes []json.RawMessage, err error) {
	if k.cluster == "" {
		var top struct {
			Nodes []json.RawMessage `json:"nodeConfigs"`
		}
		err = decode(text, &top)
		return text, top.Nodes, err
	}
	var top struct {
		Cluster json.RawMessage   `json:"clusterStrategy"`
		Nodes   []json.RawMessage `json:"nodeStrategies"`
	}
	err = decode(text, &top)
	return top.Cluster, top.Nodes, err
}

func (d *document[T]) entry(k *kind[T], i int, text []byte) {
	e := entry[T]{path: fmt.Sprintf("%s[%d]", k.nodes, i), selector: labels.Nothing()}
	refuse := func(faults ...*fault) {
		d.invalidEntries = append(d.invalidEntries, inside(e.path, faults)...)
		d.entries = append(d.entries, e)
	}
	var top struct {
		Name     string          `json:"name"`
		Selector json.RawMessage `json:"nodeSelector"`
	}
	if err := decode(text, &top); err != nil {
		refuse(asFault(err, ""))
		return
	}
	e.name = fields.Clip(top.Name)
	var err error
	if e.selector, err = d.selector(e.path, top.Selector); err != nil {
		e.selector = labels.Nothing() // its nodes are unknown
		refuse(asFault(err, "nodeSelector"))
		return
	}
	if e.selector == nil {
		e.selector = labels.Nothing()
		d.warnings = append(d.warnings, &fault{field: e.path, err: errors.New("it has no nodeSelector: it is for no node")})
	}
	own := new(T)
	if err := decodeStrategy(text, own); err != nil {
		refuse(asFault(err, ""))
		return
	}
	d.addUnused(e.path, k.unused(own))
	strategy := merged(d.cluster, own)
	if faults := k.check(strategy); len(faults) > 0 {
		refuse(faults...)
		return
	}
	if faults := k.warnings(strategy); len(faults) > 0 && len(k.warnings(merged(new(T), own))) > 0 { // the cluster's are already named
		d.warnings = append(d.warnings, inside(e.path, faults)...)
	}
	e.strategy = strategy
	d.entries = append(d.entries, e)
}

// addUnused records settings of a part that have no effect.
func (d *document[T]) addUnused(in string, paths []string) {
	for _, path := range paths[:min(len(paths), maxListed-len(d.unused))] {
		d.unused = append(d.unused, join(in, path))
	}
}

// nodeSelector is a LabelSelector of Kubernetes.
type nodeSelector struct {
	MatchLabels      map[string]string `json:"matchLabels,omitempty"`
	MatchExpressions []struct {
		Key      string   `json:"key"`
		Operator string   `json:"operator"`
		Values   []string `json:"values,omitempty"`
	} `json:"matchExpressions,omitempty"`
}

var operators = map[string]selection.Operator{
	"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists, "DoesNotExist": selection.DoesNotExist,
}

// selector reads an entry's selector: nil if there is none. An empty one selects all nodes, and so would one with a typing
// error, which is therefore rejected.
func (d *document[T]) selector(path string, text json.RawMessage) (labels.Selector, error) {
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	in := path + ".nodeSelector."
	if i := slices.IndexFunc(d.scan.unknown, func(p string) bool { return strings.HasPrefix(p, in) }); i >= 0 {
		return nil, &fault{field: strings.TrimPrefix(d.scan.unknown[i], in), err: errors.New("unknown key: want matchLabels and matchExpressions")}
	}
	var s nodeSelector
	if err := decode(text, &s); err != nil {
		return nil, err
	}
	selector := labels.Everything()
	add := func(field, key string, op selection.Operator, values []string) error {
		r, err := labels.NewRequirement(key, op, values)
		if err != nil {
			return &fault{field: field, err: errors.New(fields.Clip(err.Error()))}
		}
		selector = selector.Add(*r)
		return nil
	}
	for key, value := range s.MatchLabels {
		if err := add("matchLabels", key, selection.In, []string{value}); err != nil {
			return nil, err
		}
	}
	for i, x := range s.MatchExpressions {
		field := fmt.Sprintf("matchExpressions[%d]", i)
		op, ok := operators[x.Operator]
		if !ok {
			return nil, &fault{field: field, err: fmt.Errorf("operator %q: want In, NotIn, Exists or DoesNotExist", fields.Clip(x.Operator))}
		}
		if err := add(field, x.Key, op, x.Values); err != nil {
			return nil, err
		}
	}
	return selector, nil
}

// choose finds the entry for a node: the first that matches. Others that match as well are named.
func (d *document[T]) choose(nodeLabels labels.Set) (chosen *entry[T], others []string) {
	for i := range d.entries {
		e := &d.entries[i]
		switch {
		case !e.selector.Matches(nodeLabels):
		case chosen == nil:
			chosen = e
		case len(others) < maxFaults:
			others = append(others, e.describe())
		}
	}
	return chosen, others
}

// describe returns the entry's name.
func (e *entry[T]) describe() string {
	if e.name == "" {
		return e.path
	}
	return fmt.Sprintf("%s (%q)", e.path, e.name)
}

// merged returns the older with the newer's settings over it; others stay. It shares no memory with either.
func merged[T any](older, newer *T) *T {
	out := new(T)
	for _, s := range []*T{older, newer} {
		dropLists(reflect.ValueOf(out), reflect.ValueOf(s))
		text, err := json.Marshal(s)
		if err == nil {
			err = json.Unmarshal(text, out)
		}
		if err != nil { // these are numbers, texts and lists of them
			panic(err)
		}
	}
	return out
}

// dropLists removes the lists that another has as well, because encoding/json decodes into the present members, and would keep in each
// the fields that the new one lacks.
func dropLists(into, from reflect.Value) {
	switch from.Kind() {
	case reflect.Pointer:
		if !from.IsNil() && !into.IsNil() {
			dropLists(into.Elem(), from.Elem())
		}
	case reflect.Struct:
		for i := range from.NumField() {
			dropLists(into.Field(i), from.Field(i))
		}
	case reflect.Slice:
		if !from.IsNil() {
			into.SetZero()
		}
	}
}

func asFault(err error, in string) *fault {
	var f *fault
	if !errors.As(err, &f) {
		f = &fault{err: err}
	}
	return inside(in, []*fault{f})[0]
}

// inside converts faults of a part to faults of the whole.
func inside(path string, faults []*fault) []*fault {
	if path == "" {
		return faults
	}
	out := make([]*fault, len(faults))
	for i, f := range faults {
		out[i] = &fault{field: join(path, f.field), err: f.err}
	}
	return out
}
