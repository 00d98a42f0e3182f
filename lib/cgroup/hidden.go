package cgroup

import (
	"os"
	"path/filepath"
	"strings"

	"polder/lib/kernfile"
)

// initialPIDNamespace is /proc/self/ns/pid in the machine's first PID namespace, whose inode is a constant of the kernel
// (PROC_PID_INIT_INO).
const initialPIDNamespace = "pid:[4026531836]"

// isNestedPIDNamespace reports whether there may be processes that have no ID here. A copy of a machine without this link has none.
func isNestedPIDNamespace(root string) bool {
	link, err := os.Readlink(filepath.Join(root, "proc/self/ns/pid"))
	return err == nil && link != initialPIDNamespace
}

// MayHideTasks reports whether a cgroup whose own list of tasks or processes is empty may contain some nevertheless. Version 2 lists
// those of another PID namespace as 0; version 1 leaves them out.
func (h *Hierarchy) MayHideTasks(controller, cgroup string) bool {
	return h.unlistedTasks(controller, cgroup) > 0
}

// unlistedTasks returns how many tasks a cgroup itself contains whose list in the controller's hierarchy is empty, by its counter of the
// pids controller, which includes its children's. Without the counter the number is unknown, and the result is 1.
func (h *Hierarchy) unlistedTasks(controller, cgroup string) uint64 {
	if !h.isNested || h.Version(controller) != 1 {
		return 0
	}
	own, ok := h.countedTasks(cgroup)
	if !ok {
		return 1
	}
	if own == 0 {
		return 0
	}
	children, err := h.Children("pids", cgroup)
	if err != nil {
		return 1
	}
	for _, child := range children {
		n, _ := h.countedTasks(strings.TrimSuffix(cgroup, "/") + "/" + child) // 0 if it was removed meanwhile
		own -= min(own, n)
	}
	return own
}

// countedTasks returns the tasks of a cgroup and its descendants by the pids controller.
func (h *Hierarchy) countedTasks(cgroup string) (uint64, bool) {
	text, err := h.ReadFile("pids", cgroup, "pids.current")
	if err != nil {
		return 0, false
	}
	return kernfile.Uint([]byte(text))
}
