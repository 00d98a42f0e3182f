package resctrl

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/cgroup"
	"polder/lib/resctrl"
	"polder/lib/tick"
)

// machine is a copy of a machine with resctrl. Its files are ordinary ones: they reject no value, a write adds a line where the
// kernel changes one, and a task can be in two groups. The kernel's own responses were not tested on hardware; kernel_test.go
// uses cgroups of version 1, whose tasks files behave alike.
type machine struct {
	t    *testing.T
	root string
	now  time.Time
	a    *Applier
}

const bootFile = "proc/sys/kernel/random/boot_id"

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, root: t.TempDir(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for name, text := range map[string]string{
		bootFile: "boot-1\n", "proc/cpuinfo": "vendor_id\t: GenuineIntel\n",
		"sys/fs/cgroup/cgroup.controllers":    "cpu memory\n",
		"sys/fs/cgroup/be/a/c/cgroup.threads": "101\n103\n", "sys/fs/cgroup/be/a/cgroup.threads": "", "sys/fs/cgroup/be/a/pause/cgroup.threads": "102\n",
		"sys/fs/cgroup/be/cgroup.threads": "", "sys/fs/cgroup/ls/cgroup.threads": "201\n",
		"info/last_cmd_status": "ok\n", "info/L3/cbm_mask": "fff\n", "info/L3/min_cbm_bits": "2\n", "info/L3/num_closids": "4\n",
		"info/MB/min_bandwidth": "10\n", "info/MB/bandwidth_gran": "10\n", "info/MB/num_closids": "4\n",
		"mon_groups/x": "", "mon_data/x": "", "tasks": "1\n", "schemata": "    MB:0=100;1=100\n    L3:0=fff;1=fff\n",
	} {
		if !strings.Contains(name, "sys/") && !strings.HasPrefix(name, "proc/") {
			name = filepath.Join(resctrl.Dir, name)
		}
		m.write(name, text)
	}
	m.a = m.applier(nil)
	return m
}

// applier simulates the kernel's part of creating and removing groups, on the copy.
func (m *machine) applier(j *Journal) *Applier {
	m.t.Helper()
	h, err := cgroup.Detect(m.root)
	if err != nil {
		m.t.Fatal(err)
	}
	a := New(Options{Root: m.root, Hierarchy: h, Journal: j, Contest: 2, Now: func() time.Time { return m.now }, Log: slog.New(slog.DiscardHandler)})
	a.kernel = kernel{
		move: moveTask,
		mkdir: func(at *os.Root, group string, mode fs.FileMode) error {
			err := at.Mkdir(group, mode)
			if err == nil {
				m.write(filepath.Join(resctrl.Dir, group, "schemata"), "    MB:0=100;1=100\n    L3:0=fff;1=fff\n")
				m.write(filepath.Join(resctrl.Dir, group, "tasks"), "")
			}
			return err
		},
		rmdir: (*os.Root).RemoveAll,
	}
	return a
}

func (m *machine) journal() *Journal {
	m.t.Helper()
	j, err := OpenJournal(filepath.Join(m.root, "journal"), m.root, func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) })
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = j.Close() })
	return j
}

