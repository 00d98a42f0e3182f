package apply

import (
	"cmp"
	"errors"
	"path"
	"slices"

	"polder/isolate/plan"
	"polder/lib/cgroup"
	"polder/lib/phrase"
)

// Restored counts the files of a restore by result.
type Restored struct {
	Values    int // written
	Unchanged int // had the original value already
	Gone,
	External int // the cgroup is gone; another program changed the value
	// LikeParent counts the lists that were empty originally and cannot become empty while the cgroup contains
	// processes. They now equal their parent's list, which is what an empty list means. The journal keeps them.
	LikeParent int
	// Unknown counts the journal's entries that another version of isolate wrote. The journal keeps them.
	Unknown int
	Failed  int
}

// Restore restores the original value of everything in the journal, in an order that the kernel accepts, and removes the journal when
// everything is restored. Unless force is set, it does not touch values that another program changed since, nor does it write a memory
// limit that the kernel could enforce only by killing.
func (a *Applier) Restore(force bool) (Restored, error) {
	out := Restored{Unknown: a.Journal.UnknownLines()}
	a.isRestoring = true
	a.readMachine()
	a.readDisks()
	files := a.filesToRestore(force, &out)

	// The kernel ties a cgroup's weight to its idle switch: the weight can be restored only after the switch.
	isWeight := func(it *restoredFile) bool { return it.file.Name == "cpu.weight" || it.file.Name == "cpu.shares" }
	var first, second []*restoredFile
	for _, it := range files {
		if isWeight(it) {
			second = append(second, it)
		} else {
			first = append(first, it)
		}
	}
	r := &round{}
	r.DryRun = a.DryRun
	temporary := slices.Concat(a.restoreFiles(r, first), a.restoreFiles(r, second))
	for _, w := range r.Writes {
		a.Log.Info("restored", "cgroup", w.Cgroup, "key", w.Key, "old", w.Old, "new", w.New, "dryRun", a.DryRun)
	}
	for _, e := range r.Errors {
		a.Log.Warn("not restored", "cgroup", e.Cgroup, "key", e.Key, "error", e.Error)
	}
	if a.DryRun {
		out.addPlanned(files)
		return out, nil
	}
	restored := map[plan.File]bool{}
	a.verify(files, &out, restored)
	a.verifyTemporary(temporary, &out, restored)
	a.forget(restored)
	if len(a.records) == 0 {
		return out, a.Journal.Remove()
	}
	return out, a.Journal.rewrite()
}

// restoredFile is one file that is being restored.
type restoredFile struct {
	file        plan.File
	record      *record
	text        string // the value to restore
	isUnchanged bool
	isPlanned   bool // in a dry run, that it would be written
}

// addPlanned adds the files that a dry run would restore.
func (r *Restored) addPlanned(files []*restoredFile) {
	for _, it := range files {
		switch {
		case it.isUnchanged:
			r.Unchanged++
		case it.isPlanned:
			r.Values++
		default:
			r.Failed++
		}
	}
}

// filesToRestore determines what must be restored.
func (a *Applier) filesToRestore(force bool, out *Restored) []*restoredFile {
	var files []*restoredFile
	for _, f := range sortedFiles(a.records) {
		r := a.records[f]
		inode, err := a.inodeOrError(f)
		if err != nil {
			out.Failed++
			a.Log.Warn("not restored: it is unknown whether the cgroup still exists", "cgroup", f.Cgroup, "file", f.Name, "error", err)
			continue
		}
		if inode != r.Inode || a.isDiskGone(f.Device) {
			out.Gone++
			if !a.DryRun {
				delete(a.records, f)
			}
			continue
		}
		observed, err := a.readText(f)
		switch {
		case err != nil:
			out.Failed++
			a.Log.Warn("not restored", "cgroup", f.Cgroup, "file", f.Name, "error", err)
		case r.isReplaced(f.Name, observed, false): // isolate has no value of its own there
			out.Unchanged++
			if !a.DryRun {
				delete(a.records, f)
			}
		case !force && !a.isRestorable(f, r, observed):
			out.External++
			a.Log.Warn("skipped: changed externally (--force restores it too)", "cgroup", f.Cgroup, "file", f.Name, "value", observed, "original", r.Original)
		default:
			text, err := a.restoreText(f, r.Original, observed, force)
			if err != nil {
				out.Failed++
				a.Log.Warn("not restored", "cgroup", f.Cgroup, "file", f.Name, "error", err)
				continue
			}
			files = append(files, &restoredFile{file: f, record: r, text: text, isUnchanged: plan.Same(f.Name, observed, text)})
		}
	}
	return files
}

