package object

import (
	"strconv"
	"strings"

	"polder/lib/quantity"
)

// NodePatch is a JSON merge patch for a node's status that has only these resources, so that kubelet's own stay as they
// are. Unknown amounts are removed. Capacity and allocatable are the same, because kubelet derives the latter from the former
// whenever it writes its status.
func NodePatch(r Resources) map[string]any {
	list := func() map[string]any {
		l := map[string]any{}
		for name, v := range r {
			l[name] = nil
			if v != nil {
				l[name] = text(name, *v)
			}
		}
		return l
	}
	return map[string]any{"status": map[string]any{"capacity": list(), "allocatable": list()}}
}

// text is an amount in its written form: see [bytes].
func text(name string, v int64) string {
	if strings.HasSuffix(name, "memory") {
		return strconv.FormatInt(v, 10)
	}
	return quantity.Format(v)
}

// NodeHolds reports whether a node has exactly the amounts, and unknown ones not at all. (Kubelet sets resources that it does not
// know to zero when it starts on a new machine.)
func NodeHolds(node map[string]any, r Resources) bool {
	for _, part := range []string{"capacity", "allocatable"} {
		have, _ := at(node, "status", part).(map[string]any)
		for name, want := range r {
			h, there := have[name]
			if there != (want != nil) || there && !Holds(h, text(name, *want)) {
				return false
			}
		}
	}
	return true
}

// at is the value at a path of keys, nil where there is none.
func at(o map[string]any, path ...string) any {
	var v any = o
	for _, key := range path {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}
