package apply

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/lib/cgroup"
	"polder/lib/kernfile"
	"polder/lib/tick"
)

// newCopy creates a copy of a cgroup v2 hierarchy from "cgroup/file" -> text.
func newCopy(t *testing.T, files map[string]string) (*cgroup.Hierarchy, string) {
	t.Helper()
	root := t.TempDir()
	base := filepath.Join(root, "sys/fs/cgroup")
	all := map[string]string{
		"cgroup.controllers":     "cpuset cpu io memory",
		"cgroup.subtree_control": "cpuset cpu io memory",
		"cpuset.cpus.effective":  "0-7",
		"cpuset.mems.effective":  "0",
	}
	maps.Copy(all, files)
	fill(t, base, all)
	h, err := cgroup.Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	return h, base
}

// fill writes the files of a copy.
func fill(t *testing.T, base string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestVersion2(t *testing.T) {
	h, base := newCopy(t, map[string]string{
		"a/cpuset.cpus": "", "a/cpuset.cpus.effective": "4-7", "a/cpuset.cpus.partition": "member", "a/cpuset.mems": "",
		"a/cpu.max": "max 50000", "a/cpu.weight": "100", "a/cpu.idle": "0",
		"a/memory.min": "0", "a/memory.low": "0", "a/memory.high": "max", "a/memory.max": "max",
		"a/io.weight": "default 100\n8:0 200",
	})
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, _ := newApplier(t, h, func(o *Options) { o.Journal = j })
	out := a.Apply([]tick.Cgroup{{
		Cgroup: "/a", CPUSetCPUs: "4-7", CPUSetMems: "0", CPUMaxMilliCPU: new(int64(1500)), CPUWeight: new(int64(20)), CPUIdle: new(false),
		MemoryMinBytes: new(int64(4097)), MemoryLowBytes: new(int64(8192)), MemoryHighBytes: new(int64(1 << 30)), MemoryMaxBytes: new(int64(1 << 31)), IOWeight: new(int64(50)),
	}})
	if len(out.Errors) > 0 || out.Applied != 9 || out.Unchanged != 1 {
		t.Errorf("applied %d, unchanged %d, errors:\n%s", out.Applied, out.Unchanged, errorsOf(out))
	}
	for file, want := range map[string]string{
		"cpuset.cpus": "4-7", "cpuset.mems": "0", "cpu.max": "75000 50000", "cpu.weight": "20", "memory.min": "4096", "memory.low": "8192",
		"memory.high": "1073741824", "memory.max": "2147483648", "io.weight": "default 50",
	} {
		if got := read(t, base, "a/"+file); got != want {
			t.Errorf("%s = %q, want %q", file, got, want)
		}
	}
	j.Close()
	j, err := OpenJournal(j.Path(), "/", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	b, _ := newApplier(t, h, func(o *Options) { o.Journal = j })
	if out, err := b.Restore(false); err != nil || out.Values != 9 || out.Failed+out.External > 0 {
		t.Errorf("restore: %v, %v", out, err)
	}
	for file, want := range map[string]string{"cpuset.cpus": "", "cpuset.mems": "", "cpu.max": "max 50000", "memory.max": "max", "io.weight": "default 100"} {
		if got := read(t, base, "a/"+file); got != want {
			t.Errorf("restored %s = %q, want %q", file, got, want)
		}
	}
}

func read(t *testing.T, base, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(base, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func TestInapplicableAdviceIsReported(t *testing.T) {
	h, base := newCopy(t, map[string]string{
		"cgroup.subtree_control":       "cpu",
		"thread/cgroup.type":           "threaded",
		"no/cpu.weight":                "100",
		"no2/cpu.weight":               "100",
		"part/cpuset.cpus":             "4",
		"part/cpuset.cpus.partition":   "root",
		"narrow/cpuset.cpus":           "0-3",
		"narrow/cpuset.cpus.effective": "0-1",
	})
	if err := os.Symlink("no", filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	a, w := newApplier(t, h, nil)
	out := a.Apply([]tick.Cgroup{
		{Cgroup: "/no", CPUSetCPUs: "0", CPUWeight: new(int64(100))},
		{Cgroup: "/no2", CPUSetCPUs: "0", CPUWeight: new(int64(100))},
		{Cgroup: "/part", CPUSetCPUs: "2"},
		{Cgroup: "/thread", MemoryMaxBytes: new(int64(1 << 30))},
		{Cgroup: "/narrow", CPUSetCPUs: "0-3"},
		{Cgroup: "/link", CPUWeight: new(int64(100))},
		{Cgroup: "/../etc", CPUWeight: new(int64(100))},
		{Cgroup: "relative", CPUWeight: new(int64(100))},
		{Cgroup: "/no\n", CPUWeight: new(int64(100))},
	})
	problems := errorsOf(out)
	for _, want := range []string{
		"no cpusetCPUs: cpuset is not enabled in /cgroup.subtree_control",
		"part cpusetCPUs: not written: the cgroup is a CPU partition",
		"narrow cpusetCPUs: has 0-3, but effective is only 0-1",
		"thread memoryMaxBytes: a threaded cgroup has no memory.max of its own",
		"the path contains a symbolic link",
		`"/../etc" is not in its shortest form`,
		`"relative" does not begin with a slash`,
		`"/no\n" contains a control character`,
	} {
		if strings.Count(problems, want) != 1 {
			t.Errorf("reported errors: %d times %q, want once:\n%s", strings.Count(problems, want), want, problems)
		}
	}
	if w.writes > 0 {
		t.Errorf("%d writes, want none", w.writes)
	}
}

func TestListsAreBounded(t *testing.T) {
	h, _ := newCopy(t, nil)
	a, _ := newApplier(t, h, nil)
	desired := make([]tick.Cgroup, 5000)
	for i := range desired {
		desired[i] = tick.Cgroup{Cgroup: "bad"}
	}
	out := a.Apply(desired)
	if len(out.Errors) != MaxListed+1 || out.Errors[MaxListed].Error != "4000 more errors are not listed" {
		t.Errorf("%d errors, the last %q", len(out.Errors), out.Errors[len(out.Errors)-1].Error)
	}
}

func TestDamagedJournalIsRead(t *testing.T) {
	line := func(file, rest string) string {
		return `{"controller":"cpu","cgroup":"/a","file":"` + file + `","inode":7,"boot":"` + kernfile.BootID("/") + `",` + rest + "}\n"
	}
	for _, c := range []struct {
		name, text      string
		files, bad, old int
	}{
		{"empty", "", 0, 0, 0},
		{"whole", line("cpu.max", `"first":"max 100000"`) + line("cpu.max", `"wrote":"1 2"`), 1, 0, 0},
		{"last line cut", line("cpu.max", `"first":"max 100000"`) + `{"controller":"cpu","cgr`, 1, 1, 0},
		{"cut in the middle", `{"contr` + "\n" + line("cpu.max", `"first":"max 100000"`), 1, 1, 0},
		{"a value without its first one", line("cpu.max", `"wrote":"1 2"`), 0, 0, 0},
		{"another boot", strings.Replace(line("cpu.max", `"first":"1 2"`), kernfile.BootID("/"), "other", 1), 0, 0, 1},
		{"a file of another version", line("cpu.new", `"first":"1"`), 0, 0, 0},
		{"a file of another version and boot", strings.Replace(line("cpu.new", `"first":"1"`), kernfile.BootID("/"), "other", 1), 0, 0, 1},
		{"a path that leads out", strings.Replace(line("cpu.max", `"first":"1 2"`), "/a", "/../a", 1), 0, 1, 0},
		{"garbage", "\x00\x01\n[]\nnull\n", 0, 3, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "journal")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			j := openJournal(t, path)
			if j.Len() != c.files || j.InvalidLines != c.bad || j.StaleLines != c.old {
				t.Errorf("%d files, %d bad, %d stale; want %d, %d, %d", j.Len(), j.InvalidLines, j.StaleLines, c.files, c.bad, c.old)
			}
			first := "x"
			if err := j.Append([]entry{{Controller: "cpu", Cgroup: "/b", File: "cpu.idle", Inode: 9, Original: &first}}); err != nil {
				t.Fatal(err)
			}
			j.Close()
			if again := openJournal(t, path); again.Len() != c.files+1 {
				t.Errorf("after one more line %d files, want %d", again.Len(), c.files+1)
			}
		})
	}
}

func TestJournalDropsRemovedCgroups(t *testing.T) {
	h, base := newCopy(t, map[string]string{"a/cpu.weight": "100"})
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, _ := newApplier(t, h, func(o *Options) { o.Journal = j })
	a.pruneThreshold = 1
	a.Apply([]tick.Cgroup{{Cgroup: "/a", CPUWeight: new(int64(50))}})
	if err := os.Rename(filepath.Join(base, "a"), filepath.Join(base, "b")); err != nil {
		t.Fatal(err)
	}
	a.pruneThreshold = 1
	a.Apply([]tick.Cgroup{{Cgroup: "/b", CPUWeight: new(int64(70))}})
	a.pruneThreshold = 1
	a.prune()
	if len(a.records) != 1 {
		t.Errorf("%d records, want the living one", len(a.records))
	}
	data, err := os.ReadFile(j.Path())
	if err != nil || strings.Contains(string(data), `"/a"`) || !strings.Contains(string(data), `"/b"`) {
		t.Errorf("journal %s, %v; want /b alone", data, err)
	}
}

// Entries of another version of isolate survive a restore, which reports them; a dry run does not touch the journal at all.
func TestRestoreKeepsEntriesOfAnotherVersion(t *testing.T) {
	h, base := newCopy(t, map[string]string{"a/cpu.weight": "100"})
	path := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, path)
	a, _ := newApplier(t, h, func(o *Options) { o.Journal = j })
	a.Apply([]tick.Cgroup{{Cgroup: "/a", CPUWeight: new(int64(50))}})
	j.Close()
	entryOf := func(boot, value string) string {
		return `{"controller":"cpu","cgroup":"/a","file":"cpu.new","inode":7,"boot":"` + boot + `","time":"2026-01-01T00:00:00Z",` +
			value + "}\n"
	}
	unknown := entryOf(kernfile.BootID("/"), `"first":"1"`) + entryOf(kernfile.BootID("/"), `"wrote":"2"`)
	text := read(t, filepath.Dir(path), "journal") + "\n" + unknown + entryOf("earlier", `"first":"1"`) + `{"cu`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dryRun := range []bool{true, false} {
		j = openJournal(t, path)
		b, _ := newApplier(t, h, func(o *Options) { o.Journal, o.DryRun = j, dryRun })
		if out, err := b.Restore(false); err != nil || out != (Restored{Values: 1, Unknown: 2}) || out.IsComplete() {
			t.Errorf("dry run %t: %v, %v; want a value restored and 2 entries left", dryRun, out, err)
		}
		j.Close()
		if got := read(t, filepath.Dir(path), "journal"); dryRun && got != text {
			t.Errorf("after the dry run the journal is %q; want %q", got, text)
		} else if !dryRun && got+"\n" != unknown {
			t.Errorf("after the restore the journal is %q; want %q", got, unknown)
		}
	}
	if got := read(t, base, "a/cpu.weight"); got != "100" {
		t.Errorf("cpu.weight is %s, want 100", got)
	}
	j = openJournal(t, path)
	if j.IsForeign() || j.UnknownLines() != 2 {
		t.Errorf("foreign %t, %d entries of another version; want a journal with 2", j.IsForeign(), j.UnknownLines())
	}
}

// Compact removes what no longer counts, and nothing else.
func TestJournalIsCompacted(t *testing.T) {
	h, _ := newCopy(t, map[string]string{"a/cpu.weight": "100"})
	path := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, path)
	a, _ := newApplier(t, h, func(o *Options) { o.Journal = j })
	a.Apply([]tick.Cgroup{{Cgroup: "/a", CPUWeight: new(int64(50))}})
	j.Close()
	good := read(t, filepath.Dir(path), "journal") + "\n"
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(good, kernfile.BootID("/"), "earlier")+good+"\x00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		j = openJournal(t, path)
		if err := j.Compact(); err != nil || j.Len() != 1 {
			t.Fatalf("%v, %d files; want 1", err, j.Len())
		}
		j.Close()
		if got := read(t, filepath.Dir(path), "journal"); strings.Contains(got, "earlier") || strings.Count(got, "\n") != 1 {
			t.Errorf("the journal is %q; want the two entries of this boot", got)
		}
	}
}

