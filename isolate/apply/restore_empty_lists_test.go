package apply

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"polder/lib/cgroup"
	"polder/lib/tick"
)

// populated is a hierarchy whose cgroups contain processes: the kernel accepts no empty list for them (seen on Linux 6.1).
type populated struct {
	*cgroup.Hierarchy
	left bool // the processes have ended
}

func (w *populated) WriteFile(controller, path, name, value string) error {
	if value == "\n" && !w.left {
		return &os.PathError{Op: "write", Path: path + "/" + name, Err: unix.ENOSPC}
	}
	return w.Hierarchy.WriteFile(controller, path, name, value)
}

func TestEmptyListBecomesParentList(t *testing.T) {
	h, base := newCopy(t, map[string]string{
		"a/cgroup.controllers": "cpuset", "a/cgroup.subtree_control": "cpuset",
		"a/cpuset.cpus": "", "a/cpuset.cpus.effective": "0-7", "a/cpuset.cpus.partition": "member",
		"a/b/cpuset.cpus": "", "a/b/cpuset.cpus.effective": "4-7", "a/b/cpuset.cpus.partition": "member",
	})
	path := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, path)
	a, _ := newApplier(t, h, func(o *Options) { o.Journal = j })
	if out := a.Apply([]tick.Cgroup{{Cgroup: "/a/b", CPUSetCPUs: "4-7"}}); len(out.Errors) > 0 || out.Applied != 1 {
		t.Fatalf("applied %d, errors:\n%s", out.Applied, errorsOf(out))
	}
	w := &populated{Hierarchy: h}
	restore := func() Restored {
		j.Close()
		j = openJournal(t, path)
		b, _ := newApplier(t, h, func(o *Options) { o.Journal, o.Writer = j, w })
		out, err := b.Restore(false)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := restore(); out != (Restored{LikeParent: 1}) {
		t.Errorf("with processes: %+v, want one like above", out)
	}
	if got := read(t, base, "a/b/cpuset.cpus"); got != "0-7" {
		t.Errorf("with processes cpuset.cpus is %q, want 0-7", got)
	}
	w.left = true
	if out := restore(); out != (Restored{Values: 1}) {
		t.Errorf("without processes: %+v, want one back", out)
	}
	if got := read(t, base, "a/b/cpuset.cpus"); got != "" {
		t.Errorf("without processes cpuset.cpus is %q, want none", got)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the journal is still there: %v", err)
	}
}
