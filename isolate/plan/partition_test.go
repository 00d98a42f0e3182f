package plan

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/cpus"
	"polder/lib/tick"
)

func set(t *testing.T, list string) cpus.Set {
	t.Helper()
	s, err := cpus.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Neither advice nor a restore assigns a CPU of another cgroup's partition.
func TestPartitionCPUsAreRemoved(t *testing.T) {
	m := Machine{
		Versions: map[string]int{"cpuset": 2}, CPUs: set(t, "0-7"), Mems: set(t, "0"),
		Partitions: []Partition{{"/own", set(t, "2-3")}, {"/tier/pod", set(t, "6")}},
	}
	const (
		left = "CPUs %s left out: they belong to CPU partitions of other cgroups (such as %s)"
		none = "not written: all of CPUs %s belong to CPU partitions of other cgroups (such as %s)"
	)
	for _, c := range []struct{ cgroup, advised, want, problem string }{
		{"/batch", "0-1", "0-1", ""},
		{"/batch", "1-4", "1,4", fmt.Sprintf(left, "2-3", "/own")},
		{"/batch", "2", "", fmt.Sprintf(none, "2", "/own")},
		{"/batch", "2-6", "4-5", fmt.Sprintf(left, "2-3,6", "/own")},
		{"/ownx", "2,5", "5", fmt.Sprintf(left, "2", "/own")},
		{"/own/a", "2-3", "2-3", ""},
		{"/own", "2-3", "2-3", ""},
		{"/tier", "4-6", "4-6", ""}, // the kernel takes CPU 6 from the effective list
		{"/tier/other", "4-6", "4-5", fmt.Sprintf(left, "6", "/tier/pod")},
		{"/tier/pod/c", "6", "6", ""},
	} {
		settings, problems := Translate(m, []tick.Cgroup{{Cgroup: c.cgroup, CPUSetCPUs: c.advised}})
		got := ""
		if len(settings) == 1 {
			got, _ = settings[0].Desired()
		}
		if (len(settings) > 0) != (c.want != "") { // an empty list would mean the parent's CPUs
			t.Errorf("%s of %s: %d settings; want one if a CPU is left", c.advised, c.cgroup, len(settings))
		}
		var want []tick.IsolationError
		if c.problem != "" {
			want = []tick.IsolationError{{Cgroup: c.cgroup, Key: "cpusetCPUs", Error: c.problem}}
		}
		if diff := cmp.Diff(want, problems); got != c.want || diff != "" {
			t.Errorf("%s of %s: %q, want %q; problems (-want +got):\n%s", c.advised, c.cgroup, got, c.want, diff)
		}
		first, err := m.RestoreText(File{Controller: "cpuset", Cgroup: c.cgroup, Name: fileCPUs}, c.advised, "0")
		if first != c.want || (err != nil) != (c.want == "") {
			t.Errorf("the restore of %s in %s writes %q, %v; want %q", c.advised, c.cgroup, first, err, c.want)
		}
	}
	if first, err := m.RestoreText(File{Controller: "cpuset", Cgroup: "/batch", Name: fileCPUs}, "", "0"); first != "" || err != nil {
		t.Errorf("an empty list is restored as %q, %v", first, err)
	}
	if first, err := m.RestoreText(File{Controller: "memory", Cgroup: "/batch", Name: "memory.max"}, "max", "1"); first != "max" || err != nil {
		t.Errorf("another file is restored as %q, %v", first, err)
	}
	m.Versions["cpuset"] = 1 // which has no partitions
	if settings, problems := Translate(m, []tick.Cgroup{{Cgroup: "/batch", CPUSetCPUs: "1-4"}}); len(settings) != 1 || len(problems) != 0 {
		t.Errorf("on version 1: %v, %v", settings, problems)
	}
}
