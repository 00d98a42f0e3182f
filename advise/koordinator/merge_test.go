package koordinator

import (
	"reflect"
	"testing"

	"polder/lib/tick"
)

// TestMergeSeesEveryField fails when the contract gets a key that merge drops: of two entries of a cgroup, the result has the keys of both.
func TestMergeSeesEveryField(t *testing.T) {
	kind := reflect.TypeFor[tick.Cgroup]()
	for i := range kind.NumField() {
		field := kind.Field(i)
		if field.Name == "Cgroup" {
			continue
		}
		second := tick.Cgroup{Cgroup: "/a"}
		switch v := reflect.ValueOf(&second).Elem().Field(i); v.Kind() {
		case reflect.String:
			v.SetString("0-1")
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		default:
			t.Fatalf("%s is a %s: extend the test", field.Name, v.Kind())
		}
		merged := merge([]tick.Cgroup{{Cgroup: "/a"}, second}, new(tick.Advice))
		if len(merged) != 1 || reflect.ValueOf(merged[0]).Field(i).IsZero() {
			t.Errorf("merge drops %s: %+v", field.Name, merged)
		}
	}
}
