package cpus

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"
)

// Lists are parsed as in Kubernetes, however often and in whatever order they name an ID.
func TestParseIsKubernetes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var parts []string
		for range rapid.IntRange(1, 20).Draw(t, "parts") {
			first := rapid.IntRange(0, 60).Draw(t, "first")
			switch last := first + rapid.IntRange(-1, 9).Draw(t, "width"); last {
			case first:
				parts = append(parts, fmt.Sprint(first))
			default:
				parts = append(parts, fmt.Sprintf("%d-%d", first, last))
			}
		}
		list := strings.Join(parts, ",")
		want, refused := cpuset.Parse(list)
		got, err := Parse(list)
		if (err != nil) != (refused != nil) || err == nil && !got.Equals(want) {
			t.Fatalf("%s: %s, %v; want %s, %v", list, got, err, want, refused)
		}
		within := New(rapid.SliceOfN(rapid.IntRange(0, 80), 0, 40).Draw(t, "within")...)
		part, err := ParseWithin(list, within)
		if (err != nil) != (refused != nil) || err == nil && !part.Equals(want.Intersection(within)) {
			t.Fatalf("%s within %s: %s, %v; want %s", list, within, part, err, want.Intersection(within))
		}
	})
}

// The cost of a tenant's list depends on its text: 4 KiB of "0-8191" named 560 times took 41 ms. The reference is the cost of
// naming it once, on the same machine at the same time.
func TestRepeatedCPUsCostNoMoreThanText(t *testing.T) {
	within := New()
	for id := range 48 {
		within = within.Union(New(id))
	}
	least := func(list string) time.Duration {
		best := time.Hour
		for range 20 {
			start := time.Now()
			if got, err := ParseWithin(list, within); err != nil || !got.Equals(within) {
				t.Fatalf("%v %v", got, err)
			}
			best = min(best, time.Since(start))
		}
		return best
	}
	bomb := strings.TrimSuffix(strings.Repeat("0-8191,", 580), ",")
	plain := strings.TrimSuffix(strings.Repeat("0-47,", 810), ",")
	if x, y := least(bomb), least(plain); x > 20*y+time.Millisecond {
		t.Errorf("%d bytes that name 8192 CPUs 580 times take %v, as many that name 48 CPUs %v", len(bomb), x, y)
	}
	if parsed := testing.AllocsPerRun(10, func() { _, _ = ParseWithin(bomb, within) }); parsed > 100 {
		t.Errorf("%g allocations", parsed)
	}
}
