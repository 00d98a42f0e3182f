package settings

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"

	"polder/evict/dynamic"
	"polder/lib/customconfig"
	"polder/lib/evictconfig"
	"polder/lib/tick"
)

// Every field of both kinds sets an existing setting, with a value of its type, and changes it.
func TestEveryFieldSetsASetting(t *testing.T) {
	every, err := os.ReadFile("testdata/every.json")
	if err != nil {
		t.Fatal(err)
	}
	base := Default()
	base.From = map[string]string{}
	for _, k := range base.Rows() {
		base.From[k.Name] = FromDefault
	}
	for _, kind := range customconfig.Kinds {
		var top struct {
			Katalyst map[string]tick.Raw `json:"katalyst"`
		}
		if err := tick.Unmarshal(every, &top); err != nil {
			t.Fatal(err)
		}
		objects, err := dynamic.Objects(tick.Raw(fmt.Sprintf(`{"katalyst":{%q:%s}}`, kind.Key, top.Katalyst[kind.Key])), nil)
		if err != nil || len(objects) != 1 || objects[0].Err != nil || len(objects[0].Unused) > 0 {
			t.Fatalf("%s: %+v, %v", kind.Name, objects, err)
		}
		merged, err := base.withObjects(objects)
		if err != nil {
			t.Fatalf("%s: %v", kind.Name, err)
		}
		for _, f := range customconfig.Fields(kind) {
			for _, s := range f.Settings {
				setting := s.Name
				i := slices.IndexFunc(base.Rows(), func(row evictconfig.Row) bool { return row.Name == setting })
				show := func(s *Settings) string { return s.Rows()[i].Show() }
				if show(merged) == show(&base) || merged.From[setting] != objects[0].From() {
					t.Errorf("%s: %s is %s, from %s; want another value", f.Path, setting, show(merged), merged.From[setting])
				}
				// A flag takes precedence.
				given := base
				given.From = map[string]string{setting: "flag"}
				for _, k := range base.Rows() {
					if k.Name != setting {
						given.From[k.Name] = FromDefault
					}
				}
				// With the flag's value the others may become inconsistent: load-upper-bound-ratio below the object's lower one.
				if merged, err := given.withObjects(objects); err == nil && show(merged) != show(&base) {
					t.Errorf("%s: %s is %s though it is given as a flag", f.Path, setting, show(merged))
				}
			}
		}
	}
	if again := Default(); !reflect.DeepEqual(again.Settings, base.Settings) {
		t.Error("the default settings were changed")
	}
}
