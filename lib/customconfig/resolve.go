package customconfig

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"polder/lib/fields"
	"polder/lib/tick"
)

// maxProblems bounds the errors about one kind.
const maxProblems = 8

// Chosen is the configuration in force of one kind.
type Chosen struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Config    json.RawMessage `json:"config"`
	// At is its place if it is from a file ("FILE:12").
	At string `json:"at,omitempty"`
}

// Object returns its configuration. The error means that it is not an object.
func (c *Chosen) Object() (Object, error) {
	config := Object{}
	if len(c.Config) > 0 && string(c.Config) != "null" && tick.Unmarshal(c.Config, &config) != nil {
		return nil, errors.New("config: want an object")
	}
	return config, nil
}

// IsIn reports whether a tick's configuration contains Katalyst's part: it may contain Koordinator's ConfigMap alone.
func IsIn(raw tick.Raw) bool {
	var top map[string]tick.Raw
	return len(raw) > 0 && (tick.Unmarshal(raw, &top) != nil || top["katalyst"] != nil)
}

// Read reads the objects in force from a tick's configuration, by their kinds' keys. The error means that some are not in collect's format.
func Read(raw tick.Raw) (chosen map[string]*Chosen, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	errFormat := errors.New("sample.config is not in collect's format: ignored")
	var top struct {
		Katalyst map[string]tick.Raw `json:"katalyst"`
	}
	if tick.Unmarshal(raw, &top) != nil {
		return nil, errFormat
	}
	chosen = map[string]*Chosen{}
	for _, kind := range Kinds {
		text := top.Katalyst[kind.Key]
		if len(text) == 0 || string(text) == "null" {
			continue
		}
		c := &Chosen{}
		if tick.Unmarshal(text, c) != nil {
			err = errFormat
			continue
		}
		chosen[kind.Key] = c
	}
	return chosen, err
}

// Configs are the observed objects.
type Configs struct {
	Targets []*Target
	// Candidates are the objects by kind; a missing kind was not read yet.
	Candidates map[Kind][]*Candidate
	// Absent are the kinds that the cluster does not have.
	Absent []Kind
}

// Problem is an error in objects of one kind.
type Problem struct {
	// Objects are the affected ones.
	Objects []*Candidate
	Err     error
}

// targets returns the targets of a kind, by name.
func (c *Configs) targets(kind Kind) []*Target {
	var targets []*Target
	for _, t := range c.Targets {
		if t.Resource == kind.Resource {
			targets = append(targets, t)
		}
	}
	slices.SortFunc(targets, func(a, b *Target) int { return compareNames(a.Namespace, a.Name, b.Namespace, b.Name) })
	return targets
}

// unexpired returns the objects of a kind that have not expired, by name, and when the next one expires.
func (c *Configs) unexpired(kind Kind, now time.Time) (unexpired []*Candidate, next time.Time) {
	for _, x := range c.Candidates[kind] {
		if x.Expires.IsZero() {
			unexpired = append(unexpired, x)
		} else if now.Before(x.Expires) {
			unexpired = append(unexpired, x)
			if next.IsZero() || x.Expires.Before(next) {
				next = x.Expires
			}
		}
	}
	slices.SortFunc(unexpired, func(a, b *Candidate) int { return compareNames(a.Namespace, a.Name, b.Namespace, b.Name) })
	return unexpired, next
}

// errNotRead means that a kind's objects were not read yet.
var errNotRead = errors.New("not read yet")

// resolve returns the object in force of a kind on a node: the one that names the node, else the one with the highest priority of
// those that select its labels, else the one for all nodes. Kinds without a target do not count. next is when to resolve again
// without a change, zero if there is no such time. The error says why the object is unknown: the objects are not read yet, contradict
// each other, or one is invalid.
func (c *Configs) resolve(kind Kind, node string, nodeLabels map[string]string, now time.Time) (chosen *Chosen, next time.Time, err error) {
	targets := c.targets(kind)
	switch {
	case len(targets) == 0:
		return nil, next, nil
	case len(targets) > 1:
		return nil, next, overlapping(kind, targets)
	}
	if _, ok := c.Candidates[kind]; !ok {
		return nil, next, errNotRead
	}
	candidates, next := c.unexpired(kind, now)
	if problems := validate(candidates, targets[0]); len(problems) > 0 {
		errs := make([]error, len(problems))
		for i, p := range problems {
			errs[i] = fmt.Errorf("%s %w", kind.Resource, p.Err)
		}
		return nil, next, errors.Join(errs...)
	}
	best := choose(candidates, node, labels.Set(nodeLabels))
	switch {
	case best == nil:
		return nil, next, nil
	case best.HoldReason != "":
		return nil, next, fmt.Errorf("%s %s is not applied: %s", kind.Resource, best.name(), best.HoldReason)
	}
	return &Chosen{Namespace: best.Namespace, Name: best.Name, Config: best.Config}, next, nil
}

// InForce returns the objects in force on a node, by the kinds' keys, when to resolve again, and the errors. If the object of a
// kind is unknown, last, the previous result, stays in force, as in Katalyst.
func (c *Configs) InForce(node string, nodeLabels map[string]string, last map[string]*Chosen, now time.Time) (
	map[string]*Chosen, time.Time, []error,
) {
	inForce, next, errs := map[string]*Chosen{}, time.Time{}, []error(nil)
	for _, kind := range Kinds {
		chosen, again, err := c.resolve(kind, node, nodeLabels, now)
		if err != nil {
			chosen = last[kind.Key]
			if !errors.Is(err, errNotRead) {
				errs = append(errs, fmt.Errorf("%w: the previous configuration stays in force", err))
			}
		}
		if !again.IsZero() && (next.IsZero() || again.Before(next)) {
			next = again
		}
		if chosen != nil {
			inForce[kind.Key] = chosen
		}
	}
	return inForce, next, errs
}

func overlapping(kind Kind, targets []*Target) error {
	return fmt.Errorf("KatalystCustomConfigs %s/%s and %s/%s are both for %s",
		targets[0].Namespace, targets[0].Name, targets[1].Namespace, targets[1].Name, kind.Resource)
}

// choose finds the node's object among valid ones.
func choose(candidates []*Candidate, node string, set labels.Set) *Candidate {
	var selected, global *Candidate
	for _, x := range candidates {
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

// validate checks the objects of one kind, each alone and against each other.
func validate(candidates []*Candidate, target *Target) (problems []Problem) {
	for i, x := range candidates {
		if x.Err != nil {
			problems = append(problems, Problem{[]*Candidate{x}, fmt.Errorf("%s: %w", x.name(), x.Err)})
			continue
		}
		if err := target.allows(x); err != nil {
			problems = append(problems, Problem{[]*Candidate{x}, fmt.Errorf("%s: %w", x.name(), err)})
		}
		for _, y := range candidates[:i] {
			if reason := conflict(x, y); reason != "" {
				problems = append(problems, Problem{[]*Candidate{x, y}, fmt.Errorf("%s and %s %s", x.name(), y.name(), reason)})
			}
		}
		if len(problems) > maxProblems {
			break
		}
	}
	return problems
}

// allows checks the keys of a selector against those that the target allows for its priority.
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
			return fmt.Errorf("KatalystCustomConfig %s/%s does not allow the key %s in a nodeLabelSelector of priority %d", t.Namespace, t.Name, fields.Clip(r.Key()), x.Priority)
		}
	}
	return nil
}

func compareNames(aNamespace, aName, bNamespace, bName string) int {
	return cmp.Or(cmp.Compare(aNamespace, bNamespace), cmp.Compare(aName, bName))
}
