package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Kind is a kind of configuration objects.
type Kind struct {
	// Resource is its name in a KatalystCustomConfig's target, Key its name in sample.config.
	Resource, Key string
}

// The kinds that are read, and their group and version.
var (
	AdminQoS = Kind{"adminqosconfigurations", "adminQoSConfiguration"}
	Eviction = Kind{"evictionconfigurations", "evictionConfiguration"}
	Kinds    = []Kind{AdminQoS, Eviction}
)

const (
	configGroup   = "config.katalyst.kubewharf.io"
	configVersion = "v1alpha1"
)

// maxConfig bounds the JSON text of one object's configuration.
const maxConfig = 128 << 10

// Target is a KatalystCustomConfig: it makes a kind of objects count.
type Target struct {
	Namespace, Name string
	// Resource is empty where the target is no kind that is read.
	Resource string
	// Keys are the keys that node label selectors may have, by priority.
	Keys map[int64][]string
}

// TargetOf reads a KatalystCustomConfig.
func TargetOf(o object) *Target {
	t := &Target{Namespace: text(o, "metadata", "namespace"), Name: text(o, "metadata", "name"), Keys: map[int64][]string{}}
	target := child(o, "spec", "targetType")
	if text(target, "group") == configGroup && text(target, "version") == configVersion {
		t.Resource = text(target, "resource")
	}
	for _, allowed := range objects(o, "spec", "nodeLabelSelectorAllowedKeyList") {
		if priority, ok := whole(allowed, "priority"); ok || allowed["priority"] == nil {
			t.Keys[priority] = append(t.Keys[priority], texts(allowed, "keyList")...)
		}
	}
	if key := text(o, "spec", "nodeLabelSelectorKey"); key != "" { // the first version's, which knew no priorities
		t.Keys[0] = append(t.Keys[0], key)
	}
	return t
}

// Candidate is a configuration object.
type Candidate struct {
	Namespace, Name string
	Selector        labels.Selector // nil where it has none
	Priority        int64
	NodeNames       []string
	// Expires is when an object for named nodes ends to count.
	Expires time.Time
	// Config is spec.config as it stands, {} where there is none.
	Config json.RawMessage
	// Held says why it is not to be taken up now, empty where it may be.
	Held string
	// Err says that the object is no good by itself.
	Err error
}

// CandidateOf reads a configuration object.
func CandidateOf(o object) *Candidate {
	c := &Candidate{Namespace: text(o, "metadata", "namespace"), Name: text(o, "metadata", "name")}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if v := field(o, "spec", "priority"); v != nil {
		var ok bool
		if c.Priority, ok = whole(o, "spec", "priority"); !ok {
			wrong("priority is no whole number")
		}
	}
	if s := text(o, "spec", "nodeLabelSelector"); s != "" {
		var err error
		if c.Selector, err = labels.Parse(s); err != nil {
			wrong("nodeLabelSelector %q: %v", clip(s), err)
		}
	}
	c.NodeNames = texts(o, "spec", "ephemeralSelector", "nodeNames")
	lasts := text(o, "spec", "ephemeralSelector", "lastDuration")
	switch {
	case len(c.NodeNames) > 0 && c.Selector != nil:
		wrong("it has both nodeNames and a nodeLabelSelector")
	case len(c.NodeNames) > 0 && lasts == "":
		wrong("nodeNames without lastDuration")
	case len(c.NodeNames) == 0 && lasts != "":
		wrong("lastDuration without nodeNames")
	case lasts != "":
		d, err := time.ParseDuration(lasts)
		made, errMade := time.Parse(time.RFC3339, text(o, "metadata", "creationTimestamp"))
		if err != nil || d <= 0 {
			wrong("lastDuration %q is no time span", clip(lasts))
		} else if errMade != nil {
			wrong("lastDuration without a creationTimestamp to count from")
		} else {
			c.Expires = made.Add(d)
		}
	}
	if truth(o, "spec", "paused") {
		c.Held = "it is paused"
	}
	if canary := field(o, "spec", "updateStrategy", "rollingUpdate", "canary"); canary != nil && canary != "100%" {
		c.Held = fmt.Sprintf("its canary is %s, and whether this node is one of the first is not known here", clip(fmt.Sprint(canary)))
	}
	config := child(o, "spec", "config")
	if config == nil {
		config = object{}
	}
	var err error
	if c.Config, err = json.Marshal(config); err != nil || len(c.Config) > maxConfig {
		wrong("its configuration of %d bytes is left out: want %d at most", len(c.Config), maxConfig)
		c.Config = nil
	}
	c.Err = errors.Join(errs...)
	return c
}

// Chosen is the configuration of one kind that is in force.
type Chosen struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Config    json.RawMessage `json:"config"`
}

// Configs is what the cluster says about configuration.
type Configs struct {
	Targets []*Target
	// Candidates are the objects by kind; a kind that is missing was not read yet.
	Candidates map[Kind][]*Candidate
}

