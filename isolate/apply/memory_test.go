package apply

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"polder/lib/tick"
)

// On version 2 a limit below what the kernel could drop to is not written, because it would kill.
func TestLimitDoesNotKill(t *testing.T) {
	for _, c := range []struct {
		name, current, stat string
		limit               int64
		written             bool
	}{
		{"room", "1000000", "anon 1000000\nfile 0\ninactive_file 0\nactive_file 0", 1 << 20, true},
		{
			"caches give way", "100000000",
			"anon 1000000\nfile 98000000\ninactive_file 90000000\nactive_file 8000000\nslab_reclaimable 500000", 2 << 20, true,
		},
		{"anonymous memory does not", "100000000", "anon 90000000\nfile 10000000\ninactive_file 10000000\nactive_file 0", 2 << 20, false},
		{
			"nor does shared memory", "100000000",
			"anon 1000000\nfile 99000000\nshmem 99000000\ninactive_anon 99000000\ninactive_file 0\nactive_file 0", 2 << 20, false,
		},
		{
			"nor do locked file pages", "100000000",
			"anon 1000000\nfile 99000000\nshmem 0\ninactive_file 0\nactive_file 0\nunevictable 99000000", 2 << 20, false,
		},
		{"nothing is known of it", "100000000", "", 2 << 20, false},
		{"no limit", "100000000", "", tick.Unlimited, true},
	} {
		h, base := newCopy(t, map[string]string{"a/memory.max": "500000000", "a/memory.current": c.current, "a/memory.stat": c.stat})
		for _, dry := range []bool{true, false} {
			a, _ := newApplier(t, h, func(o *Options) { o.DryRun = dry })
			out := a.Apply([]tick.Cgroup{{Cgroup: "/a", MemoryMaxBytes: new(c.limit)}})
			if (len(out.Writes) == 1) != c.written || c.written == strings.Contains(errorsOf(out), "it would kill processes") {
				t.Errorf("%s, dry run %v: writes %v, errors %s", c.name, dry, out.Writes, errorsOf(out))
			}
		}
		if changed := read(t, base, "a/memory.max") != "500000000"; changed != c.written {
			t.Errorf("%s: changed %v, want %v", c.name, changed, c.written)
		}
	}
}

// Nor does a restore write such a limit, unless it is forced; it stays in the journal.
func TestRestoreDoesNotKill(t *testing.T) {
	const stat = "anon 90000000\nfile 10000000\ninactive_file 6000000\nactive_file 4000000"
	for _, c := range []struct {
		name, current, original string
		force                   bool
		first                   Restored
	}{
		{"needs more", "100000000", "50000000", false, Restored{Failed: 1}},
		{"forced", "100000000", "50000000", true, Restored{Values: 1}},
		{"needs less", "40000000", "50000000", false, Restored{Values: 1}},
		{"caches give way", "100000000", "95000000", false, Restored{Values: 1}},
		{"no limit", "100000000", "max", false, Restored{Values: 1}},
		{"written already", "100000000", "200000000", false, Restored{Unchanged: 1}},
	} {
		h, base := newCopy(t, map[string]string{"a/memory.max": c.original, "a/memory.current": "1", "a/memory.stat": stat})
		j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
		a, _ := newApplier(t, h, func(o *Options) { o.Journal = j })
		limit := int64(200_003_584) // of whole pages
		if out := a.Apply([]tick.Cgroup{{Cgroup: "/a", MemoryMaxBytes: &limit}}); out.Applied != 1 {
			t.Fatalf("%s: applied %d, errors:\n%s", c.name, out.Applied, errorsOf(out))
		}
		set := func(name, text string) {
			if err := os.WriteFile(filepath.Join(base, "a", name), []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		set("memory.current", c.current)
		if c.first.Unchanged > 0 {
			set("memory.max", c.original)
			set("memory.stat", "")
			set("memory.current", "300000000")
		}
		restore := func(force bool) Restored {
			j.Close()
			j = openJournal(t, j.Path())
			b, _ := newApplier(t, h, func(o *Options) { o.Journal = j })
			out, err := b.Restore(force)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		out := restore(c.force)
		if out != c.first {
			t.Errorf("%s: %v, want %v", c.name, out, c.first)
		}
		if isRestored := read(t, base, "a/memory.max") == c.original; isRestored == (c.first.Failed > 0) {
			t.Errorf("%s: memory.max is %s", c.name, read(t, base, "a/memory.max"))
		}
		if c.first.Failed == 0 {
			continue
		}
		set("memory.current", "40000000")
		if out := restore(false); out != (Restored{Values: 1}) || read(t, base, "a/memory.max") != c.original {
			t.Errorf("%s, when it uses less: %v, memory.max is %s", c.name, out, read(t, base, "a/memory.max"))
		}
	}
}
