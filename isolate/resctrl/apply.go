// Package resctrl reconciles the groups of /sys/fs/resctrl: it creates a missing group, checks every line of its schemata against the
// machine before it writes a line that differs, moves tasks of the named cgroups into the group, and keeps a journal from which
// everything can be restored.
package resctrl

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"polder/lib/cgroup"
	"polder/lib/clip"
	"polder/lib/resctrl"
	"polder/lib/schemata"
	"polder/lib/tick"
)

// maxShownBytes is the maximum length of foreign text in a message.
const maxShownBytes = 400

// These keys name what is written in the tick.
const (
	keyAll      = "resctrl" // if resctrl is not mounted
	keyGroup    = "group"
	keySchemata = "schemata"
	keyTasks    = "tasks"
)

// Options set how an [Applier] acts.
type Options struct {
	Root      string // of the machine
	Hierarchy *cgroup.Hierarchy
	Journal   *Journal // nil if there is none
	// Contest is how often a line that another program changes is written again before it is left to that program.
	Contest int
	DryRun  bool
	Now     func() time.Time
	Log     *slog.Logger
}

// Applier applies desired groups, one advice after the other. It is not safe for concurrent use.
type Applier struct {
	Options
	dir    string // resctrl's mount point
	kernel kernel
	// isUnmounted means that the last round found resctrl not mounted.
	isUnmounted bool

	contests   map[lineKey]*contest
	groupsRead map[string]string // the cgroups whose tasks were read, with their group
	readAt     time.Time         // when all of them were read
	buf        []byte
	groupTasks []uint64
	newTasks   []uint64
}

// lineKey is one resource of one group.
type lineKey struct{ group, resource string }

// New returns an Applier.
func New(o Options) *Applier {
	return &Applier{
		Options: o, dir: filepath.Join(o.Root, resctrl.Dir), kernel: kernel{mkdir: (*os.Root).Mkdir, rmdir: (*os.Root).Remove, move: moveTask},
		contests: map[lineKey]*contest{}, groupsRead: map[string]string{}, buf: make([]byte, 4096),
	}
}

// Apply applies the desired groups as far as possible, and adds what it did to out.
func (a *Applier) Apply(out *tick.Isolation, desired []tick.ResctrlGroup) {
	if len(desired) == 0 {
		return
	}
	r := &round{Applier: a, out: out}
	_, mounted := resctrl.Mounted(a.Root)
	reported := a.isUnmounted
	if a.isUnmounted = !mounted; !mounted {
		out.Unavailable = append(out.Unavailable, keyAll)
		if reported {
			return
		}
		r.fail("", keyAll, fmt.Errorf("unavailable: resctrl is not mounted at %s (mount -t resctrl resctrl /sys/fs/resctrl, if the processor supports it)", a.dir))
		return
	}
	at, err := os.OpenRoot(a.dir) // not kept open: it would prevent unmounting
	if err != nil {
		r.fail("", "", err)
		return
	}
	defer at.Close()
	r.at = at
	r.owners = r.ownersOf(desired)
	r.expireRead()
	seen := map[string]bool{}
	for i := range desired {
		g := &desired[i]
		err := CheckName(g.Group)
		switch {
		case err != nil:
			r.fail("", "", fmt.Errorf("refused: %w", err)) // only the error quotes such a name
		case seen[g.Group]:
			r.fail(g.Group, "", errors.New("refused: the group is named twice"))
		default:
			seen[g.Group] = true
			r.reconcileGroup(g)
		}
	}
	for l := range a.contests {
		if !seen[l.group] {
			delete(a.contests, l)
		}
	}
}

// maxName bounds a group's name.
const maxName = 64

// CheckName rejects an invalid group name: it becomes a directory beside the kernel's own ones.
func CheckName(name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Errorf("%.80q: a group's name has 1 to %d characters", name, maxName)
	case name[0] == '.' || strings.ContainsFunc(name, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_-.", c))
	}):
		return fmt.Errorf("%q: a group's name has letters, digits, _, - and dots, and does not begin with a dot", name)
	case slices.Contains(kernelDirs, name):
		return fmt.Errorf("%q is a directory of the kernel", name)
	}
	return nil
}