// restoreText returns the text that a restore may write: the original value, as far as kubelet and CPU partitions leave it. It
// returns an error, and the record stays in the journal, if nothing may be written. force permits a limit that kills.
func (a *Applier) restoreText(f plan.File, original, observed string, force bool) (string, error) {
	if reason := a.partitionReason(f); reason != "" {
		if !plan.Same(f.Name, observed, original) {
			return "", errors.New(reason)
		}
		return observed, nil
	}
	if !force && !plan.Same(f.Name, observed, original) {
		if reason := a.killReason(f, original); reason != "" {
			return "", errors.New(reason + "; run --restore again when it uses less, or with --force")
		}
	}
	return a.machine.RestoreText(f, original, observed)
}

// isRestorable reports whether a value is the original one, one that isolate wrote, or one that the kernel set as a side effect of another
// write: a weight while the cgroup is idle, or the default weight that the kernel gives a cgroup when it is no longer idle.
func (a *Applier) isRestorable(f plan.File, r *record, observed string) bool {
	if r.isOurs(f.Name, observed) {
		return true
	}
	if !r.IsSideEffect {
		return false
	}
	if observed == plan.DefaultWeight(a.Hierarchy.Version(f.Controller)) {
		return true
	}
	idle, err := a.Hierarchy.ReadFile(f.Controller, f.Cgroup, "cpu.idle")
	return err == nil && idle == "1"
}

// restoreFiles plans and writes. Files that already have their original value take part in the plan, because its order depends on them.
// It returns the files that were recorded because the plan changes them temporarily (see recordWrites).
func (a *Applier) restoreFiles(r *round, files []*restoredFile) (temporary []plan.File) {
	settings := make([]plan.Setting, 0, len(files))
	for _, it := range files {
		s, err := plan.RestoreSetting(it.file, it.record.Key, it.text, a.Hierarchy.Version(it.file.Controller))
		if err == nil {
			s.Observed, err = a.readText(s.File)
		}
		if period := s.PeriodFile(); err == nil && period != "" {
			s.Period, err = a.Hierarchy.ReadFile(s.Controller, s.Cgroup, period)
		}
		if quota := s.QuotaFile(); err == nil && quota != "" {
			s.Quota, err = a.Hierarchy.ReadFile(s.Controller, s.Cgroup, quota)
		}
		if err != nil {
			a.Log.Warn("not restored", "cgroup", it.file.Cgroup, "file", it.file.Name, "error", err)
			continue
		}
		settings = append(settings, s)
	}
	a.readRelated(settings)
	var bound []*plan.Setting
	for i := range settings {
		if s := &settings[i]; s.IsBounded() && !s.IsAsDesired() {
			bound = append(bound, s)
		}
	}
	writes, problems := plan.Make(a.machine, settings, a.readNeighbours(bound, settings))
	for _, p := range problems {
		r.fail(p)
	}
	if a.DryRun {
		r.addPlanned(writes)
		planned := make(map[plan.File]bool, len(writes))
		for _, w := range writes {
			planned[w.File] = true
		}
		for _, it := range files {
			it.isPlanned = planned[it.file]
		}
		return nil
	}
	temporary = a.recordWrites(writes)
	a.execute(r, writes)
	return temporary
}

// recordWrites records what a restore writes, so that a restore that is killed between two writes can be repeated. A
// full disk does not prevent the restore.
//
// The files that have no record, and that the plan changes only temporarily, get one, and are returned: a burst must yield to its quota for
// a moment, and a cgroup that was created under a squeezed list follows its parent. Other files without a record get the value that the
// restored state needs, which a repeated restore determines again.
func (a *Applier) recordWrites(writes []plan.Write) (temporary []plan.File) {
	pending := journalEntries{Applier: a, changed: map[plan.File]*record{}}
	regained := regainedFiles(writes)
	for _, w := range writes {
		r := a.records[w.File]
		if r == nil && regained[w.File] {
			var err error
			isReplaced := func(*record) bool { return false } // there is no record
			r, err = pending.record(w.File, w.Key, isReplaced, func(present string) (string, bool) {
				return cmp.Or(w.Original, w.Old), present == w.Old
			})
			if err != nil {
				a.Log.Warn("a value that the restore changes temporarily was not recorded; restoring anyway",
					"cgroup", w.Cgroup, "file", w.Name, "error", err)
			}
		}
		if r != nil {
			pending.entries = append(pending.entries, r.addWrite(w)...)
		}
	}
	for f, r := range pending.changed {
		a.records[f] = r
		temporary = append(temporary, f)
	}
	if len(pending.entries) == 0 {
		return temporary
	}
	if err := a.Journal.Append(pending.entries); err != nil {
		a.Log.Warn("the restore was not recorded in the journal; restoring anyway", "error", err)
	}
	return temporary
}

