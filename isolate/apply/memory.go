package apply

import (
	"fmt"
	"strconv"
	"strings"

	"polder/lib/tick"
)

// wouldKill reports whether a write of a memory limit would make the kernel kill processes at once: version 2 enforces a lower
// memory.max by killing if dropping caches is not enough. Version 1 refuses such a write (EBUSY). isolate does not kill, so it
// refuses the write too. memory.high does not kill.
func (a *Applier) wouldKill(it *item, r *round) bool {
	if it.Version != 2 || it.Name != "memory.max" {
		return false
	}
	text, err := it.Desired()
	if err != nil {
		return false
	}
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil { // no limit
		return false
	}
	used, err := a.readBytes(it, "memory.current")
	if err != nil || used <= limit {
		return false
	}
	// Memory that is not known to be droppable counts as needed. Swap does not count, because it may be full.
	if needed := used - a.droppableBytes(it); needed > limit {
		r.fail(tick.IsolationError{Cgroup: it.Cgroup, Key: it.Key, Error: fmt.Sprintf(
			"not written: the cgroup has %d bytes that the kernel cannot drop: it would kill processes to enforce a limit of %d", needed, limit)})
		return true
	}
	return false
}

func (a *Applier) readBytes(it *item, name string) (int64, error) {
	text, err := a.Hierarchy.ReadFile(it.Controller, it.Cgroup, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

// droppableBytes returns how much of a cgroup's memory the kernel can drop: file pages except shared memory, and the slabs
// that it reports as reclaimable.
func (a *Applier) droppableBytes(it *item) int64 {
	text, err := a.Hierarchy.ReadFile(it.Controller, it.Cgroup, "memory.stat")
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
		case "file", "slab_reclaimable":
			sum += n
		case "shmem":
			sum -= n
		}
	}
	return max(sum, 0)
}
