package object

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// apply is RFC 6902, as far as patches here go: of maps alone. A value that is null and one that is missing are the same,
// as they are to the API server.
func (p Patch) apply(o map[string]any) error {
	for _, op := range p {
		path, _ := op["path"].(string)
		list := keys(path)
		in, ok := at(o, list[:len(list)-1]...).(map[string]any)
		if !ok {
			return errors.New("no such path: " + path)
		}
		key := list[len(list)-1]
		switch op["op"] {
		case "test":
			if !reflect.DeepEqual(in[key], op["value"]) {
				return errors.New("test failed: " + path)
			}
		case "add", "replace":
			in[key] = op["value"]
		case "remove":
			if _, ok := in[key]; !ok {
				return errors.New("nothing to remove: " + path)
			}
			delete(in, key)
		default:
			return errors.New("no such operation")
		}
	}
	return nil
}

// A patch is applied although others have changed other parts, and refused where its own part has changed.
func TestPatch(t *testing.T) {
	for _, tt := range []struct {
		name, have string
		value      any
		path       []string
		patch      string
		meanwhile  string // the object when the patch arrives
		want       string // empty where it is refused
	}{
		{
			"there is one", `{"spec":{"taints":["a"],"x":1}}`,
			[]any{"b"},
			[]string{"spec", "taints"},
			`[{"op":"test","path":"/spec/taints","value":["a"]},{"op":"replace","path":"/spec/taints","value":["b"]}]`,
			`{"spec":{"taints":["a"],"x":2}}`, `{"spec":{"taints":["b"],"x":2}}`,
		},
		{"it changed", `{"spec":{"taints":["a"]}}`, []any{"b"}, []string{"spec", "taints"}, "", `{"spec":{"taints":["a","c"]}}`, ""},
		{"it went", `{"spec":{"taints":["a"]}}`, []any{"b"}, []string{"spec", "taints"}, "", `{"spec":{}}`, ""},
		{"it went with what it was in", `{"spec":{"taints":["a"]}}`, []any{"b"}, []string{"spec", "taints"}, "", `{}`, ""},
		{
			"none", `{"spec":{}}`,
			[]any{"b"},
			[]string{"spec", "taints"},
			`[{"op":"test","path":"/spec/taints","value":null},{"op":"add","path":"/spec/taints","value":["b"]}]`,
			`{"spec":{"x":1}}`, `{"spec":{"taints":["b"],"x":1}}`,
		},
		{"none, and one came", `{"spec":{}}`, []any{"b"}, []string{"spec", "taints"}, "", `{"spec":{"taints":["c"]}}`, ""},
		{
			"nothing that it could be in", `{"metadata":{}}`, "v",
			[]string{"metadata", "annotations", "a/b~c"},
			`[{"op":"test","path":"/metadata/annotations","value":null},{"op":"add","path":"/metadata/annotations","value":{"a/b~c":"v"}}]`,
			`{"metadata":{"name":"n"}}`, `{"metadata":{"annotations":{"a/b~c":"v"},"name":"n"}}`,
		},
		{"others' came", `{"metadata":{}}`, "v", []string{"metadata", "annotations", "a/b"}, "", `{"metadata":{"annotations":{"c":"d"}}}`, ""},
		{
			"beside others'", `{"metadata":{"annotations":{"c":"d"}}}`, "v",
			[]string{"metadata", "annotations", "a/b~c"},
			`[{"op":"test","path":"/metadata/annotations/a~1b~0c","value":null},{"op":"add","path":"/metadata/annotations/a~1b~0c","value":"v"}]`,
			`{"metadata":{"annotations":{"c":"e"}}}`, `{"metadata":{"annotations":{"c":"e","a/b~c":"v"}}}`,
		},
		{
			"nothing at all", `{}`, "v",
			[]string{"a", "b", "c"},
			`[{"op":"test","path":"/a","value":null},{"op":"add","path":"/a","value":{"b":{"c":"v"}}}]`, `{}`, `{"a":{"b":{"c":"v"}}}`,
		},
		{
			"null is none", `{"a":null}`, "v",
			[]string{"a", "b"},
			`[{"op":"test","path":"/a","value":null},{"op":"add","path":"/a","value":{"b":"v"}}]`, `{"a":null}`, `{"a":{"b":"v"}}`,
		},
		{"away", `{"a":{"b":"v"}}`, nil, []string{"a", "b"}, `[{"op":"test","path":"/a/b","value":"v"},{"op":"remove","path":"/a/b"}]`, `{"a":{"b":"v"}}`, `{"a":{}}`},
		{"none as before", `{"a":{}}`, nil, []string{"a", "b"}, `[{"op":"test","path":"/a/b","value":null}]`, `{"a":{}}`, `{"a":{}}`},
		{"none at all as before", `{}`, nil, []string{"a", "b"}, `[{"op":"test","path":"/a","value":null}]`, `{}`, `{}`},
	} {
		have, meanwhile := decode(t, tt.have), decode(t, tt.meanwhile)
		var p Patch
		p.set(have, tt.value, tt.path...)
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		if tt.patch != "" && (json.Unmarshal(text, &got) != nil || json.Unmarshal([]byte(tt.patch), &want) != nil || !cmp.Equal(got, want)) {
			t.Errorf("%s: %s; want %s", tt.name, text, tt.patch)
		}
		if !p.Fits(have) {
			t.Errorf("%s: it does not fit what it was made from", tt.name)
		}
		fits := p.Fits(meanwhile)
		if refused := p.apply(meanwhile) != nil; refused != (tt.want == "") || fits == refused {
			t.Errorf("%s: refused: %v, fits: %v", tt.name, refused, fits)
		}
		if tt.want != "" {
			if d := cmp.Diff(decode(t, tt.want), meanwhile); d != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, d)
			}
		}
	}
	var p Patch
	p.drop("a", "b")
	if o := decode(t, `{"a":{"b":7}}`); !p.Fits(o) || p.apply(o) != nil || p.Fits(o) || p.apply(o) == nil {
		t.Error("what is dropped is there once")
	}
}
