package network

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"polder/isolate/network/plan"
	"polder/lib/cgroup"
	"polder/lib/kernfile"
	"polder/lib/tick"
	"polder/tests/need"
)

// namespace moves the test into its own network namespace, with the uplink eth0. Its thread ends with the test.
func namespace(t *testing.T) {
	t.Helper()
	need.Root(t)
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	addLink(t, "eth0")
}

func addLink(t *testing.T, name string) netlink.Link {
	t.Helper()
	at := netlink.NewLinkAttrs()
	at.Name = name
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: at, PeerName: name + "p"}); err != nil {
		t.Fatal(err)
	}
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// setRoot sets a link's root qdisc, as another program does.
func setRoot(t *testing.T, name string) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.QdiscReplace(netlink.NewHtb(netlink.QdiscAttrs{
			LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
		}))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// machine is an Applier on the machine's own kernel, with the test's clock.
type machine struct {
	*Applier
	t    *testing.T
	time time.Time
	path string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	namespace(t)
	m := &machine{t: t, time: time.Now(), path: filepath.Join(t.TempDir(), "journal")}
	m.restart()
	return m
}

// restart is another isolate with the same journal.
func (m *machine) restart() {
	m.t.Helper()
	if m.Applier != nil {
		m.Journal.Close()
	}
	now := func() time.Time { return m.time }
	j, err := OpenJournal(m.path, "/", now)
	if err != nil {
		m.t.Fatal(err)
	}
	h, err := cgroup.Detect("/")
	if err != nil {
		m.t.Fatal(err)
	}
	m.Applier = New(Options{Hierarchy: h, Journal: j, Contest: 2, Now: now, Log: slog.New(slog.DiscardHandler)})
}

func (m *machine) apply(desired *tick.Network) tick.NetworkIsolation {
	var out tick.NetworkIsolation
	m.Apply(&out, desired)
	return out
}

// desired is the advice for one link.
func desired(link string, cgroups ...string) *tick.Network {
	return &tick.Network{Links: []tick.NetworkLink{{Link: link, RateBitsPerSecond: 100e6, Classes: []tick.NetworkClass{
		{Class: "services", RateBitsPerSecond: 90e6, CeilingBitsPerSecond: 100e6, Default: true},
		{Class: "batch", RateBitsPerSecond: 10e6, CeilingBitsPerSecond: 50e6, Priority: 7, Cgroups: cgroups},
	}}}}
}

func (m *machine) link(name string) plan.Link {
	m.t.Helper()
	var k links
	all, err := k.observe()
	if err != nil {
		m.t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(l plan.Link) bool { return l.Name == name })
	if i < 0 {
		m.t.Fatalf("no link %s", name)
	}
	return all[i]
}

func (m *machine) ownTables() (list []string) {
	m.t.Helper()
	c, err := nftables.New()
	if err != nil {
		m.t.Fatal(err)
	}
	all, err := c.ListTables()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, table := range all {
		if table.Name == tableName {
			list = append(list, fmt.Sprint(table.Family))
		}
	}
	return list
}

// checkNoErrors fails if there are errors other than missing features of this kernel.
func (m *machine) checkNoErrors(out tick.NetworkIsolation) {
	m.t.Helper()
	for _, e := range out.Errors {
		if !strings.HasPrefix(e.Error, "unavailable: the kernel has no fq_codel") {
			m.t.Errorf("network: %+v", e)
		}
	}
}

// A link is shaped as desired, a repetition changes nothing, a new rate changes only its class, and a restore removes everything.
func TestShapeAndRestore(t *testing.T) {
	m := newMachine(t)
	first := m.link("eth0")
	out := m.apply(desired("eth0", "/"+filepath.Base(t.TempDir())))
	m.checkNoErrors(out)
	got := m.link("eth0")
	slices.SortFunc(got.Classes, func(x, y plan.Class) int { return int(x.Minor) - int(y.Minor) })
	want := []plan.Class{{Minor: 1, Rate: 12_500_000, Ceiling: 12_500_000}, {Minor: 0x100, Rate: 11_250_000, Ceiling: 12_500_000}, {Minor: 0x101, Rate: 1_250_000, Ceiling: 6_250_000, Priority: 7}}
	if !got.IsOurs() || !slices.Equal(got.Classes, want) {
		t.Fatalf("eth0 %+v; want %+v", got, want)
	}
	leaf := leafKind
	if slices.Contains(out.Unavailable, "link leaf") { // this kernel has no fq_codel
		leaf = ""
	}
	if got.Leaves[0x100] != leaf || got.Leaves[0x101] != leaf {
		t.Errorf("leaves %v; want %q", got.Leaves, leaf)
	}
	if out.Applied == 0 || out.Missing != 1 || len(out.Classes) != 2 || len(m.ownTables()) != 1 {
		t.Errorf("first %+v, tables %v", out, m.ownTables())
	}
	if out = m.apply(desired("eth0", "/"+filepath.Base(t.TempDir()))); out.Applied > 0 || len(out.Errors) > 0 {
		t.Errorf("the same again %+v", out)
	}
	m.restart()
	if out = m.apply(desired("eth0", "/"+filepath.Base(t.TempDir()))); out.Applied > 0 {
		t.Errorf("the same after a restart %+v", out)
	}
	changed := desired("eth0", "/"+filepath.Base(t.TempDir()))
	changed.Links[0].Classes[1].CeilingBitsPerSecond = 80e6
	if out = m.apply(changed); out.Applied != 1 || out.Writes[0].Key != "class:batch" || !strings.Contains(out.Writes[0].Old, "ceiling 50000000") {
		t.Errorf("another ceiling %+v", out)
	}
	if restored, err := m.Restore(); err != nil || restored.String() != "network: restored 1 link, removed 1 table" {
		t.Errorf("restore: %s, %v", restored, err)
	}
	if got := m.link("eth0"); got.RootKind != first.RootKind || got.RootMajor != 0 || len(m.ownTables()) > 0 {
		t.Errorf("after the restore %+v, tables %v", got, m.ownTables())
	}
	if _, err := os.Stat(m.path); err == nil {
		t.Error("the journal is still there")
	}
}

