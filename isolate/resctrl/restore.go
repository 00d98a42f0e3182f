package resctrl

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"polder/lib/phrase"
	"polder/lib/resctrl"
	"polder/lib/schemata"
)

// Restored counts what a restore did.
type Restored struct {
	Groups    int // groups that isolate created
	Lines     int // lines restored
	Unchanged int // lines that had their original value already
	Gone      int // groups that are gone, or belong to another program by now
	External  int // lines that another program changed
	Unknown   int // journal entries that another version of isolate wrote
	Failed    int
}

// IsComplete reports whether nothing is left to restore.
func (r Restored) IsComplete() bool { return r.External+r.Unknown+r.Failed == 0 }

// Restore removes the groups that isolate created, which moves their tasks to the root group, restores the original lines of groups that
// existed before, and removes the journal when everything is restored. Tasks that were moved into an existing group stay there.
func (a *Applier) Restore(force bool) (Restored, error) {
	var out Restored
	j := a.Journal
	if j != nil {
		out.Unknown = j.UnknownLines()
	}
	if j.Len() == 0 {
		return out, a.keepRest()
	}
	if _, mounted := resctrl.Mounted(a.Root); !mounted {
		// Either it was unmounted, which removed all groups, or another mount namespace has it, in which they still exist.
		out.Failed = j.Len()
		a.Log.Warn("resctrl: not restored: it is not mounted here; run --restore where it is, "+
			"or remove the journal if it was unmounted, which removed all groups",
			"path", filepath.Join(a.Root, resctrl.Dir), "journal", j.Path())
		return out, nil
	}
	at, err := os.OpenRoot(a.dir)
	if err != nil {
		return out, err
	}
	defer at.Close()
	for _, group := range slices.Sorted(maps.Keys(j.records)) {
		rec := j.records[group]
		switch inode := inodeOf(at, group); {
		case inode == 0, rec.inode != 0 && rec.inode != inode:
			out.Gone++
		case rec.isCreated:
			if !a.removeGroup(at, group, &out) {
				continue
			}
		default:
			if !a.restoreLines(at, group, rec, force, &out) {
				continue
			}
		}
		if !a.DryRun {
			delete(j.records, group)
		}
	}
	return out, a.keepRest()
}

// keepRest leaves in the journal only what is not restored, and removes it if that is nothing: another restore must not change what
// another program has set since.
func (a *Applier) keepRest() error {
	switch {
	case a.DryRun || a.Journal == nil:
		return nil
	case a.Journal.Len() > 0:
		return a.Journal.rewrite()
	}
	return a.Journal.Remove()
}

func (a *Applier) removeGroup(at *os.Root, group string, out *Restored) bool {
	if !a.DryRun {
		if err := a.kernel.rmdir(at, group); err != nil && !errors.Is(err, fs.ErrNotExist) {
			out.Failed++
			a.Log.Warn("resctrl: not removed", "group", group, "error", explain(at, a.dir, "remove "+filepath.Join(a.dir, group), err))
			return false
		}
	}
	out.Groups++
	a.Log.Info("resctrl: removed the group; its tasks are in the root group now", "group", group, "dryRun", a.DryRun)
	return true
}

// restoreLines restores the original lines of a group, without the domains that another program changed. It reports whether all of them
// are restored.
func (a *Applier) restoreLines(at *os.Root, group string, rec *record, force bool, out *Restored) bool {
	name := filepath.Join(group, keySchemata)
	lines, err := schemataOf(at, group)
	if err != nil {
		out.Failed++
		a.Log.Warn("resctrl: not restored", "group", group, "error", err)
		return false
	}
	isComplete := true
	for _, resource := range slices.Sorted(maps.Keys(rec.originals)) {
		original := rec.originals[resource]
		current, _ := schemata.Find(lines, resource)
		if current.Contains(original) {
			out.Unchanged++
			continue
		}
		external := schemata.Line{Resource: resource}
		if !force {
			external = original.Filter(func(v schemata.Value) bool {
				part, found := current.Part(v.ID)
				return !found || part != v.Part && !rec.isOurs(resource, schemata.Value{ID: v.ID, Part: part})
			})
		}
		if len(external.Values) > 0 {
			out.External++
			isComplete = false
			a.Log.Warn("resctrl: skipped: changed externally (--force restores it too)", "group", group,
				"value", textOf(current), "original", external.String())
		}
		original = original.Filter(func(v schemata.Value) bool {
			_, isExternal := external.Part(v.ID)
			return !isExternal
		})
		if current.Contains(original) {
			continue
		}
		if !a.DryRun {
			err := appendLine(at, name, original.String())
			if err == nil {
				var after []schemata.Line
				after, err = schemataOf(at, group)
				if l, _ := schemata.Find(after, resource); err == nil && !l.Contains(original) {
					err = fmt.Errorf("it reads %q after the write", textOf(l))
				}
			}
			if err != nil {
				out.Failed++
				isComplete = false
				a.Log.Warn("resctrl: not restored", "group", group, "error", explain(at, a.dir, fmt.Sprintf("write %q to %s", original, filepath.Join(a.dir, name)), err))
				continue
			}
		}
		out.Lines++
		a.Log.Info("resctrl: restored", "group", group, "old", textOf(current), "new", original.String(), "dryRun", a.DryRun)
	}
	return isComplete
}

// String returns the result in one line.
func (r Restored) String() string {
	return phrase.Nonzero("resctrl: removed "+phrase.Count(r.Groups, "group")+", restored "+phrase.Count(r.Lines, "line"),
		phrase.Number{N: r.Unchanged, Text: "unchanged"},
		phrase.Number{N: r.Gone, Text: "skipped: the group is gone"},
		phrase.Number{N: r.External, Text: "skipped: changed externally"},
		phrase.Number{N: r.Unknown, Text: "skipped: entries of another version of isolate"},
		phrase.Number{N: r.Failed, Text: "not restored"},
	)
}
