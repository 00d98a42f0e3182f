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

// Bounds of the labels and annotations of one object that are passed on. A value that is over them is left out whole, as
// the beginning of a JSON text would be something else.
const (
	maxValue  = 4 << 10
	maxValues = 16 << 10
)

// kept are the labels or annotations that are passed on: those that want holds for, as far as the bounds allow.
func kept(kind string, m map[string]string, want func(string) bool, complain func(string)) map[string]string {
	var out map[string]string
	total := 0
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if !want(key) {
			continue
		}
		size := encoded(key) + encoded(m[key])
		if size > maxValue || total+size > maxValues {
			complain(fmt.Sprintf("%s %s of %d bytes is left out: want %d at most, and %d in all", kind, fields.Clip(key), size, maxValue, maxValues))
			continue
		}
		total += size
		if out == nil {
			out = map[string]string{}
		}
		out[key] = m[key]
	}
	return out
}

// encoded is the size of a text in JSON, where a control character is six bytes long: a line has its bounds, too.
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

// Marks says which of a pod's labels and annotations are passed on: the dialects', and the further keys that are named.
func marks(further []string) func(string) bool {
	return func(key string) bool { return qos.Dialect(key) || slices.Contains(further, key) }
}

// nodeMark says which of a node's are.
func nodeMark(key string) bool { return qos.Dialect(key) || strings.HasPrefix(key, "kubernetes.io/") }
