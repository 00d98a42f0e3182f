// Package fields reads API objects field by field. Any client may have written them: a field of another type than the
// API's counts as absent.
package fields

import (
	"encoding/json"
	"time"

	"polder/lib/clip"
)

// Object is an API object, or a part of one, as decoded from JSON.
type Object = map[string]any

// Any returns the value at a path of keys, nil if there is none.
func Any(o Object, path ...string) any {
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

// Text returns a text, empty if there is none.
func Text(o Object, path ...string) string {
	s, _ := Any(o, path...).(string)
	return s
}

// Bool returns a boolean, false if there is none.
func Bool(o Object, path ...string) bool {
	b, _ := Any(o, path...).(bool)
	return b
}

// Child returns an object in the object, nil if there is none.
func Child(o Object, path ...string) Object {
	m, _ := Any(o, path...).(map[string]any)
	return m
}

// List returns a list of objects, without members of other types.
func List(o Object, path ...string) []Object {
	list, _ := Any(o, path...).([]any)
	out := make([]Object, 0, len(list))
	for _, v := range list {
		if m, ok := v.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// Texts returns a list of texts, without members of other types.
func Texts(o Object, path ...string) []string {
	list, _ := Any(o, path...).([]any)
	var out []string
	for _, v := range list {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// TextMap returns a map of texts, without values of other types.
func TextMap(o Object, path ...string) map[string]string {
	m := Child(o, path...)
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

// Time returns a time of the API (RFC 3339) in UTC, the zero time if there is none.
func Time(o Object, path ...string) time.Time {
	t, err := time.Parse(time.RFC3339, Text(o, path...))
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// Integer returns a whole number.
func Integer(o Object, path ...string) (int64, bool) { return AsInteger(Any(o, path...)) }

// AsInteger converts a whole number as a JSON decoder returns it: an int, an int64, a float64 or a json.Number.
func AsInteger(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case int:
		return int64(v), true
	case float64:
		return int64(v), v == float64(int64(v))
	case json.Number:
		n, err := v.Int64()
		return n, err == nil
	}
	return 0, false
}

// AsNumber converts a number as a JSON decoder returns it.
func AsNumber(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case int:
		return float64(v), true
	case float64:
		return v, true
	case json.Number:
		f, err := v.Float64()
		return f, err == nil
	}
	return 0, false
}

// longest is the maximum length of foreign text in a message.
const longest = 100

// Clip shortens a text for a message.
func Clip(s string) string { return clip.Text(s, longest) }
