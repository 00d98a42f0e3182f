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

// refuse returns why a cgroup's tasks are not moved. Tasks below another group's cgroup would be moved back and forth forever.
func (r *round) refuse(group, c string) error {
	if err := cgroup.CheckPath(c); err != nil {
		return err
	}
	if c == "/" {
		return errors.New("the root cgroup is the whole machine")
	}
	for up := c; up != "/"; up = path.Dir(up) {
		if owner, owned := r.owners[up]; owned && owner != group {
			return fmt.Errorf("%s belongs into the group %s", clip.Text(up, shownBytes), clip.Text(owner, shownBytes))
		}
	}
	return nil
}

// walkEvery is how often the tasks of all cgroups are read: a forked task is in its parent's group already, so only tasks
// from outside, such as a new container or an exec, wait for it. A newly named cgroup is read at once.
const walkEvery = 5 * time.Second

// pace clears what was read when it must be read again.
func (r *round) pace() {
	now := r.Now()
	if age := now.Sub(r.allAt); r.DryRun || age < 0 || age >= walkEvery {
		clear(r.walked)
		r.allAt = now
		return
	}
	for c := range r.walked {
		if _, desired := r.owners[c]; !desired {
			delete(r.walked, c)
		}
	}
}

// tasks moves those tasks of the cgroups into the group that are not in it. Tasks that they fork are in it too.
func (r *round) tasks(g *tick.ResctrlGroup) {
	unseen := func(c string) bool { return r.walked[c] != g.Group }
	if !slices.ContainsFunc(g.Cgroups, unseen) {
		return
	}
	name := filepath.Join(g.Group, keyTasks)
	if err := r.readTasks(name); err != nil && !(r.DryRun && errors.Is(err, fs.ErrNotExist)) {
		r.fail(g.Group, keyTasks, err)
		return
	}
	r.fresh = r.fresh[:0]
	hidden := 0
	for _, c := range g.Cgroups {
		if !unseen(c) {
			continue
		}
		if err := r.refuse(g.Group, c); err != nil {
			r.fail(g.Group, keyTasks, fmt.Errorf("refused: %w", err))
			continue
		}
		hiddenHere, err := r.Hierarchy.Threads(c, r.buf, func(tid uint64) {
			if _, there := slices.BinarySearch(r.have, tid); !there {
				r.fresh = append(r.fresh, tid)
			}
		})
		hidden += hiddenHere
		switch {
		case errors.Is(err, fs.ErrNotExist):
			r.out.Missing++
		case err != nil:
			r.fail(g.Group, keyTasks, err)
		case hiddenHere == 0:
			r.walked[c] = g.Group
		}
	}
	if hidden > 0 {
		r.fail(g.Group, keyTasks, fmt.Errorf("%d tasks are of another pid namespace: isolate must run in the host's (hostPID: true)", hidden))
	}
	slices.Sort(r.fresh)
	r.fresh = slices.Compact(r.fresh)
	if len(r.fresh) > 0 {
		r.move(g.Group)
	}
}

// readTasks reads which tasks are in the group.
func (r *round) readTasks(name string) error {
	r.have = r.have[:0]
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
			r.have = append(r.have, tid)
		}
	}
	slices.Sort(r.have)
	return nil
}

// move writes the new tasks, one write each: of a longer write the kernel stops at the first task that has ended.
func (r *round) move(group string) {
	var moved []uint64
	if r.DryRun {
		r.wrote(group, keyTasks, "", listed(r.fresh))
		return
	}
	failed, first := 0, error(nil)
	for _, tid := range r.fresh {
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
		clear(r.walked) // the next tick retries
		r.fail(group, keyTasks, fmt.Errorf("%d of %d tasks were not moved: %w", failed, len(r.fresh), first))
	}
	if len(moved) > 0 {
		r.wrote(group, keyTasks, "", listed(moved))
	}
}

// maxTIDs bounds the task IDs that a tick lists.
const maxTIDs = 20

// listed returns the moved tasks' IDs, cut to maxTIDs.
func listed(tids []uint64) string {
	var b strings.Builder
	for i, tid := range tids {
		if i == maxTIDs {
			fmt.Fprintf(&b, " and %d more", len(tids)-maxTIDs)
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatUint(tid, 10))
	}
	return b.String()
}
