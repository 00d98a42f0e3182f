package sloconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"polder/lib/fields"
)

// shape has the allowed fields of an object, or of a list's objects.
type shape struct {
	fields []field
	list   bool
}

type field struct {
	name string
	of   *shape // nil for parts that are not scanned
}

// with returns the shape with further fields.
func (s *shape) with(more ...field) *shape {
	return &shape{fields: append(more, s.fields...)}
}

// find matches names like encoding/json, ignoring their case.
func (s *shape) find(name string) (field, bool) {
	for _, f := range s.fields {
		if strings.EqualFold(f.name, name) {
			return f, true
		}
	}
	return field{}, false
}

// shapeOf returns the shape of a type's documents.
func shapeOf[T any]() *shape { return shapeOfType(reflect.TypeFor[T]()) }

func shapeOfType(t reflect.Type) *shape {
	switch t.Kind() {
	case reflect.Pointer:
		return shapeOfType(t.Elem())
	case reflect.Slice:
		if s := shapeOfType(t.Elem()); s != nil {
			return &shape{fields: s.fields, list: true}
		}
	case reflect.Struct:
		s := &shape{}
		for field0 := range t.Fields() {
			name, _, _ := strings.Cut(field0.Tag.Get("json"), ",")
			s.fields = append(s.fields, field{name, shapeOfType(field0.Type)})
		}
		return s
	}
	return nil
}

// scan is the result of scanning a document's text.
type scan struct {
	text []byte
	d    *json.Decoder
	at   map[string]int64 // the end of each field's name, and the beginning of each list member, by path in the shape's names
	// unknown are paths of fields that are not in the shape, duplicates those of repeated fields. Of each at most maxListed are noted, but
	// all unknown ones of selectors, which must be found.
	unknown, duplicates []string
}

// maxListed bounds the notes of one document.
const maxListed = 50

// scanKeys scans a document.
func scanKeys(text []byte, s *shape) (*scan, error) {
	l := &scan{text: text, d: json.NewDecoder(bytes.NewReader(text)), at: map[string]int64{}}
	if err := l.value(s, ""); err != nil {
		return l, err
	}
	return l, nil
}

// rest returns the text from the next value on.
func (l *scan) rest() []byte { return bytes.TrimLeft(l.text[l.d.InputOffset():], " \t\r\n:,") }

func (l *scan) value(s *shape, path string) error {
	rest := l.rest()
	if s == nil || len(rest) == 0 || rest[0] != '{' && (rest[0] != '[' || !s.list) {
		var skipped json.RawMessage
		return l.d.Decode(&skipped)
	}
	if _, err := l.d.Token(); err != nil {
		return err
	}
	if rest[0] == '[' {
		of := &shape{fields: s.fields}
		for i := 0; l.d.More(); i++ {
			inner := path + "[" + strconv.Itoa(i) + "]"
			l.at[inner] = int64(len(l.text) - len(l.rest()))
			if err := l.value(of, inner); err != nil {
				return err
			}
		}
		_, err := l.d.Token()
		return err
	}
	seen := map[string]bool{}
	for l.d.More() {
		t, err := l.d.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string)
		f, known := s.find(name)
		if known {
			name = f.name
		}
		inner := join(path, fields.Clip(name))
		switch {
		case !known && (len(l.unknown) < maxListed || strings.Contains(inner, ".nodeSelector.")):
			l.unknown = append(l.unknown, inner)
		case seen[name] && len(l.duplicates) < maxListed:
			l.duplicates = append(l.duplicates, inner)
		}
		seen[name] = true
		l.at[inner] = l.d.InputOffset()
		if err := l.value(f.of, inner); err != nil {
			return err
		}
	}
	_, err := l.d.Token()
	return err
}

func join(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// line returns the line of a field in the text, from 1; that of the deepest existing part of its path.
func (l *scan) line(path string) int {
	for path != "" {
		if at, ok := l.at[path]; ok {
			return lineAt(l.text, at)
		}
		path = path[:max(strings.LastIndexByte(path, '.'), 0)]
	}
	return 1
}

func lineAt(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:min(max(offset, 0), int64(len(text)))], []byte("\n"))
}

// decode decodes JSON like Koordinator. Faults have the field's name.
func decode(text []byte, into any) error {
	err := json.Unmarshal(text, into)
	if syntax, is := errors.AsType[*json.SyntaxError](err); is {
		return &fault{offset: syntax.Offset, err: fmt.Errorf("it is not JSON: %w", err)}
	}
	if mistyped, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		return &fault{field: mistyped.Field, offset: mistyped.Offset, err: fmt.Errorf("got %s: want %s", fields.Clip(mistyped.Value), typeName(mistyped.Type))}
	}
	return err
}

// typeName describes a type for messages.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

// fault is an error in one field of a document.
type fault struct {
	field  string // its path, empty for the whole
	offset int64  // in the document, if there is no field
	err    error
}

func (f *fault) Error() string {
	if f.field == "" {
		return f.err.Error()
	}
	return f.field + ": " + f.err.Error()
}

func (f *fault) Unwrap() error { return f.err }
