package resctrl

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/cgroup"
	"polder/lib/clip"
	"polder/lib/kernfile"
	"polder/lib/phrase"
	"polder/lib/tick"
)

// ownersOf returns the group of each desired cgroup: the first group that names it.
func (r *round) ownersOf(desired []tick.ResctrlGroup) map[string]string {
	owners := map[string]string{}
	for i := range desired {
		for _, c := range desired[i].Cgroups {
			if _, owned := owners[c]; !owned {
				owners[c] = desired[i].Group
			}
		}
	}
	return owners
}

// refusal returns why a cgroup's tasks are not moved. Tasks below another group's cgroup would be moved back and forth forever.
func (r *round) refusal(group, c string) error {
	if err := cgroup.CheckPath(c); err != nil {
		return err
	}
	if c == "/" {
		return errors.New("the root cgroup contains the whole machine")
	}
	for up := c; up != "/"; up = path.Dir(up) {
		if owner, owned := r.owners[up]; owned && owner != group {
			return fmt.Errorf("the advice puts %s into the group %s", clip.Text(up, maxShownBytes), clip.Text(owner, maxShownBytes))
		}
	}
	return nil
}

// readInterval is how often the tasks of all cgroups are read: a forked task is in its parent's group already, so only tasks
// from outside, such as a new container or an exec, wait for it. A newly named cgroup is read at once.
const readInterval = 5 * time.Second

// expireRead clears what was read when it must be read again.
func (r *round) expireRead() {
	now := r.Now()
	if age := now.Sub(r.readAt); r.DryRun || age < 0 || age >= readInterval {
		clear(r.groupsRead)
		r.readAt = now
		return
	}
	for c := range r.groupsRead {
		if _, desired := r.owners[c]; !desired {
			delete(r.groupsRead, c)
		}
	}
}

// reconcileTasks moves those tasks of the cgroups into the group that are not in it. Tasks that they fork are in it too.
func (r *round) reconcileTasks(g *tick.ResctrlGroup) {
	isUnread := func(c string) bool { return r.groupsRead[c] != g.Group }
	if !slices.ContainsFunc(g.Cgroups, isUnread) {
		return
	}
	name := filepath.Join(g.Group, keyTasks)
	if err := r.readTasks(name); err != nil && !(r.DryRun && errors.Is(err, fs.ErrNotExist)) {
		r.fail(g.Group, keyTasks, err)
		return
	}
	r.newTasks = r.newTasks[:0]
	hiddenCgroups := 0
	for _, c := range g.Cgroups {
		if !isUnread(c) {
			continue
		}
		if err := r.refusal(g.Group, c); err != nil {
			r.fail(g.Group, keyTasks, fmt.Errorf("refused: %w", err))
			continue
		}
		hidden, err := r.Hierarchy.Threads(c, r.buf, func(tid uint64) {
			if _, isInGroup := slices.BinarySearch(r.groupTasks, tid); !isInGroup {
				r.newTasks = append(r.newTasks, tid)
			}
		})
		if hidden > 0 {
			hiddenCgroups++
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			r.out.Missing++
		case err != nil:
			r.fail(g.Group, keyTasks, err)
		case hidden == 0:
			r.groupsRead[c] = g.Group
		}
	}
	if hiddenCgroups > 0 {
		r.fail(g.Group, keyTasks, fmt.Errorf("tasks of %s are in another PID namespace: isolate must run in the host's (hostPID: true)",
			phrase.Count(hiddenCgroups, "cgroup")))
	}
	slices.Sort(r.newTasks)
	r.newTasks = slices.Compact(r.newTasks)
	if len(r.newTasks) > 0 {
		r.moveTasks(g.Group)
	}
}

// readTasks reads which tasks are in the group.
func (r *round) readTasks(name string) error {
	r.groupTasks = r.groupTasks[:0]
	f, err := r.at.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := kernfile.ReadFD(int(f.Fd()), r.buf)
	if err != nil {
		return fmt.Errorf("read %s: %w", filepath.Join(r.dir, name), err)
	}
	if cap(data) > cap(r.buf) {
		r.buf = data
	}
	for len(data) > 0 {
		var text []byte
		text, data = kernfile.Line(data)
		if tid, ok := kernfile.Uint(text); ok {
			r.groupTasks = append(r.groupTasks, tid)
		}
	}
	slices.Sort(r.groupTasks)
	return nil
}

// moveTasks writes the new tasks, one write each: of a longer write the kernel stops at the first task that has ended.
func (r *round) moveTasks(group string) {
	var moved []uint64
	if r.DryRun {
		r.addWrite(group, keyTasks, "", idList(r.newTasks))
		return
	}
	failed, first := 0, error(nil)
	for _, tid := range r.newTasks {
		switch err := r.kernel.move(r.at, r.dir, group, tid); {
		case err == nil:
			moved = append(moved, tid)
		case errors.Is(err, unix.ESRCH): // it has ended meanwhile
		default:
			if failed++; first == nil {
				first = r.explain(fmt.Sprintf("move task %d", tid), err)
			}
		}
	}
	if failed > 0 {
		clear(r.groupsRead) // the next tick retries
		r.fail(group, keyTasks, fmt.Errorf("%d of %d tasks were not moved: %w", failed, len(r.newTasks), first))
	}
	if len(moved) > 0 {
		r.addWrite(group, keyTasks, "", idList(moved))
	}
}

// maxListedTIDs bounds the task IDs that a tick lists.
const maxListedTIDs = 20

// idList returns the moved tasks' IDs, cut to maxListedTIDs.
func idList(tids []uint64) string {
	var b strings.Builder
	for i, tid := range tids {
		if i == maxListedTIDs {
			fmt.Fprintf(&b, " and %d more", len(tids)-maxListedTIDs)
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatUint(tid, 10))
	}
	return b.String()
}
