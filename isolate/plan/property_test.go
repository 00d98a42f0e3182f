package plan

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// names form a tree of services and batch jobs.
var names = []string{"/batch", "/batch/p1", "/batch/p1/c", "/batch/p2", "/batch/p2/c", "/serve", "/serve/p1", "/serve/p1/c", "/serve/p2"}

func drawSubset(t *rapid.T, of cpus.Set, label string) cpus.Set {
	list := of.List()
	return cpus.New(rapid.SliceOfNDistinct(rapid.SampledFrom(list), 1, len(list), rapid.ID).Draw(t, label)...)
}

func drawTree(t *rapid.T, all cpus.Set, label string) map[string]cpus.Set {
	sets := map[string]cpus.Set{}
	for _, name := range names {
		up := all
		if parent := path.Dir(name); parent != "/" {
			up = sets[parent]
		}
		sets[name] = drawSubset(t, up, label+name)
		if rapid.IntRange(0, 3).Draw(t, "like"+name) == 0 {
			sets[name] = up
		}
	}
	return sets
}

func machine(version int, all cpus.Set) Machine {
	return Machine{Versions: map[string]int{"cpuset": version, "cpu": version, "memory": version, "io": version}, CPUs: all, Mems: cpus.New(0), PageBytes: 4096}
}

func desiredSets(sets map[string]cpus.Set) []tick.Cgroup {
	var out []tick.Cgroup
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		out = append(out, tick.Cgroup{Cgroup: name, CPUSetCPUs: sets[name].String()})
	}
	return out
}

func TestSetsAreAcceptedStepByStep(t *testing.T) {
	for _, version := range []int{1, 2} {
		rapid.Check(t, func(t *rapid.T) {
			all := cpus.New(0, 1, 2, 3, 4, 5)
			old := drawTree(t, all, "old")
			desired := drawTree(t, all, "new")
			for _, name := range names { // a subtree may be named down to any depth
				if rapid.IntRange(0, 2).Draw(t, "unnamed"+name) == 0 && !strings.HasSuffix(name, "p1") && path.Dir(name) != "/" {
					for _, below := range names {
						if strings.HasPrefix(below, name) {
							delete(desired, below)
						}
					}
				}
			}
			k := &kernel{version: version, all: all, sets: maps.Clone(old)}
			settings, problems := Translate(machine(version, all), desiredSets(desired))
			if len(problems) > 0 {
				t.Fatalf("problems: %v", problems)
			}
			k.present(settings)
			writes, problems := Make(machine(version, all), settings, k.around(settings))
			if len(problems) > 0 {
				t.Fatalf("problems: %v", problems)
			}
			checkSteps(t, k, old, desired, writes)
		})
	}
}

func checkSteps(t *rapid.T, k *kernel, old, desired map[string]cpus.Set, writes []Write) {
	final := &kernel{version: k.version, all: k.all, sets: maps.Clone(old)}
	for _, w := range writes {
		set, _ := cpus.Parse(w.New)
		final.sets[w.Cgroup] = set
	}
	before := &kernel{version: k.version, all: k.all, sets: maps.Clone(old)}
	for i, w := range writes {
		if got := k.sets[w.Cgroup].String(); got != w.Old {
			t.Fatalf("write %d of %s has that %s was there, not %s", i, w.Cgroup, w.Old, got)
		}
		if err := k.write(w); err != nil {
			t.Fatalf("write %d: %s of %s refused: %v\nwrites %+v", i, w.New, w.Cgroup, err, writes)
		}
		for _, name := range names {
			allowed := before.inForce(name).Union(final.inForce(name))
			for _, below := range names { // a parent must contain the CPUs that its children have not released yet
				if strings.HasPrefix(below, name+"/") {
					allowed = allowed.Union(before.inForce(below))
				}
			}
			if _, named := desired[name]; k.version == 2 && !named { // a list that the plan leaves to the kernel equals its parent's
				allowed = allowed.Union(k.inForce(path.Dir(name)))
			}
			if now := k.inForce(name); !now.IsSubsetOf(allowed) {
				t.Fatalf("write %d: %s has %s, more than it had (%s) or gets (%s)\nwrites %+v", i, name, now, before.inForce(name), final.inForce(name), writes)
			}
		}
		checkOverlap(t, i, k, before, final, writes)
	}
	for name, want := range desired {
		if got := k.sets[name]; !got.Equals(want) {
			t.Fatalf("%s is %s at the end, want %s\nwrites %+v", name, got, want, writes)
		}
	}
}

