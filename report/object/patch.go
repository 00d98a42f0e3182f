package object

import (
	"reflect"
	"strings"
)

// Patch is a JSON patch (RFC 6902). With each change it has a test of the value when the patch was made: the server
// applies it although others have changed other parts of the object meanwhile, with its own retries, and refuses it
// where the same part has changed. A guard by the object's version would starve beside a busy writer.
type Patch []map[string]any

func (p *Patch) step(op, path string, value any) {
	*p = append(*p, map[string]any{"op": op, "path": path, "value": value})
}

// set sets the value at the path; nil removes it.
func (p *Patch) set(o map[string]any, value any, path ...string) {
	in := o
	for i, key := range path {
		at, last := pointer(path[:i+1]), i == len(path)-1
		next, isMap := in[key].(map[string]any)
		switch {
		case in[key] == nil || !last && !isMap:
			p.step("test", at, nil)
			for n := len(path) - 1; n > i && value != nil; n-- {
				value = map[string]any{path[n]: value}
			}
			if value != nil {
				p.step("add", at, value)
			}
			return
		case last:
			p.step("test", at, in[key])
			if value == nil {
				*p = append(*p, map[string]any{"op": "remove", "path": at})
			} else {
				p.step("replace", at, value)
			}
		}
		in = next
	}
}

// drop removes the value at the path, whatever it is at that time.
func (p *Patch) drop(path ...string) {
	*p = append(*p, map[string]any{"op": "remove", "path": pointer(path)})
}

// Fits reports whether an object is as the patch assumes: if the server refuses the patch nevertheless, that is because of
// its content, and not because of a conflict.
func (p Patch) Fits(o map[string]any) bool {
	for _, op := range p {
		path, _ := op["path"].(string)
		have := at(o, keys(path)...)
		switch op["op"] {
		case "test":
			if !reflect.DeepEqual(have, op["value"]) {
				return false
			}
		case "remove":
			if have == nil {
				return false
			}
		}
	}
	return true
}

var escape, unescape = strings.NewReplacer("~", "~0", "/", "~1"), strings.NewReplacer("~1", "/", "~0", "~")

// pointer is a path as a JSON pointer (RFC 6901), and keys is the inverse.
func pointer(path []string) string {
	var b strings.Builder
	for _, key := range path {
		b.WriteString("/" + escape.Replace(key))
	}
	return b.String()
}

func keys(pointer string) []string {
	list := strings.Split(pointer, "/")[1:]
	for i := range list {
		list[i] = unescape.Replace(list[i])
	}
	return list
}
