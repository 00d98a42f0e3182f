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

// shownBytes is the maximum length of foreign text in a message.
const shownBytes = 400

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
	// Contest is how often a line that another program changes is written again before it is left alone.
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
	// unmounted means that the last round found resctrl not mounted.
	unmounted bool

	lines  map[line]*contest
	walked map[string]string // the cgroups whose tasks were read, with their group
	allAt  time.Time         // when all of them were read
	buf    []byte
	have   []uint64
	fresh  []uint64
}

// line is one resource of one group.
type line struct{ group, resource string }

// New returns an Applier.
func New(o Options) *Applier {
	return &Applier{
		Options: o, dir: filepath.Join(o.Root, resctrl.Dir), kernel: kernel{mkdir: (*os.Root).Mkdir, rmdir: (*os.Root).Remove, move: moveTask},
		lines: map[line]*contest{}, walked: map[string]string{}, buf: make([]byte, 4096),
	}
}

// Apply applies the desired groups as far as possible, and adds what it did to out.
func (a *Applier) Apply(out *tick.Isolation, desired []tick.ResctrlGroup) {
	if len(desired) == 0 {
		return
	}
	r := &round{Applier: a, out: out}
	_, mounted := resctrl.Mounted(a.Root)
	reported := a.unmounted
	if a.unmounted = !mounted; !mounted {
		out.Unavailable = append(out.Unavailable, keyAll)
		if reported {
			return
		}
		r.fail("", keyAll, fmt.Errorf("unavailable: resctrl is not mounted at %s (mount -t resctrl resctrl /sys/fs/resctrl, where the processor has it): left alone", a.dir))
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
	r.pace()
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
			r.group(g)
		}
	}
	for l := range a.lines {
		if !seen[l.group] {
			delete(a.lines, l)
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
		return fmt.Errorf("%q: a group's name has letters, digits, _, - and dots, and begins with no dot", name)
	case slices.Contains(kernels, name):
		return fmt.Errorf("%q is the kernel's own", name)
	}
	return nil
}

// kernels are the kernel's directories that are not groups.
var kernels = []string{"info", "mon_groups", "mon_data"}

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
	e := tick.IsolationError{Cgroup: place(group), Key: key, Error: clip.Text(err.Error(), shownBytes)}
	if len(r.out.Errors) < maxListed {
		r.out.Errors = append(r.out.Errors, e)
	}
}

// place names a group in the tick, in the place of a cgroup.
func place(group string) string {
	if group == "" {
		return "resctrl"
	}
	return "resctrl/" + group
}

func (r *round) wrote(group, key, old, now string) {
	if !r.DryRun {
		r.out.Applied++
	}
	if len(r.out.Writes) < maxListed {
		r.out.Writes = append(r.out.Writes, tick.Write{
			Cgroup: place(group), Key: key, Old: clip.Text(old, shownBytes),
			New: clip.Text(now, shownBytes),
		})
	}
}

// group reconciles one group.
func (r *round) group(g *tick.ResctrlGroup) {
	if g.IfExists && len(g.Schemata) == 0 {
		return // advised while resctrl was not mounted: its desired lines are unknown
	}
	var want []schemata.Line
	for _, text := range g.Schemata {
		l, err := schemata.Parse(text)
		switch {
		case err != nil:
			r.fail(g.Group, keySchemata, fmt.Errorf("refused: %w", err))
		case slices.ContainsFunc(want, func(o schemata.Line) bool { return o.Resource == l.Resource }):
			r.fail(g.Group, keySchemata, fmt.Errorf("refused: %s is named twice", l.Resource))
		default:
			want = append(want, l)
		}
	}
	info, err := r.at.Lstat(g.Group)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if g.IfExists || !r.create(g, want) {
			return
		}
	case err != nil:
		r.fail(g.Group, keyGroup, err)
		return
	case !info.IsDir():
		r.fail(g.Group, keyGroup, fmt.Errorf("refused: %s is no directory", filepath.Join(r.dir, g.Group)))
		return
	}
	r.schemata(g.Group, want)
	r.tasks(g)
}

