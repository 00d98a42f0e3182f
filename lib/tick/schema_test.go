package tick_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/lib/tick/ticktest"
)

type schemaNode struct {
	Ref         string                 `json:"$ref"`
	Description string                 `json:"description"`
	Properties  map[string]*schemaNode `json:"properties"`
	Items       *schemaNode            `json:"items"`
	Defs        map[string]*schemaNode `json:"$defs"`
}

// The schema and the Go types name the same fields, and every one is described.
func TestSchemaNamesTheTypesFields(t *testing.T) {
	var root schemaNode
	if err := json.Unmarshal(tick.Schema, &root); err != nil {
		t.Fatal(err)
	}
	resolve := func(n *schemaNode) *schemaNode {
		for n != nil && n.Ref != "" {
			n = root.Defs[strings.TrimPrefix(n.Ref, "#/$defs/")]
		}
		return n
	}
	var walk func(path string, typ reflect.Type, n *schemaNode)
	walk = func(path string, typ reflect.Type, n *schemaNode) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice && typ != reflect.TypeFor[tick.Raw]() {
			if typ.Kind() == reflect.Slice {
				if n = resolve(n.Items); n == nil {
					t.Errorf("%s: no items in the schema", path)
					return
				}
			}
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]() {
			return
		}
		names := map[string]bool{}
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names[name] = true
			property := n.Properties[name]
			if property == nil {
				t.Errorf("%s.%s is not in the schema", path, name)
				continue
			}
			if property.Description == "" && resolve(property).Description == "" {
				t.Errorf("%s.%s has no description", path, name)
			}
			walk(path+"."+name, f.Type, resolve(property))
		}
		for name := range n.Properties {
			if !names[name] {
				t.Errorf("%s.%s is in the schema and not in the types", path, name)
			}
		}
	}
	walk("tick", reflect.TypeFor[tick.Tick](), &root)
}

func TestSchemaRefuses(t *testing.T) {
	const good = `{"v":1,"node":"n","time":"2026-01-01T00:00:00Z"`
	const advice = `"policy":"p","cgroups":[{"cgroup":"/a","cpusetCPUs":"0-3,7"}],"guardSteps":["CPUs","quota"]`
	if err := ticktest.Validate([]byte(good + `,"mine":[1],"advice":{` + advice + `}}`)); err != nil {
		t.Errorf("a good tick: %v", err)
	}
	for _, bad := range []string{
		`{"node":"n","time":"2026-01-01T00:00:00Z"}`,
		good + `,"advice":{"cgroups":[{"cgroup":"/a","cpusetCPUs":"0-"}]}}`,
		good + `,"advice":{"cgroups":[{"cgroup":"a"}]}}`,
		good + `,"advice":{"reclaimed":{"milliCPU":-1}}}`,
		good + `,"advice":{"policy":"p","guardSteps":["network"]}}`,
		good + `,"sample":{"pods":[{"uid":"u","name":"n","qos":"gold"}]}}`,
	} {
		if ticktest.Validate([]byte(bad)) == nil {
			t.Errorf("%s: want an error", bad)
		}
	}
}