// A cgroup that cannot be looked at may still exist: its original value stays in the journal.
func TestJournalKeepsUnreadableCgroups(t *testing.T) {
	h, base := newCopy(t, map[string]string{"p/a/cpu.weight": "100", "b/cpu.weight": "100"})
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, _ := newApplier(t, h, func(o *Options) { o.Journal = j })
	a.Apply([]tick.Cgroup{{Cgroup: "/p/a", CPUWeight: new(int64(50))}, {Cgroup: "/b", CPUWeight: new(int64(50))}})
	p := filepath.Join(base, "p")
	if err := errors.Join(os.Rename(p, p+".old"), os.Symlink("p", p), os.RemoveAll(filepath.Join(base, "b"))); err != nil { // a loop
		t.Fatal(err)
	}
	a.pruneThreshold = 1
	a.prune()
	if err := errors.Join(os.Remove(p), os.Rename(p+".old", p)); err != nil {
		t.Fatal(err)
	}
	j.Close()
	j = openJournal(t, j.Path())
	b, _ := newApplier(t, h, func(o *Options) { o.Journal = j })
	if out, err := b.Restore(false); err != nil || out != (Restored{Values: 1}) || read(t, base, "p/a/cpu.weight") != "100" {
		t.Errorf("%v, %v, cpu.weight %s; want /p/a restored, and no record of /b", out, err, read(t, base, "p/a/cpu.weight"))
	}
}

