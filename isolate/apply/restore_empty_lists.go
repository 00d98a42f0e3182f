package apply

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"polder/isolate/plan"
)

// likeAbove puts an empty list of version 2 back as nearly as the kernel lets. A cgroup that holds processes and has had
// a list of its own gets ENOSPC for an empty one (validate_change, kernel/cgroup/cpuset.c). What an empty list means is
// the list in force above, so that is written; only it will not follow when the one above changes. The journal keeps the
// first value: once the cgroup holds no processes, another restore empties it.
func (a *Applier) likeAbove(r *round, w plan.Write, old string, refused error) error {
	text, err := a.Hierarchy.ReadFile(w.Controller, path.Dir(w.Cgroup), w.Name+".effective")
	if err != nil || text == "" {
		return explain(w, refused)
	}
	w.New = text
	a.noteWrites([]plan.Write{w})
	if err := a.Writer.WriteFile(w.Controller, w.Cgroup, w.Name, text); err != nil {
		return fmt.Errorf("not emptied (%w), and not made like the cgroup above either: %w", refused, explain(w, err))
	}
	a.above[w.File] = text
	r.wrote(w, old, text)
	return nil
}

// mayBeLikeAbove reports whether the kernel refused to empty a list that a restore wants empty.
func (a *Applier) mayBeLikeAbove(w plan.Write, err error) bool {
	return a.restores && w.New == "" && errors.Is(err, unix.ENOSPC) && a.Hierarchy.Version(w.Controller) == 2
}