// Resolve says what is in force of a kind on a node: an object that names the node, else that with the highest priority
// of those that select its labels, else the one for all nodes. Kinds without a target do not count.
//
// Where the objects contradict each other, or one is no good, the last good result stays, as in Katalyst, and the errors
// say why. next is when to look again though nothing changes, zero where there is no such time.
func (c *Configs) Resolve(kind Kind, node string, nodeLabels map[string]string, last *Chosen, now time.Time) (chosen *Chosen, next time.Time, err error) {
	var targets []*Target
	for _, t := range c.Targets {
		if t.Resource == kind.Resource {
			targets = append(targets, t)
		}
	}
	slices.SortFunc(targets, func(a, b *Target) int { return compareNames(a.Namespace, a.Name, b.Namespace, b.Name) })
	switch {
	case len(targets) == 0:
		return nil, next, nil
	case len(targets) > 1:
		return last, next, fmt.Errorf("KatalystCustomConfigs %s/%s and %s/%s are both for %s: what was in force stays",
			targets[0].Namespace, targets[0].Name, targets[1].Namespace, targets[1].Name, kind.Resource)
	}
	all, ok := c.Candidates[kind]
	if !ok {
		return last, next, nil
	}
	var live []*Candidate
	for _, x := range all {
		if x.Expires.IsZero() {
			live = append(live, x)
		} else if now.Before(x.Expires) {
			live = append(live, x)
			if next.IsZero() || x.Expires.Before(next) {
				next = x.Expires
			}
		}
	}
	slices.SortFunc(live, func(a, b *Candidate) int { return compareNames(a.Namespace, a.Name, b.Namespace, b.Name) })
	if errs := validate(live, targets[0]); len(errs) > 0 {
		for i, err := range errs {
			errs[i] = fmt.Errorf("%s %w: what was in force stays", kind.Resource, err)
		}
		return last, next, errors.Join(errs...)
	}
	best := choose(live, node, labels.Set(nodeLabels))
	switch {
	case best == nil:
		return nil, next, nil
	case best.Held != "":
		return last, next, fmt.Errorf("%s %s/%s is not taken up: %s; what was in force stays", kind.Resource, best.Namespace, best.Name, best.Held)
	}
	return &Chosen{Namespace: best.Namespace, Name: best.Name, Config: best.Config}, next, nil
}

// choose finds the node's object among valid ones.
func choose(live []*Candidate, node string, set labels.Set) *Candidate {
	var selected, global *Candidate
	for _, x := range live {
		switch {
		case len(x.NodeNames) > 0:
			if slices.Contains(x.NodeNames, node) {
				return x
			}
		case x.Selector == nil:
			global = x
		case x.Selector.Matches(set) && (selected == nil || x.Priority > selected.Priority):
			selected = x
		}
	}
	if selected != nil {
		return selected
	}
	return global
}

// validate checks the objects of one kind, each by itself and against each other.
func validate(live []*Candidate, target *Target) (errs []error) {
	for i, x := range live {
		name := x.Namespace + "/" + x.Name
		if x.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, x.Err))
			continue
		}
		if err := target.allows(x); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		for _, y := range live[:i] {
			if why := conflict(x, y); why != "" {
				errs = append(errs, fmt.Errorf("%s and %s/%s %s", name, y.Namespace, y.Name, why))
			}
		}
		if len(errs) > maxProblems {
			break
		}
	}
	return errs
}

// allows checks the keys of a selector against those that the target lets have its priority.
func (t *Target) allows(x *Candidate) error {
	if x.Selector == nil {
		return nil
	}
	keys, ok := t.Keys[x.Priority]
	if !ok {
		return fmt.Errorf("KatalystCustomConfig %s/%s allows no nodeLabelSelector of priority %d", t.Namespace, t.Name, x.Priority)
	}
	requirements, _ := x.Selector.Requirements()
	for _, r := range requirements {
		if !slices.Contains(keys, r.Key()) {
			return fmt.Errorf("KatalystCustomConfig %s/%s does not allow the key %s in a nodeLabelSelector of priority %d", t.Namespace, t.Name, clip(r.Key()), x.Priority)
		}
	}
	return nil
}

// conflict says why two objects cannot stand beside each other.
func conflict(x, y *Candidate) string {
	switch {
	case y.Err != nil:
		return ""
	case len(x.NodeNames) > 0 && len(y.NodeNames) > 0:
		for _, n := range x.NodeNames {
			if slices.Contains(y.NodeNames, n) {
				return fmt.Sprintf("both name node %s", clip(n))
			}
		}
	case len(x.NodeNames) > 0 || len(y.NodeNames) > 0:
	case x.Selector == nil && y.Selector == nil:
		return "are both for all nodes"
	case x.Selector != nil && y.Selector != nil && x.Priority == y.Priority && overlap(x.Selector, y.Selector):
		return fmt.Sprintf("have the same priority %d, and a node can match both nodeLabelSelectors", x.Priority)
	}
	return ""
}

// overlap reports whether there may be labels that match both selectors. It is false only where one key's requirements
// exclude each other.
func overlap(a, b labels.Selector) bool {
	ra, _ := a.Requirements()
	rb, _ := b.Requirements()
	byKey := map[string][]labels.Requirement{}
	for _, r := range slices.Concat([]labels.Requirement(ra), []labels.Requirement(rb)) {
		byKey[r.Key()] = append(byKey[r.Key()], r)
	}
	for key, list := range byKey {
		if !satisfiable(key, list) {
			return false
		}
	}
	return true
}

// satisfiable reports whether one value of a label, or its absence, may meet all requirements.
func satisfiable(key string, list []labels.Requirement) bool {
	meets := func(set labels.Set) bool {
		return !slices.ContainsFunc(list, func(r labels.Requirement) bool { return !r.Matches(set) })
	}
	if meets(labels.Set{}) {
		return true
	}
	for _, r := range list {
		if op := r.Operator(); op == selection.In || op == selection.Equals || op == selection.DoubleEquals {
			for value := range r.Values() { // then only these values come into question
				if meets(labels.Set{key: value}) {
					return true
				}
			}
			return false
		}
	}
	absent := slices.ContainsFunc(list, func(r labels.Requirement) bool { return r.Operator() == selection.DoesNotExist })
	return !absent // with NotIn, Exists and comparisons alone there is nearly always a value
}

func compareNames(aNamespace, aName, bNamespace, bName string) int {
	return slices.Compare([]string{aNamespace, aName}, []string{bNamespace, bName})
}