// kernelDirs are the kernel's directories that are not groups.
var kernelDirs = []string{"info", "mon_groups", "mon_data"}

// round collects what is done for one tick.
type round struct {
	*Applier
	out     *tick.Isolation
	at      *os.Root
	machine *tick.Resctrl     // nil until it is needed
	owners  map[string]string // the group of each desired cgroup
}

// maxListed bounds the errors and writes that are listed: the advice comes from another process and may be hostile.
const maxListed = 200

func (r *round) fail(group, key string, err error) {
	e := tick.IsolationError{Cgroup: groupName(group), Key: key, Error: clip.Text(err.Error(), maxShownBytes)}
	if len(r.out.Errors) < maxListed {
		r.out.Errors = append(r.out.Errors, e)
	}
}

// groupName names a group in the tick, in the place of a cgroup.
func groupName(group string) string {
	if group == "" {
		return "resctrl"
	}
	return "resctrl/" + group
}

func (r *round) addWrite(group, key, old, newText string) {
	if !r.DryRun {
		r.out.Applied++
	}
	if len(r.out.Writes) < maxListed {
		r.out.Writes = append(r.out.Writes, tick.Write{
			Cgroup: groupName(group), Key: key, Old: clip.Text(old, maxShownBytes),
			New: clip.Text(newText, maxShownBytes),
		})
	}
}

// reconcileGroup reconciles one group.
func (r *round) reconcileGroup(g *tick.ResctrlGroup) {
	if g.IfExists && len(g.Schemata) == 0 {
		return // advised while resctrl was not mounted: its desired lines are unknown
	}
	var desired []schemata.Line
	for _, text := range g.Schemata {
		l, err := schemata.Parse(text)
		switch {
		case err != nil:
			r.fail(g.Group, keySchemata, fmt.Errorf("refused: %w", err))
		case slices.ContainsFunc(desired, func(o schemata.Line) bool { return o.Resource == l.Resource }):
			r.fail(g.Group, keySchemata, fmt.Errorf("refused: %s is named twice", l.Resource))
		default:
			desired = append(desired, l)
		}
	}
	info, err := r.at.Lstat(g.Group)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if g.IfExists || !r.create(g, desired) {
			return
		}
	case err != nil:
		r.fail(g.Group, keyGroup, err)
		return
	case !info.IsDir():
		r.fail(g.Group, keyGroup, fmt.Errorf("refused: %s is not a directory", filepath.Join(r.dir, g.Group)))
		return
	}
	r.writeSchemata(g.Group, desired)
	r.reconcileTasks(g)
}

// create creates a missing group, unless the machine supports none of its lines: then it would have no effect. It reports
// whether the group exists now; in a dry run, whether it would.
func (r *round) create(g *tick.ResctrlGroup, desired []schemata.Line) bool {
	var errs []error
	for _, l := range desired {
		if _, err := r.checkLine(l); err != nil {
			errs = append(errs, err)
		}
	}
	if len(g.Schemata) > 0 && len(errs) == len(desired) {
		for _, err := range errs {
			r.fail(g.Group, keySchemata, fmt.Errorf("refused: %w", err))
		}
		return false
	}
	m, err := r.machineResources()
	if m == nil {
		r.fail(g.Group, keyGroup, err)
		return false
	}
	names, err := groupsIn(r.at)
	if err != nil {
		r.fail(g.Group, keyGroup, err)
		return false
	}
	if m.CLOSIDs > 0 && int64(len(names))+1 >= m.CLOSIDs {
		r.fail(g.Group, keyGroup, fmt.Errorf("not created: the machine supports %d groups, and has the root group and %s", m.CLOSIDs, strings.Join(names, ", ")))
		return false
	}
	if !r.DryRun {
		if err := r.Journal.recordCreation(g.Group); err != nil {
			r.fail(g.Group, keyGroup, fmt.Errorf("not created, because the journal failed: %w", err))
			return false
		}
		if err := r.kernel.mkdir(r.at, g.Group, 0o755); err != nil {
			err = r.explain("create "+filepath.Join(r.dir, g.Group), err)
			if errors.Is(err, fs.ErrPermission) { // the kernel's directory has mode 0555
				err = fmt.Errorf("%w: create it beforehand, or give isolate CAP_DAC_OVERRIDE", err)
			}
			r.fail(g.Group, keyGroup, err)
			r.Journal.recordNotCreated(g.Group)
			return false
		}
		if err := r.Journal.recordCreated(g.Group, inodeOf(r.at, g.Group)); err != nil {
			r.Log.Warn("resctrl: cannot record the new group in the journal", "group", g.Group, "error", err)
		}
	}
	r.addWrite(g.Group, keyGroup, "", g.Group)
	return true
}

