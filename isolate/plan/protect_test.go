package plan

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// drawProtections draws page-aligned values so that each cgroup has at least the sum of its children.
func drawProtections(t *rapid.T, label string) map[string]int64 {
	out := map[string]int64{}
	for _, name := range slices.Backward(names) { // children first
		sum := int64(0)
		for below, n := range out {
			if path.Dir(below) == name {
				sum += n
			}
		}
		out[name] = sum + 4096*rapid.Int64Range(0, 8).Draw(t, label+name)
	}
	return out
}

func sumsHold(of map[string]int64) string {
	for _, up := range names {
		sum := int64(0)
		for name, n := range of {
			if path.Dir(name) == up {
				sum += n
			}
		}
		if of[up] < sum {
			return up
		}
	}
	return ""
}

func TestProtectionsHoldStepByStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old, want := drawProtections(t, "old"), drawProtections(t, "new")
		var desired []tick.Cgroup
		for _, name := range names {
			desired = append(desired, tick.Cgroup{Cgroup: name, MemoryMinBytes: new(want[name])})
		}
		settings, _ := Translate(machine(2, cpus.New(0)), desired)
		for i := range settings {
			settings[i].Observed = strconv.FormatInt(old[settings[i].Cgroup], 10)
		}
		writes, problems := Make(machine(2, cpus.New(0)), settings, nil)
		if len(problems) > 0 {
			t.Fatalf("problems: %v", problems)
		}
		now := maps.Clone(old)
		for i, w := range writes {
			now[w.Cgroup], _ = strconv.ParseInt(w.New, 10, 64)
			if up := sumsHold(now); up != "" {
				t.Fatalf("after write %d those below %s have more than it\nwrites %v", i, up, steps(writes))
			}
			for name, n := range now {
				if n < min(old[name], want[name]) {
					t.Fatalf("after write %d %s has %d, less than before (%d) and after (%d)", i, name, n, old[name], want[name])
				}
			}
		}
		if diff := cmp.Diff(want, now); diff != "" {
			t.Fatalf("at the end (-want +got):\n%s", diff)
		}
	})
}

func TestMakeProtections(t *testing.T) {
	n := tick.Ptr[int64]
	settings, _ := Translate(machine(2, cpus.New(0)), []tick.Cgroup{
		{Cgroup: "/k", MemoryMinBytes: n(8192)},
		{Cgroup: "/k/grows", MemoryMinBytes: n(8192), MemoryHighBytes: n(1 << 20)},
		{Cgroup: "/k/shrinks", MemoryMinBytes: n(0)},
		{Cgroup: "/other", MemoryMinBytes: n(4096), MemoryLowBytes: n(4096)},
	})
	present := map[string]string{"/k memory.min": "12288", "/k/grows memory.min": "4096", "/k/grows memory.high": "max", "/k/shrinks memory.min": "8192", "/other memory.min": "garbage", "/other memory.low": "max"}
	for i := range settings {
		settings[i].Observed = present[settings[i].Cgroup+" "+settings[i].Name]
	}
	writes, problems := Make(machine(2, cpus.New(0)), settings, nil)
	want := []string{
		"/k/shrinks memory.min: 8192 -> 0",
		"/k memory.min: 12288 -> 8192 needs [0]",
		"/other memory.low: max -> 4096",
		"/k/grows memory.high: max -> 1048576",
		"/k/grows memory.min: 4096 -> 8192",
	}
	if diff := cmp.Diff(want, steps(writes)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if len(problems) != 1 || problems[0].Cgroup != "/other" || problems[0].Key != "memoryMinBytes" {
		t.Errorf("problems %v, want that of /other's memory.min", problems)
	}
}
