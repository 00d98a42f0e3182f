package tick

import (
	"fmt"
	"testing"
	"time"
)

// One node more than the maximum replaces the one with the oldest time; null in a state file is dropped first.
func TestOldestNodeIsDropped(t *testing.T) {
	begin := time.Unix(1_767_225_600, 0)
	itself := func(t *time.Time) time.Time { return *t }
	full := func() map[string]*time.Time {
		nodes := make(map[string]*time.Time, MaxNodes)
		for i := range MaxNodes {
			at := begin.Add(time.Duration(max(i, 2)) * time.Second)
			nodes[fmt.Sprintf("%05d", i)] = &at
		}
		return nodes
	}
	for _, tt := range []struct {
		name   string
		change func(map[string]*time.Time)
		want   string // the node that is dropped
	}{
		{"there is room", func(nodes map[string]*time.Time) { delete(nodes, "00007") }, "00007"},
		{"the first by name of three", func(map[string]*time.Time) {}, "00000"},
		{"the oldest", func(nodes map[string]*time.Time) { nodes["00009"] = &begin }, "00009"},
		{"a null", func(nodes map[string]*time.Time) { nodes["00009"], nodes["00011"] = &begin, nil }, "00011"},
	} {
		nodes := full()
		tt.change(nodes)
		DropOldest(nodes, itself)
		if _, found := nodes[tt.want]; found || len(nodes) != MaxNodes-1 {
			t.Errorf("%s: %s is there: %t, of %d nodes", tt.name, tt.want, found, len(nodes))
		}
	}
}
