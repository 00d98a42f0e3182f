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
	Removed  int // groups that isolate created
	Back     int // lines restored
	Already  int // lines that had their original value already
	Vanished int // groups that are gone, or belong to another program by now
	Foreign  int // lines that another program changed
	Failed   int
}

// Restore removes the groups that isolate created, which moves their tasks to the root group, restores the original lines of groups that
// existed before, and removes the journal when everything is restored. Tasks that were moved into an existing group stay there.
func (a *Applier) Restore(force bool) (Restored, error) {
	var out Restored
	j := a.Journal
	if j.Len() == 0 {
		return out, a.done()
	}
	if _, mounted := resctrl.Mounted(a.Root); !mounted { // unmounting removed all groups
		out.Vanished = j.Len()
		clear(j.records)
		return out, a.done()
	}
	at, err := os.OpenRoot(a.dir)
	if err != nil {
		return out, err
	}
	defer at.Close()
	for _, group := range slices.Sorted(maps.Keys(j.records)) {
		rec := j.records[group]
		switch now := inodeOf(at, group); {
		case now == 0, rec.inode != 0 && rec.inode != now:
			out.Vanished++
		case rec.created:
			if !a.removeGroup(at, group, &out) {
				continue
			}
		default:
			if !a.linesBack(at, group, rec, force, &out) {
				continue
			}
		}
		if !a.DryRun {
			delete(j.records, group)
		}
	}
	return out, a.done()
}

// done removes the journal if it is empty.
func (a *Applier) done() error {
	if a.DryRun || a.Journal == nil || a.Journal.Len() > 0 {
		return nil
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
	out.Removed++
	a.Log.Info("resctrl: group removed, its tasks are the root group's", "group", group, "dryRun", a.DryRun)
	return true
}

// linesBack restores the original lines of a group; it reports whether all of them are restored.
func (a *Applier) linesBack(at *os.Root, group string, rec *record, force bool, out *Restored) bool {
	name := filepath.Join(group, keySchemata)
	read := func() ([]schemata.Line, error) {
		f, err := at.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		text, err := readAll(f)
		return schemata.ParseFile(text), err
	}
	present, err := read()
	if err != nil {
		out.Failed++
		a.Log.Warn("resctrl: not restored", "group", group, "error", err)
		return false
	}
	all := true
	for _, resource := range slices.Sorted(maps.Keys(rec.first)) {
		first := rec.first[resource]
		now, _ := schemata.Find(present, resource)
		ours := slices.ContainsFunc(rec.wrote[resource], now.Holds)
		switch {
		case now.Holds(first):
			out.Already++
			continue
		case !ours && !force:
			out.Foreign++
			all = false
			a.Log.Warn("resctrl: left alone: changed by someone else (--force restores it too)", "group", group, "value", textOf(now), "first", first.String())
			continue
		}
		if !a.DryRun {
			err := appendLine(at, name, first.String())
			if err == nil {
				var after []schemata.Line
				after, err = read()
				if l, _ := schemata.Find(after, resource); err == nil && !l.Holds(first) {
					err = fmt.Errorf("it reads %q after the write", textOf(l))
				}
			}
			if err != nil {
				out.Failed++
				all = false
				a.Log.Warn("resctrl: not restored", "group", group, "error", explain(at, a.dir, fmt.Sprintf("write %q to %s", first, filepath.Join(a.dir, name)), err))
				continue
			}
		}
		out.Back++
		a.Log.Info("resctrl: restored", "group", group, "old", textOf(now), "new", first.String(), "dryRun", a.DryRun)
	}
	return all
}

// String returns the result in one line.
func (r Restored) String() string {
	return phrase.Nonzero("resctrl: removed "+phrase.Count(r.Removed, "group")+", restored "+phrase.Count(r.Back, "line"),
		phrase.Number{N: r.Already, Text: "unchanged"},
		phrase.Number{N: r.Vanished, Text: "skipped: the group is gone"},
		phrase.Number{N: r.Foreign, Text: "skipped: changed externally"},
		phrase.Number{N: r.Failed, Text: "failed"},
	)
}
