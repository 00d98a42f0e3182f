package apply

import (
	"os"
	"path/filepath"
	"testing"

	"polder/lib/tick"
)

// A restore does not write the list of a cgroup that another program made the root of a CPU partition, and keeps its original value
// until the cgroup is a member again.
func TestRestoreKeepsListOfPartitionRoot(t *testing.T) {
	for _, c := range []struct {
		name, state, list string // when the first restore begins
		force             bool
		want              Restored
		wantList          string
		isKept            bool // in the journal
	}{
		{"root", "root", "2-3", false, Restored{Failed: 1}, "2-3", true},
		{"isolated", "isolated", "2-3", false, Restored{Failed: 1}, "2-3", true},
		{"invalid", "root invalid (Parent is not a partition root)", "2-3", false, Restored{Failed: 1}, "2-3", true},
		{"forced", "root", "2-3", true, Restored{Failed: 1}, "2-3", true},
		{"another list", "root", "4", false, Restored{External: 1}, "4", true},
		{"another list, forced", "root", "4", true, Restored{Failed: 1}, "4", true},
		{"the original list", "root", "", false, Restored{Unchanged: 1}, "", false},
		{"member", "member", "2-3", false, Restored{Values: 1}, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, base := newCopy(t, map[string]string{
				"a/cpuset.cpus": "", "a/cpuset.cpus.effective": "2-3", "a/cpuset.cpus.partition": "member", "a/cpuset.cpus.exclusive": "",
			})
			path := filepath.Join(t.TempDir(), "journal")
			j := openJournal(t, path)
			a, _ := newApplier(t, h, func(o *Options) { o.Journal = j })
			if out := a.Apply([]tick.Cgroup{{Cgroup: "/a", CPUSetCPUs: "2-3"}}); len(out.Errors) > 0 || out.Applied != 1 {
				t.Fatalf("applied %d, errors:\n%s", out.Applied, errorsOf(out))
			}
			set := func(name, text string) {
				if err := os.WriteFile(filepath.Join(base, "a", name), []byte(text+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			restore := func(force bool) Restored {
				j.Close()
				j = openJournal(t, path)
				b, _ := newApplier(t, h, func(o *Options) { o.Journal = j })
				out, err := b.Restore(force)
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			set("cpuset.cpus.partition", c.state)
			set("cpuset.cpus", c.list)
			if out := restore(c.force); out != c.want {
				t.Errorf("%v, want %v", out, c.want)
			}
			if got := read(t, base, "a/cpuset.cpus"); got != c.wantList {
				t.Errorf("cpuset.cpus is %q, want %q", got, c.wantList)
			}
			if _, err := os.Stat(path); (err == nil) != c.isKept {
				t.Fatalf("the journal: %v, want it kept: %t", err, c.isKept)
			}
			if !c.isKept {
				return
			}
			set("cpuset.cpus.partition", "member")
			if out := restore(true); out != (Restored{Values: 1}) || read(t, base, "a/cpuset.cpus") != "" {
				t.Errorf("as a member: %v, cpuset.cpus is %q; want it restored", out, read(t, base, "a/cpuset.cpus"))
			}
		})
	}
}