// checkOverlap applies if every cgroup keeps a CPU: a cgroup that must change all of its CPUs cannot first shrink to none.
func checkOverlap(t *rapid.T, i int, k, before, final *kernel, writes []Write) {
	for _, name := range names {
		if before.inForce(name).Intersection(final.inForce(name)).IsEmpty() {
			return
		}
	}
	now := k.inForce("/batch").Intersection(k.inForce("/serve"))
	was := before.inForce("/batch").Intersection(before.inForce("/serve"))
	will := final.inForce("/batch").Intersection(final.inForce("/serve"))
	if !now.IsSubsetOf(was.Union(will)) {
		t.Fatalf("write %d: batch and serve share %s, before %s and after %s\nwrites %+v", i, now, was, will, writes)
	}
}

func TestQuotasAreAcceptedStepByStep(t *testing.T) {
	for _, version := range []int{1, 2} {
		rapid.Check(t, func(t *rapid.T) {
			draw := func(label string) map[string]int64 {
				quota := map[string]int64{}
				for _, name := range names {
					quota[name] = rapid.OneOf(rapid.Just(int64(-1)), rapid.Int64Range(10, 4000)).Draw(t, label+name)
					for up := path.Dir(name); up != "/"; up = path.Dir(up) {
						if quota[up] >= 0 && quota[name] > quota[up] {
							quota[name] = quota[up]
						}
					}
				}
				return quota
			}
			k := &kernel{version: version, quota: map[string]string{}, period: "100000"}
			old, asked := draw("old"), draw("new")
			for name, milli := range old {
				k.quota[name], _ = quotaText(milli, k.period, "-1")
			}
			var desired []tick.Cgroup
			for _, name := range names {
				milli := asked[name]
				if rapid.Bool().Draw(t, "named"+name) {
					desired = append(desired, tick.Cgroup{Cgroup: name, CPUMaxMilliCPU: &milli})
				}
			}
			settings, _ := Translate(machine(version, cpus.New(0)), desired)
			k.present(settings)
			writes, problems := Make(machine(version, cpus.New(0)), settings, k.around(settings))
			limits := []map[string]share{k.effective()}
			for i, w := range writes {
				if err := k.write(w); err != nil {
					t.Fatalf("write %d: %s of %s refused: %v\nwrites %+v", i, w.New, w.Cgroup, err, writes)
				}
				limits = append(limits, k.effective())
			}
			for i, now := range limits {
				for _, name := range names {
					if before, after := limits[0][name], limits[len(limits)-1][name]; now[name] > max(before, after) {
						t.Fatalf("after %d writes %s may use %d; want no more than before (%d) or after (%d)\nwrites %+v",
							i, name, now[name], before, after, writes)
					}
				}
			}
			k.present(settings)
			for i := range settings {
				if s := &settings[i]; !s.IsAsDesired() && len(problems) == 0 {
					want, _ := s.Desired()
					t.Fatalf("%s is %s, want %s\nwrites %+v", s.Cgroup, s.Observed, want, writes)
				}
			}
		})
	}
}

// effective returns what each cgroup may use: the smallest quota of its own and those above.
func (k *kernel) effective() map[string]share {
	out := map[string]share{}
	for _, name := range names {
		out[name] = unlimitedShare
		for up := name; up != "/"; up = path.Dir(up) {
			if quota, err := shareOf(quotaOf(k.quota[up]), k.period); err == nil {
				out[name] = min(out[name], quota)
			}
		}
	}
	return out
}