// regainedFiles returns the files that have their original value at the end of a plan.
func regainedFiles(writes []plan.Write) map[plan.File]bool {
	original, regained := map[plan.File]string{}, map[plan.File]bool{}
	for _, w := range writes {
		if _, isKnown := original[w.File]; !isKnown {
			original[w.File] = cmp.Or(w.Original, w.Old)
		}
		regained[w.File] = plan.Same(w.Name, w.New, original[w.File])
	}
	return regained
}

// verifyTemporary adds the files that the restore changed temporarily to the restored ones, if they have their original values again.
func (a *Applier) verifyTemporary(files []plan.File, out *Restored, restored map[plan.File]bool) {
	for _, f := range files {
		r := a.records[f]
		if observed, err := a.readText(f); err != nil && !cgroup.IsGone(err) || err == nil && !plan.Same(f.Name, observed, r.Original) {
			out.Failed++
			a.Log.Warn("changed by the restore, and not restored", "cgroup", f.Cgroup, "file", f.Name, "value", observed,
				"original", r.Original, "error", err)
			continue
		}
		restored[f] = true
	}
}

// forget removes the records of restored files from the journal. It keeps those of lists below one that could not be restored: without its
// record the next restore could not tell such a list from one that was filled from the parent's.
func (a *Applier) forget(restored map[plan.File]bool) {
	for _, f := range sortedFiles(restored) { // parents before children
		if !a.isBelowUnrestored(f) {
			delete(a.records, f)
		}
	}
}

func (a *Applier) isBelowUnrestored(f plan.File) bool {
	for a.machine.IsListV1(f) && f.Cgroup != "/" {
		f.Cgroup = path.Dir(f.Cgroup)
		if a.records[f] != nil {
			return true
		}
	}
	return false
}

// verify reads what the files contain now, and adds those that are restored.
func (a *Applier) verify(files []*restoredFile, out *Restored, restored map[plan.File]bool) {
	for _, it := range files {
		observed, err := a.readText(it.file)
		switch {
		case cgroup.IsGone(err):
			out.Gone++
		case err == nil && a.parentLists[it.file] != "" && plan.Same(it.file.Name, observed, a.parentLists[it.file]):
			out.LikeParent++
			a.Log.Warn("set to the parent's list: the kernel accepts no empty list while the cgroup has processes; run --restore again when it has none",
				"cgroup", it.file.Cgroup, "file", it.file.Name, "value", observed)
			continue
		case err != nil || !plan.Same(it.file.Name, observed, it.text):
			out.Failed++
			a.Log.Warn("not restored", "cgroup", it.file.Cgroup, "file", it.file.Name, "value", observed, "original", it.text, "error", err)
			continue
		case it.isUnchanged:
			out.Unchanged++
		default:
			out.Values++
		}
		restored[it.file] = true
	}
}

// IsComplete reports whether nothing is left to restore.
func (r Restored) IsComplete() bool { return r.External+r.Unknown+r.Failed == 0 }

// String returns the result in one line.
func (r Restored) String() string {
	return phrase.Nonzero("restored "+phrase.Count(r.Values, "value"),
		phrase.Number{N: r.Unchanged, Text: "unchanged"},
		phrase.Number{N: r.LikeParent, Text: "set to the parent's list"},
		phrase.Number{N: r.Gone, Text: "skipped: the cgroup is gone"},
		phrase.Number{N: r.External, Text: "skipped: changed externally"},
		phrase.Number{N: r.Unknown, Text: "skipped: entries of another version of isolate"},
		phrase.Number{N: r.Failed, Text: "not restored"},
	)
}
