package apply

import (
	"fmt"
	"strconv"
	"strings"

	"polder/isolate/plan"
	"polder/lib/tick"
)

// wouldKill reports whether the item is a memory limit that isolate does not write because it would kill.
func (a *Applier) wouldKill(it *item, r *round) bool {
	text, err := it.Desired()
	if err != nil {
		return false
	}
	reason := a.killReason(it.File, text)
	if reason == "" {
		return false
	}
	r.fail(tick.IsolationError{Cgroup: it.Cgroup, Key: it.Key, Error: "not written: " + reason})
	return true
}

// killReason returns why a write of a memory limit would make the kernel kill processes at once; empty if it would not. Version 2
// enforces a lower memory.max by killing if dropping caches is not enough. Version 1 refuses such a write (EBUSY). isolate does not kill,
// so it refuses the write too. memory.high does not kill.
func (a *Applier) killReason(f plan.File, text string) string {
	if f.Name != "memory.max" || a.Hierarchy.Version(f.Controller) != 2 {
		return ""
	}
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil { // no limit
		return ""
	}
	used, err := a.readBytes(f, "memory.current")
	if err != nil || used <= limit {
		return ""
	}
	// Memory that is not known to be droppable counts as needed. Swap does not count, because it may be full.
	if needed := used - a.droppableBytes(f); needed > limit {
		return fmt.Sprintf("the cgroup has %d bytes that the kernel cannot drop: it would kill processes to enforce a limit of %d",
			needed, limit)
	}
	return ""
}

func (a *Applier) readBytes(f plan.File, name string) (int64, error) {
	text, err := a.Hierarchy.ReadFile(f.Controller, f.Cgroup, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

// droppableBytes returns how much of a cgroup's memory the kernel can drop: the file pages on its lists of pages to reclaim, and the slabs
// that it reports as reclaimable. The line "file" also counts what it cannot drop: shared memory, locked pages, and ramfs.
func (a *Applier) droppableBytes(f plan.File) int64 {
	text, err := a.Hierarchy.ReadFile(f.Controller, f.Cgroup, "memory.stat")
	if err != nil {
		return 0
	}
	var sum int64
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			continue
		}
		switch name {
		case "active_file", "inactive_file", "slab_reclaimable":
			sum += n
		}
	}
	return sum
}
