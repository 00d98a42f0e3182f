package customconfig

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"polder/lib/fields"
)

// conflict returns why two objects exclude each other.
func conflict(x, y *Candidate) string {
	switch {
	case y.Err != nil:
		return ""
	case len(x.NodeNames) > 0 && len(y.NodeNames) > 0:
		for _, n := range x.NodeNames {
			if slices.Contains(y.NodeNames, n) {
				return fmt.Sprintf("both name node %s", fields.Clip(n))
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

// overlap reports whether some labels may match both selectors. It is false only if the requirements for one key
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
			for value := range r.Values() { // then only these values are possible
				if meets(labels.Set{key: value}) {
					return true
				}
			}
			return false
		}
	}
	absent := slices.ContainsFunc(list, func(r labels.Requirement) bool { return r.Operator() == selection.DoesNotExist })
	return !absent // with only NotIn, Exists and comparisons there is nearly always a value
}