// A value is recorded before it is written. If isolate is killed in between, the next one finds an earlier value of its own, which no
// other program has set; a value that it never wrote is an external change.
func TestKilledBeforeWriteIsNoExternalChange(t *testing.T) {
	for observed, isExternal := range map[string]bool{"": false, "100": false, "333": true} {
		h, base := newCopy(t, map[string]string{"a/cpu.weight": "100"})
		j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
		a, w := newApplier(t, h, func(o *Options) { o.Journal = j })
		apply := func(weight int64) tick.Isolation {
			return a.Apply([]tick.Cgroup{{Cgroup: "/a", CPUWeight: &weight}})
		}
		apply(50)
		w.killAt = w.writes + 1
		func() {
			var done bool
			defer recoverKill(&done)
			apply(20)
		}()
		if got := read(t, base, "a/cpu.weight"); got != "50" {
			t.Fatalf("cpu.weight is %s when isolate is killed; want 50", got)
		}
		if observed != "" {
			if err := os.WriteFile(filepath.Join(base, "a/cpu.weight"), []byte(observed+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		j.Close()
		a, _ = newApplier(t, h, func(o *Options) { o.Journal = openJournal(t, j.Path()) })
		out := apply(20)
		problems := errorsOf(out)
		got := strings.Contains(problems, "changed externally from 20 to "+observed)
		if got != isExternal || len(out.Errors) > 1 || out.Applied != 1 {
			t.Errorf("%q after the kill: applied %d, errors %q; want an external change: %t", observed, out.Applied, problems, isExternal)
		}
	}
}

func TestJournalIsLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, path)
	if err := j.rewrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenJournal(path, "/", time.Now); err == nil {
		t.Error("a second isolate got the journal")
	}
	if _, err := OpenJournal("/dev/full", "/", time.Now); err == nil {
		t.Error("a device was taken for a journal")
	}
}

// The list of online CPUs is valid though the kernel terminates it with a NUL byte: without it the machine would have only
// the root's CPUs, which do not include those of partitions.
func TestOnlineCPUsThatEndInNUL(t *testing.T) {
	h, base := newCopy(t, map[string]string{
		"cpuset.cpus.effective": "0-3", "a/cpuset.cpus": "", "a/cpuset.cpus.effective": "4-7", "a/cpuset.cpus.partition": "member",
	})
	online := filepath.Join(t.TempDir(), "online")
	if err := os.WriteFile(online, []byte("0-7\n\x00"), 0o644); err != nil {
		t.Fatal(err)
	}
	a, _ := newApplier(t, h, func(o *Options) { o.Online = online })
	if out := a.Apply([]tick.Cgroup{{Cgroup: "/a", CPUSetCPUs: "4-7"}}); len(out.Errors) > 0 {
		t.Errorf("reported errors:\n%s", errorsOf(out))
	}
	if got, err := os.ReadFile(filepath.Join(base, "a/cpuset.cpus")); err != nil || strings.TrimSpace(string(got)) != "4-7" {
		t.Errorf("cpuset.cpus is %q, %v; want 4-7", got, err)
	}
}