// A cgroup's number is that of its sockets, and each link into a namespace that contains a process of the cgroup is marked.
func TestSources(t *testing.T) {
	m := newMachine(t)
	unified := need.Unified(t)
	name := fmt.Sprintf("/polder-test-%d-sources", os.Getpid())
	if err := os.Mkdir(unified+name, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(unified + name) })
	out := m.apply(desired("eth0", name, "/", "relative", "/a/../b"))
	if out.Missing != 0 || out.Applied == 0 {
		t.Errorf("%+v", out)
	}
	refused := 0
	for _, e := range out.Errors {
		if strings.HasPrefix(e.Error, "refused: ") {
			refused++
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(unified+name, &st); err != nil {
		t.Fatal(err)
	}
	if got := m.finder.result.cgroups; refused != 3 || !slices.Equal(got, []cgroupMark{{st.Ino, 1, 0x1000}}) {
		t.Errorf("%d refused, cgroups %+v; want 3, and %d at depth 1", refused, got, st.Ino)
	}
}

// On cgroup version 1 a process of another PID namespace is in no list: the pids controller counts it.
func TestUnlistedProcesses(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"cpuacct/cgroup.procs": "", "cpuacct/a/cgroup.procs": "", "cpuacct/a/b/cgroup.procs": "", "cpuacct/a/c/cgroup.procs": "",
		"pids/cgroup.procs": "", "pids/a/pids.current": "4\n", "pids/a/b/pids.current": "4\n", "pids/a/c/pids.current": "0\n",
	} {
		path := filepath.Join(root, "sys/fs/cgroup", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "proc/self/ns"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("pid:[4026532178]", filepath.Join(root, "proc/self/ns/pid")); err != nil {
		t.Fatal(err)
	}
	h, err := cgroup.Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	finder := sourceFinder{h: h, now: time.Now}
	found := finder.find([]plan.Mark{{Cgroups: []string{"/a"}, Mark: 1}}, nil)
	if len(found.errs) != 1 || !strings.HasPrefix(found.errs[0].Error(), "processes of 1 cgroup are in another PID namespace") {
		t.Errorf("got errors %v; want one, of one cgroup", found.errs)
	}
}

// A job that creates more cgroups in its own than are searched hides neither the jobs beside it nor those of another mark.
func TestAJobsOwnCgroupsHideNoOthers(t *testing.T) {
	root := t.TempDir()
	mount := filepath.Join(root, "sys/fs/cgroup")
	for _, dir := range []string{"batch/a", "batch/b", "other/c"} {
		if err := os.MkdirAll(filepath.Join(mount, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i := range maxDirs {
		if err := os.Mkdir(filepath.Join(mount, "batch/a", strconv.Itoa(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"cgroup.controllers": "cpu", "batch/b/cgroup.procs": "0\n", "other/c/cgroup.procs": "0\n"} {
		if err := os.WriteFile(filepath.Join(mount, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := cgroup.Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	finder := sourceFinder{h: h, now: time.Now}
	found := finder.find([]plan.Mark{{Cgroups: []string{"/batch"}, Mark: 1}, {Cgroups: []string{"/other"}, Mark: 2}}, nil)
	if len(found.errs) != 1 || !strings.HasPrefix(found.errs[0].Error(), "processes of 2 cgroups are in another PID namespace") {
		t.Errorf("got errors %v; want those of two cgroups", found.errs)
	}
}

// A qdisc and a table of another program are not changed, which is reported once.
func TestExternalChangesAreKept(t *testing.T) {
	m := newMachine(t)
	setRoot(t, "eth0")
	out := m.apply(desired("eth0"))
	if len(out.Errors) != 1 || !strings.Contains(out.Errors[0].Error, "another program") || out.Applied > 0 {
		t.Errorf("first %+v", out)
	}
	if out = m.apply(desired("eth0")); len(out.Errors) > 0 || !slices.Equal(out.Unavailable, []string{"link/eth0"}) {
		t.Errorf("then %+v", out)
	}
	if got := m.link("eth0"); got.RootMajor != 1 {
		t.Errorf("eth0 %+v", got)
	}
	addLink(t, "eth1")
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	c.AddTable(&nftables.Table{Name: tableName, Family: nftables.TableFamilyINet})
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	out = m.apply(desired("eth1"))
	if got := m.link("eth1"); !got.IsOurs() || !slices.ContainsFunc(out.Errors, func(e tick.IsolationError) bool { return strings.Contains(e.Error, "it has no comment of Polder") }) {
		t.Errorf("eth1 %+v, %+v", got, out)
	}
	if restored, err := m.Restore(); err != nil || restored.Links != 1 || len(m.ownTables()) != 1 {
		t.Errorf("restore %s, %v, tables %v", restored, err, m.ownTables())
	}
}

// What another program removes is set again, but not forever; a table that is flushed is restored.
func TestContest(t *testing.T) {
	m := newMachine(t)
	m.checkNoErrors(m.apply(desired("eth0")))
	l, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for lost := 1; lost <= 3; lost++ {
		if err := m.links.execute(plan.Step{Op: plan.RemoveRoot, Link: "eth0", Index: l.Attrs().Index}); err != nil {
			t.Fatal(err)
		}
		out := m.apply(desired("eth0"))
		if got := m.link("eth0"); got.IsOurs() != (lost <= 2) {
			t.Errorf("lost %d times: %+v, %+v", lost, got, out)
		}
	}
	if err := m.tables.remove(inet); err != nil {
		t.Fatal(err)
	}
	m.apply(desired("eth0"))
	if len(m.ownTables()) != 1 {
		t.Error("the table did not come back")
	}
}

// In another network namespace, links and tables of the same names are others: the journal is refused there.
func TestJournalOfAnotherNamespace(t *testing.T) {
	namespace(t)
	path := filepath.Join(t.TempDir(), "journal")
	open := func() *Journal {
		t.Helper()
		j, err := OpenJournal(path, "/", time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	j := open()
	if err := j.recordLink("eth0", 3, "mq"); err != nil {
		t.Fatal(err)
	}
	j.Close()
	j = open()
	if err := j.Check(); err != nil {
		t.Errorf("the same namespace: %v", err)
	}
	j.Close()
	namespace(t)
	j = open()
	if err := j.Check(); err == nil || !strings.Contains(err.Error(), "another network namespace") {
		t.Errorf("another namespace: %v; want an error", err)
	}
	j.Close()
}

// A journal that is cut off, of another program, or in use: its valid entries count, and only one process has it open.
func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	now := func() time.Time { return time.Unix(0, 0) }
	j, err := OpenJournal(path, "/", now)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.recordLink("eth0", 3, "mq"); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenJournal(path, "/", now); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("opened twice: %v", err)
	}
	j.Close()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("{\"link\":\"eth1\",\"boot\":\"another\",\"index\":4}\n{\"link\":")
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if j, err = OpenJournal(path, "/", now); err != nil || !slices.Equal(j.Links(), []string{"eth0"}) || j.InvalidLines != 1 || j.IsForeign() {
		t.Errorf("%+v, %v", j, err)
	}
	if err := j.recordTable("inet"); err != nil {
		t.Fatal(err)
	}
	j.Close()
	for _, stale := range []int{1, 0} {
		if j, err = OpenJournal(path, "/", now); err != nil || !j.tables["inet"] || j.links["eth0"].Index != 3 || j.StaleLines != stale {
			t.Errorf("after a cut line: %+v, %v; want eth0 and a table, %d lines of another boot", j, err, stale)
		}
		if err := j.Compact(); err != nil || j.Check() != nil {
			t.Error(err)
		}
		j.Close()
	}
	newer := filepath.Join(t.TempDir(), "newer")
	text := fmt.Sprintf("{\"table\":\"bridge\",\"boot\":%[1]q}\n{\"chain\":\"x\",\"namespace\":1,\"boot\":%[1]q}\n", kernfile.BootID("/"))
	if err := os.WriteFile(newer, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if j, err = OpenJournal(newer, "/", now); err != nil || j.UnknownLines() != 2 || len(j.tables) > 0 || j.IsForeign() {
		t.Errorf("of another version: %+v, %v", j, err)
	}
	if err := j.Remove(); err != nil {
		t.Error(err)
	}
	j.Close()
	if got, err := os.ReadFile(newer); err != nil || string(got) != text {
		t.Errorf("after a restore the journal of another version is %q, %v; want %q", got, err, text)
	}
	foreign := filepath.Join(t.TempDir(), "foreign")
	if err := os.WriteFile(foreign, []byte("a\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if j, err = OpenJournal(foreign, "/", now); err != nil || !j.IsForeign() {
		t.Errorf("%+v, %v", j, err)
	}
	j.Close()
}