// create creates a missing group, unless the machine supports none of its lines: then it would have no effect. It reports
// whether the group exists now; in a dry run, whether it would.
func (r *round) create(g *tick.ResctrlGroup, want []schemata.Line) bool {
	var bad []error
	for _, l := range want {
		if _, err := r.check(l); err != nil {
			bad = append(bad, err)
		}
	}
	if len(g.Schemata) > 0 && len(bad) == len(want) {
		for _, err := range bad {
			r.fail(g.Group, keySchemata, fmt.Errorf("refused: %w", err))
		}
		return false
	}
	m, err := r.what()
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
		r.fail(g.Group, keyGroup, fmt.Errorf("not made: the machine has %d groups in all, the root's and %s", m.CLOSIDs, strings.Join(names, ", ")))
		return false
	}
	if !r.DryRun {
		if err := r.Journal.creates(g.Group); err != nil {
			r.fail(g.Group, keyGroup, fmt.Errorf("not made, for it could not be removed again: %w", err))
			return false
		}
		if err := r.kernel.mkdir(r.at, g.Group, 0o755); err != nil {
			err = r.explain("make "+filepath.Join(r.dir, g.Group), err)
			if errors.Is(err, fs.ErrPermission) { // the kernel's directory has mode 0555
				err = fmt.Errorf("%w: make it beforehand, or give isolate CAP_DAC_OVERRIDE", err)
			}
			r.fail(g.Group, keyGroup, err)
			r.Journal.forget(g.Group)
			return false
		}
		if err := r.Journal.created(g.Group, inodeOf(r.at, g.Group)); err != nil {
			r.Log.Warn("resctrl: the journal does not know which directory was made", "group", g.Group, "error", err)
		}
	}
	r.wrote(g.Group, keyGroup, "", g.Group)
	return true
}

// what returns what the machine can divide, read once in a round that writes.
func (r *round) what() (*tick.Resctrl, error) {
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

// check checks a line against the machine, and returns it in the kernel's form.
func (r *round) check(l schemata.Line) (schemata.Line, error) {
	m, err := r.what()
	if m == nil {
		return l, err
	}
	out, bad := schemata.Check(m, l)
	if bad != nil && err != nil {
		return l, err // why the machine seems not to support it
	}
	return out, bad
}

// schemata writes the lines that differ, one write per line: a line that the kernel rejects does not affect the others.
func (r *round) schemata(group string, want []schemata.Line) {
	if len(want) == 0 {
		return
	}
	text, err := r.read(group)
	if err != nil && !(r.DryRun && errors.Is(err, fs.ErrNotExist)) {
		r.fail(group, keySchemata, err)
		return
	}
	present := schemata.ParseFile(text)
	for _, l := range want {
		now, _ := schemata.Find(present, l.Resource)
		if now.Holds(l) {
			r.agree(group, now.Only(l))
			r.out.Unchanged++
			continue
		}
		sound, err := r.check(l)
		switch {
		case err != nil:
			r.fail(group, keySchemata, fmt.Errorf("refused: %w", err))
		case now.Holds(sound):
			r.agree(group, now.Only(l))
			r.out.Unchanged++
		case r.contested(group, now.Only(l)):
		default:
			r.write(group, now.Only(l), sound)
		}
	}
}

func (r *round) read(group string) (string, error) {
	f, err := r.at.Open(filepath.Join(group, keySchemata))
	if err != nil {
		return "", err
	}
	defer f.Close()
	return readAll(f)
}

// write writes one line and reads it back.
func (r *round) write(group string, old, now schemata.Line) {
	if r.DryRun {
		r.wrote(group, keySchemata, textOf(old), now.String())
		return
	}
	if err := r.Journal.changes(group, inodeOf(r.at, group), old, now); err != nil {
		r.fail(group, keySchemata, fmt.Errorf("not written, for it could not be put back: %w", err))
		return
	}
	if err := appendLine(r.at, filepath.Join(group, keySchemata), now.String()); err != nil {
		r.fail(group, keySchemata, r.explain(fmt.Sprintf("write %q to %s", now, filepath.Join(r.dir, group, keySchemata)), err))
		return
	}
	text, err := r.read(group)
	if err != nil {
		r.fail(group, keySchemata, fmt.Errorf("written, but not to be read back: %w", err))
		return
	}
	found, _ := schemata.Find(schemata.ParseFile(text), now.Resource)
	r.agree(group, found.Only(now))
	r.wrote(group, keySchemata, textOf(old), textOf(found.Only(now)))
	if !found.Holds(now) {
		r.fail(group, keySchemata, fmt.Errorf("wrote %q, but it reads %q", now, textOf(found.Only(now))))
	}
}

func textOf(l schemata.Line) string {
	if len(l.Values) == 0 {
		return ""
	}
	return l.String()
}
