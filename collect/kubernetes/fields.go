package kubernetes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"polder/lib/fields"
	"polder/lib/qos"
)

type object = fields.Object

// Bounds of the labels and annotations of one object that are passed on. A value that exceeds them is left out whole, because
// a truncated JSON text has another meaning.
const (
	maxValue  = 4 << 10
	maxValues = 16 << 10
)

// passedOn are the labels or annotations that are passed on: those for which want is true, as far as the bounds allow. Protecting
// ones come first, and their keys stay where their values exceed the bounds, so that no other one can displace a protection.
func passedOn(kind string, m map[string]string, want func(string) bool, protect []string, complain func(string)) map[string]string {
	var out map[string]string
	total := 0
	add := func(key string, isProtecting bool) {
		value, ok := m[key]
		if _, done := out[key]; !ok || done || !want(key) {
			return
		}
		size := encoded(key) + encoded(value)
		if size > maxValue || total+size > maxValues {
			what := "is left out"
			if isProtecting {
				what, value = "is passed on as empty", ""
			}
			complain(fmt.Sprintf("%s %s of %d bytes %s: want %d at most, and %d in all", kind, fields.Clip(key), size, what, maxValue, maxValues))
			if !isProtecting {
				return
			}
			size = encoded(key)
		}
		total += size
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	for _, key := range protect { // they are few, and the API server bounds keys
		add(key, true)
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		add(key, false)
	}
	return out
}

// encoded is the size of a text in JSON, where a control character is six bytes long.
func encoded(text string) int {
	size := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c < 0x20 || c == 0x7f:
			size += 5
		case c == '"' || c == '\\':
			size++
		}
	}
	return size
}

// isPassedOn selects the pod's labels and annotations that are passed on: the dialects', and the further keys.
func isPassedOn(extraKeys []string) func(string) bool {
	return func(key string) bool { return qos.Dialect(key) || slices.Contains(extraKeys, key) }
}

// protecting are the annotations that protect a pod from eviction: evict's opt-outs, which are among the further keys, by their
// presence or value, and Koordinator's policy, with which no rule may evict the pod where it is not a JSON list.
func (r *Reading) protecting() []string {
	return slices.Concat([]string{qos.EvictionPolicy}, r.Annotations)
}

// nodeMark selects the node's labels and annotations that are passed on.
func nodeMark(key string) bool { return qos.Dialect(key) || strings.HasPrefix(key, "kubernetes.io/") }