// machineResources returns what the machine can divide, read once in a round that writes.
func (r *round) machineResources() (*tick.Resctrl, error) {
	if r.machine != nil {
		return r.machine, nil
	}
	m, err := resctrl.Read(r.Root)
	if m == nil && err == nil {
		err = fmt.Errorf("resctrl was unmounted from %s meanwhile", r.dir)
	}
	r.machine = m
	return m, err
}

// checkLine checks a line against the machine, and returns it in the kernel's form.
func (r *round) checkLine(l schemata.Line) (schemata.Line, error) {
	m, err := r.machineResources()
	if m == nil {
		return l, err
	}
	out, checkErr := schemata.Check(m, l)
	if checkErr != nil && err != nil {
		return l, err // why the machine seems not to support it
	}
	return out, checkErr
}

// writeSchemata writes the lines that differ, one write per line: a line that the kernel rejects does not affect the others.
func (r *round) writeSchemata(group string, desired []schemata.Line) {
	if len(desired) == 0 {
		return
	}
	lines, err := schemataOf(r.at, group)
	if err != nil && !(r.DryRun && errors.Is(err, fs.ErrNotExist)) {
		r.fail(group, keySchemata, err)
		return
	}
	for _, l := range desired {
		current, _ := schemata.Find(lines, l.Resource)
		if current.Contains(l) {
			r.expect(group, current.Select(l))
			r.out.Unchanged++
			continue
		}
		valid, err := r.checkLine(l)
		switch {
		case err != nil:
			r.fail(group, keySchemata, fmt.Errorf("refused: %w", err))
		case current.Contains(valid):
			r.expect(group, current.Select(l))
			r.out.Unchanged++
		case r.isContested(group, current.Select(l)):
		default:
			r.writeLine(group, current.Select(l), valid)
		}
	}
}

// writeLine writes one line and reads it back.
func (r *round) writeLine(group string, old, desired schemata.Line) {
	if r.DryRun {
		r.addWrite(group, keySchemata, textOf(old), desired.String())
		return
	}
	if err := r.Journal.recordChange(group, inodeOf(r.at, group), old, desired); err != nil {
		r.fail(group, keySchemata, fmt.Errorf("not written, because the journal failed: %w", err))
		return
	}
	if err := appendLine(r.at, filepath.Join(group, keySchemata), desired.String()); err != nil {
		r.fail(group, keySchemata, r.explain(fmt.Sprintf("write %q to %s", desired, filepath.Join(r.dir, group, keySchemata)), err))
		return
	}
	lines, err := schemataOf(r.at, group)
	if err != nil {
		r.fail(group, keySchemata, fmt.Errorf("written, but reading it back failed: %w", err))
		return
	}
	written, _ := schemata.Find(lines, desired.Resource)
	r.expect(group, written.Select(desired))
	r.addWrite(group, keySchemata, textOf(old), textOf(written.Select(desired)))
	if !written.Contains(desired) {
		r.fail(group, keySchemata, fmt.Errorf("wrote %q, but it reads %q", desired, textOf(written.Select(desired))))
	}
}

func textOf(l schemata.Line) string {
	if len(l.Values) == 0 {
		return ""
	}
	return l.String()
}
