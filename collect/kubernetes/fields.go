package kubernetes

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"polder/lib/qos"
)

// Objects come from whoever may write pods: a field of another type than the API's is taken for absent.

type object = map[string]any

func field(o object, path ...string) any {
	var v any = o
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

func text(o object, path ...string) string {
	s, _ := field(o, path...).(string)
	return s
}

func truth(o object, path ...string) bool {
	b, _ := field(o, path...).(bool)
	return b
}

func child(o object, path ...string) object {
	m, _ := field(o, path...).(map[string]any)
	return m
}

// objects is a list of objects; other members are left out.
func objects(o object, path ...string) []object {
	list, _ := field(o, path...).([]any)
	out := make([]object, 0, len(list))
	for _, v := range list {
		if m, ok := v.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func texts(o object, path ...string) []string {
	list, _ := field(o, path...).([]any)
	var out []string
	for _, v := range list {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// whole is a whole number: what a decoder makes of one is an int64, a float64 or a json.Number.
func whole(o object, path ...string) (int64, bool) {
	switch v := field(o, path...).(type) {
	case int64:
		return v, true
	case float64:
		return int64(v), v == float64(int64(v))
	case json.Number:
		n, err := v.Int64()
		return n, err == nil
	}
	return 0, false
}

// textMap is a map of texts; other values are left out.
func textMap(o object, path ...string) map[string]string {
	m := child(o, path...)
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		if s, ok := v.(string); ok {
			out[k] = s
		}
	}
	return out
}

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
			complain(fmt.Sprintf("%s %s of %d bytes is left out: want %d at most, and %d in all", kind, clip(key), size, maxValue, maxValues))
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

func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}
