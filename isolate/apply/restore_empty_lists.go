package apply

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"polder/isolate/plan"
)

// writeParentList restores an empty list of version 2 as closely as the kernel allows. The kernel rejects an empty list with
// ENOSPC if the cgroup contains processes and has had a list of its own (validate_change, kernel/cgroup/cpuset.c). An
// empty list means the parent's effective list, so that list is written; but it does not follow later changes of the
// parent. The journal keeps the original value: once the cgroup contains no processes, another restore empties it.
func (a *Applier) writeParentList(r *round, w plan.Write, old string, refused error) error {
	text, err := a.Hierarchy.ReadFile(w.Controller, path.Dir(w.Cgroup), w.Name+".effective")
	if err != nil || text == "" {
		return explain(w, refused)
	}
	w.New = text
	a.recordWrites([]plan.Write{w})
	if err := a.Writer.WriteFile(w.Controller, w.Cgroup, w.Name, text); err != nil {
		return fmt.Errorf("the kernel refused an empty list (%w) and the parent's list: %w", refused, explain(w, err))
	}
	a.parentLists[w.File] = text
	r.addWrite(w, old, text)
	return nil
}

// mayWriteParentList reports whether the kernel refused to empty a list whose original value is empty.
func (a *Applier) mayWriteParentList(w plan.Write, err error) bool {
	return a.isRestoring && w.New == "" && errors.Is(err, unix.ENOSPC) && a.Hierarchy.Version(w.Controller) == 2
}