func (m *machine) write(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// read returns a file of resctrl, its lines joined by blanks; "-" if it does not exist.
func (m *machine) read(name string) string {
	m.t.Helper()
	data, err := os.ReadFile(filepath.Join(m.root, resctrl.Dir, name))
	if err != nil {
		return "-"
	}
	return strings.Join(strings.Fields(string(data)), " ")
}

func (m *machine) apply(desired ...tick.ResctrlGroup) tick.Isolation {
	var out tick.Isolation
	m.a.Apply(&out, desired)
	return out
}

// summary returns the content of the tick, one line each.
func summary(i tick.Isolation) string {
	var b strings.Builder
	for _, w := range i.Writes {
		fmt.Fprintf(&b, "%s %s %q -> %q\n", w.Cgroup, w.Key, w.Old, w.New)
	}
	for _, e := range i.Errors {
		fmt.Fprintf(&b, "! %s %s: %s\n", e.Cgroup, e.Key, e.Error)
	}
	return b.String()
}

func beGroup() tick.ResctrlGroup {
	return tick.ResctrlGroup{Group: "BE", Schemata: []string{"L3:0=f;1=f", "MB:0=20;1=20"}, Cgroups: []string{"/be/a"}}
}

func TestCreatesGroup(t *testing.T) {
	m := newMachine(t)
	out := m.apply(beGroup())
	want := `resctrl/BE group "" -> "BE"
resctrl/BE schemata "L3:0=fff;1=fff" -> "L3:0=f;1=f"
resctrl/BE schemata "MB:0=100;1=100" -> "MB:0=20;1=20"
resctrl/BE tasks "" -> "101 102 103"
`
	if diff := cmp.Diff(want, summary(out)); diff != "" || out.Applied != 4 || out.Unchanged != 0 {
		t.Errorf("applied %d (-want +got):\n%s", out.Applied, diff)
	}
	if got := m.read("BE/tasks"); got != "101 102 103" {
		t.Errorf("tasks %s", got)
	}

	// Without a difference nothing is written. Only a new task is moved, and one that has ended is ignored.
	if out := m.apply(beGroup()); summary(out) != "" || out.Applied != 0 || out.Unchanged != 2 {
		t.Errorf("again: %+v", out)
	}
	m.write("sys/fs/cgroup/be/a/c/cgroup.threads", "103\n104\n")
	if out := m.apply(beGroup()); summary(out) != "" {
		t.Errorf("what comes from outside waits: %+v", out)
	}
	m.now = m.now.Add(readInterval)
	if out := m.apply(beGroup()); summary(out) != "resctrl/BE tasks \"\" -> \"104\"\n" || out.Applied != 1 {
		t.Errorf("a new task: %+v", out)
	}

	// One domain's part is reduced, and no other.
	g := beGroup()
	g.Schemata = []string{"L3:1=3f"}
	if out := m.apply(g); summary(out) != "resctrl/BE schemata \"L3:1=f\" -> \"L3:1=3f\"\n" {
		t.Errorf("one domain: %+v", out)
	}

	// A cgroup that is newly named, or named for another group, does not wait.
	g.Cgroups = append(g.Cgroups, "/ls")
	if out := m.apply(g); summary(out) != "resctrl/BE tasks \"\" -> \"201\"\n" {
		t.Errorf("a new cgroup: %+v", out)
	}
	if out := m.apply(tick.ResctrlGroup{Group: "LS", Cgroups: []string{"/ls"}}); summary(out) != "resctrl/LS group \"\" -> \"LS\"\nresctrl/LS tasks \"\" -> \"201\"\n" {
		t.Errorf("another group: %+v", out)
	}
	if out := m.apply(tick.ResctrlGroup{Group: "LS", Cgroups: []string{"/gone"}}); out.Missing != 1 {
		t.Errorf("gone: %+v", out)
	}
}

func TestDryRun(t *testing.T) {
	m := newMachine(t)
	m.a.DryRun = true
	want := `resctrl/BE group "" -> "BE"
resctrl/BE schemata "" -> "L3:0=f;1=f"
resctrl/BE schemata "" -> "MB:0=20;1=20"
resctrl/BE tasks "" -> "101 102 103"
`
	for range 2 {
		if out := m.apply(beGroup()); summary(out) != want || out.Applied != 0 {
			t.Errorf("%+v", out)
		}
	}
	if got := m.read("BE/tasks"); got != "-" {
		t.Errorf("a dry run made the group: %s", got)
	}
}

// Lines of the stream are untrusted: an invalid group name, line or cgroup is rejected, and the rest applies.
func TestRefuses(t *testing.T) {
	group := func(name string, lines ...string) tick.ResctrlGroup {
		return tick.ResctrlGroup{Group: name, Schemata: lines}
	}
	for name, c := range map[string]struct {
		desired []tick.ResctrlGroup
		want    string // in the summary; only "!" for nothing at all
	}{
		"no name":          {[]tick.ResctrlGroup{group("", "L3:0=f")}, "! resctrl : refused: \"\": a group's name has 1 to 64"},
		"long name":        {[]tick.ResctrlGroup{group(strings.Repeat("a", 65), "L3:0=f")}, "aaa\": a group's name has 1 to 64"},
		"parent":           {[]tick.ResctrlGroup{group("..", "L3:0=f")}, "does not begin with a dot"},
		"path":             {[]tick.ResctrlGroup{group("a/b", "L3:0=f")}, `"a/b": a group's name has letters`},
		"newline":          {[]tick.ResctrlGroup{group("a\nb", "L3:0=f")}, "a group's name has letters"},
		"info":             {[]tick.ResctrlGroup{group("info", "L3:0=f")}, `"info" is a directory of the kernel`},
		"mon_groups":       {[]tick.ResctrlGroup{group("mon_groups", "L3:0=f")}, "is a directory of the kernel"},
		"mon_data":         {[]tick.ResctrlGroup{group("mon_data", "L3:0=f")}, "is a directory of the kernel"},
		"a file":           {[]tick.ResctrlGroup{group("tasks", "L3:0=f")}, "tasks is not a directory"},
		"twice":            {[]tick.ResctrlGroup{group("B", "L3:0=f"), group("B", "L3:0=3")}, "! resctrl/B : refused: the group is named twice"},
		"no line":          {[]tick.ResctrlGroup{group("B", "L3:0=f\nMB:0=10")}, "! resctrl/B schemata: refused: "},
		"line twice":       {[]tick.ResctrlGroup{group("B", "L3:0=f", "L3:1=f")}, "L3 is named twice"},
		"too wide":         {[]tick.ResctrlGroup{group("B", "L3:0=ffff")}, "! resctrl/B schemata: refused: L3:0=ffff: domain 0: ffff is not within the machine's mask fff"},
		"too narrow":       {[]tick.ResctrlGroup{group("B", "L3:0=1")}, "fewer ways than the minimum of 2"},
		"a hole":           {[]tick.ResctrlGroup{group("B", "L3:0=505")}, "not one block"},
		"no domain":        {[]tick.ResctrlGroup{group("B", "L3:7=f")}, "no domain 7"},
		"bandwidth":        {[]tick.ResctrlGroup{group("B", "MB:0=5")}, "5 is not from 10 to 100"},
		"code":             {[]tick.ResctrlGroup{group("B", "L3CODE:0=f")}, "not divided for code and data"},
		"if it exists":     {[]tick.ResctrlGroup{{Group: "B", Schemata: []string{"L3:0=f"}, Cgroups: []string{"/be"}, IfExists: true}}, "!"},
		"every task":       {[]tick.ResctrlGroup{{Group: "B", Cgroups: []string{"/"}}}, "! resctrl/B tasks: refused: the root cgroup contains the whole machine"},
		"cgroup elsewhere": {[]tick.ResctrlGroup{{Group: "B", Cgroups: []string{"/be/../.."}}}, "not a cgroup's path"},
		"cgroup of another": {
			[]tick.ResctrlGroup{{Group: "B", Cgroups: []string{"/be/a/c", "/ls"}}, {Group: "C", Cgroups: []string{"/be", "/ls"}}},
			"! resctrl/B tasks: refused: the advice puts /be into the group C\n! resctrl/C tasks: refused: the advice puts /ls into the group B\n",
		},
		"cgroup gone": {[]tick.ResctrlGroup{{Group: "B", Cgroups: []string{"/gone"}}}, "resctrl/B group"},
	} {
		m := newMachine(t)
		out := m.apply(c.desired...)
		got := summary(out)
		if c.want == "!" && got != "" || c.want != "!" && !strings.Contains(got, c.want) {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
		if strings.Contains(c.want, "schemata: refused") && name != "line twice" && m.read("B/tasks") != "-" {
			t.Errorf("%s: the group was made, though it could not hold a line", name)
		}
		for _, file := range []string{"schemata", "tasks"} { // the root's own are never written
			if got, want := m.read(file), map[string]string{"schemata": "MB:0=100;1=100 L3:0=fff;1=fff", "tasks": "1"}[file]; got != want {
				t.Errorf("%s: the root's %s is %s", name, file, got)
			}
		}
		if name == "cgroup gone" && out.Missing != 1 {
			t.Errorf("%s: missing %d", name, out.Missing)
		}
	}

	// One valid line is enough for the group, and the other is reported.
	m := newMachine(t)
	if got := summary(m.apply(group("B", "L3:0=ffff", "MB:0=15"))); !strings.Contains(got, `"MB:0=100" -> "MB:0=20"`) || strings.Count(got, "! resctrl/B schemata: refused") != 1 {
		t.Error(got)
	}
	// A value that the kernel rounds up counts as desired.
	if out := m.apply(group("B", "MB:0=15")); summary(out) != "" || out.Unchanged != 1 {
		t.Errorf("%+v", out)
	}
}

// The machine has a limited number of groups; those of other programs count.
func TestAllGroupsInUse(t *testing.T) {
	m := newMachine(t)
	for _, other := range []string{"a", "b", "c"} {
		m.write(filepath.Join(resctrl.Dir, other, "tasks"), "")
	}
	if got := summary(m.apply(beGroup())); !strings.Contains(got, "! resctrl/BE group: not created: the machine supports 4 groups, and has the root group and a, b, c") || m.read("BE/tasks") != "-" {
		t.Error(got)
	}
	g := beGroup()
	g.Group = "c" // an existing one is changed
	g.Schemata = nil
	if got := summary(m.apply(g)); got != "resctrl/c tasks \"\" -> \"101 102 103\"\n" {
		t.Error(got)
	}
}

// A line that another program keeps changing is left to that program after --contest rounds, and retried after a long quiet time.
func TestContest(t *testing.T) {
	m := newMachine(t)
	g := beGroup()
	g.Schemata = g.Schemata[:1]
	m.apply(g)
	for round := 1; round <= 3; round++ {
		m.write(filepath.Join(resctrl.Dir, "BE/schemata"), fmt.Sprintf("L3:0=%d0;1=f\n", round*3))
		got := summary(m.apply(g))
		if !strings.Contains(got, "changed externally from L3:0=f;1=f to L3:0=") || strings.Contains(got, "left to the other writer: changed externally 3 times (--contest 2)") != (round == 3) {
			t.Errorf("round %d: %s", round, got)
		}
	}
	rounds := 0
	for ; m.read("BE/schemata") == "L3:0=90;1=f" && rounds < 200; rounds++ {
		m.apply(g)
	}
	if rounds != 100 {
		t.Errorf("tried again after %d rounds; want 100", rounds)
	}
}

// Tasks that another PID namespace hides have no ID: that is reported, not ignored.
func TestHiddenTasks(t *testing.T) {
	m := newMachine(t)
	m.write("sys/fs/cgroup/be/a/c/cgroup.threads", "0\n0\n")
	const want = "tasks of 1 cgroup are in another PID namespace: isolate must run in the host's"
	if got := summary(m.apply(beGroup())); !strings.Contains(got, want) || m.read("BE/tasks") != "102" {
		t.Error(got)
	}
}

// On cgroup version 1 their list is empty. The cgroup is read again with the next tick, until all its tasks are in the group.
func TestUnlistedTasks(t *testing.T) {
	m := newMachine(t)
	for name, text := range map[string]string{
		"cpuacct/cgroup.procs": "", "cpuacct/be/a/tasks": "", "cpuacct/be/a/c/tasks": "",
		"pids/cgroup.procs": "", "pids/be/a/pids.current": "2\n", "pids/be/a/c/pids.current": "2\n",
	} {
		m.write(filepath.Join("sys/fs/cgroup", name), text)
	}
	if err := os.MkdirAll(filepath.Join(m.root, "proc/self/ns"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("pid:[4026532178]", filepath.Join(m.root, "proc/self/ns/pid")); err != nil {
		t.Fatal(err)
	}
	m.a = m.applier(nil)
	for range 2 {
		if got := summary(m.apply(beGroup())); !strings.Contains(got, "tasks of 1 cgroup are in another PID namespace") {
			t.Errorf("the tick has no error: %s", got)
		}
	}
	m.write("sys/fs/cgroup/pids/be/a/pids.current", "0\n")
	m.write("sys/fs/cgroup/pids/be/a/c/pids.current", "0\n")
	if got := summary(m.apply(beGroup())); got != "" {
		t.Errorf("an empty cgroup: %s", got)
	}
}

// BenchmarkSteady measures a tick without changes: 250 pods of 20 threads.
func BenchmarkSteady(b *testing.B) {
	m := &machine{root: b.TempDir()}
	h, g := m.addTasks(b)
	now := time.Now()
	a := New(Options{Root: m.root, Hierarchy: h, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Second)
		var out tick.Isolation
		if a.Apply(&out, g); out.Applied > 0 || len(out.Errors) > 0 || out.Unchanged != 1 {
			b.Fatal(summary(out))
		}
	}
}

// addTasks creates a machine with many pods, all of whose tasks are in the right group.
func (m *machine) addTasks(b *testing.B) (*cgroup.Hierarchy, []tick.ResctrlGroup) {
	write := func(name, text string) {
		path := filepath.Join(m.root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	g := tick.ResctrlGroup{Group: "BE", Schemata: []string{"L3:0=f"}}
	var tasks strings.Builder
	write("sys/fs/cgroup/cgroup.controllers", "cpu\n")
	for pod := range 250 {
		var tids strings.Builder
		for thread := range 20 {
			fmt.Fprintf(&tids, "%d\n", 1000+pod*20+thread)
		}
		write(fmt.Sprintf("sys/fs/cgroup/pods/%d/cgroup.threads", pod), "")
		write(fmt.Sprintf("sys/fs/cgroup/pods/%d/c/cgroup.threads", pod), tids.String())
		tasks.WriteString(tids.String())
		g.Cgroups = append(g.Cgroups, fmt.Sprintf("/pods/%d", pod))
	}
	write(resctrl.Dir+"/info/last_cmd_status", "ok\n")
	write(resctrl.Dir+"/BE/schemata", "L3:0=f\n")
	write(resctrl.Dir+"/BE/tasks", tasks.String())
	h, err := cgroup.Detect(m.root)
	if err != nil {
		b.Fatal(err)
	}
	return h, []tick.ResctrlGroup{g}
}
