package object

import (
	"strconv"
	"strings"

	"polder/lib/quantity"
)

// NodePatch is a JSON merge patch for a node's status that names the resources alone, so that kubelet's own stay as they
// are. An amount that is not known is taken away. Kubelet derives what is allocatable from the capacity, whenever it writes its
// status: both are the same.
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

// text is an amount as it is written: see [bytes].
func text(name string, v int64) string {
	if strings.HasSuffix(name, "memory") {
		return strconv.FormatInt(v, 10)
	}
	return quantity.Format(v)
}

// NodeHolds reports whether a node has exactly the amounts, and those that are not known not at all. Kubelet sets to zero
// what it does not know when it starts on a new machine.
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
