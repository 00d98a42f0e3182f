package plan

import (
	stdcmp "cmp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// A cgroup that the advice names with the list that it has already keeps that list as its own: it is recorded when its parent's becomes
// equal to it, and only once.
func TestNamedOwnListIsRecorded(t *testing.T) {
	all := cpus.New(0, 1, 2, 3)
	for _, c := range []struct {
		name              string
		observed, desired string // the parent's list
		parentOriginal    string // if it is recorded
		original          string // of the child's list, if it is recorded
		want              []string
	}{
		{
			"its parent's becomes equal", "0-3", "2-3", "", "",
			[]string{"/b/x cpuset.cpus: 2-3 -> 2-3 (implied)", "/b cpuset.cpus: 0-3 -> 2-3 needs [0]"},
		},
		{"it is recorded", "0-3", "2-3", "", "2-3", []string{"/b cpuset.cpus: 0-3 -> 2-3"}},
		{"its parent's stays larger", "0-3", "1-3", "", "", []string{"/b cpuset.cpus: 0-3 -> 1-3"}},
		{"its parent's was equal", "2-3", "0-3", "", "", []string{"/b cpuset.cpus: 2-3 -> 0-3"}},
		{
			"it was filled from a squeezed parent's", "2-3", "0-3", "0-3", "",
			[]string{"/b/x cpuset.cpus: 2-3 -> 2-3 (implied)", "/b cpuset.cpus: 2-3 -> 0-3"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			settings, _ := Translate(machine(1, all), []tick.Cgroup{
				{Cgroup: "/b", CPUSetCPUs: c.desired}, {Cgroup: "/b/x", CPUSetCPUs: "2-3"},
			})
			settings[0].Observed, settings[0].Original = c.observed, c.parentOriginal
			settings[1].Observed, settings[1].Original = "2-3", c.original
			writes, problems := Make(machine(1, all), settings, nil)
			if diff := cmp.Diff(c.want, steps(writes)); diff != "" || len(problems) > 0 {
				t.Fatalf("problems %v, steps (-want +got):\n%s", problems, diff)
			}
			for _, w := range writes {
				if w.Cgroup == "/b/x" && stdcmp.Or(w.Original, w.Old) != stdcmp.Or(c.parentOriginal, "2-3") {
					t.Errorf("%+v: the original list is %q", w, w.Original)
				}
				if w.RecordsOnly() != (w.Old == w.New) {
					t.Errorf("%+v: RecordsOnly is %v", w, w.RecordsOnly())
				}
			}
		})
	}
}
