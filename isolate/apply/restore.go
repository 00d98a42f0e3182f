package apply

import (
	"polder/isolate/plan"
	"polder/lib/phrase"
)

// Restored counts the files of a restore by result.
type Restored struct {
	Back    int // written
	Already int // had the original value already
	Vanished,
	Foreign int // the cgroup is gone; another program changed the value
	// LikeAbove counts the lists that were empty originally and cannot become empty while the cgroup contains
	// processes. They now equal their parent's list, which is what an empty list means. The journal keeps them.
	LikeAbove int
	Failed    int
}

// Restore restores the original value of everything in the journal, in an order that the kernel accepts, and removes the journal when
// everything is restored. It does not touch values that another program changed since, unless force is set.
func (a *Applier) Restore(force bool) (Restored, error) {
	var out Restored
	a.restores = true
	a.readMachine()
	a.readDisks()
	back := a.restoring(force, &out)

	// The kernel ties a cgroup's weight to its idle switch: the weight can be restored only after the switch.
	weights := func(it *restoring) bool { return it.file.Name == "cpu.weight" || it.file.Name == "cpu.shares" }
	var first, second []*restoring
	for _, it := range back {
		if weights(it) {
			second = append(second, it)
		} else {
			first = append(first, it)
		}
	}
	r := &round{}
	r.DryRun = a.DryRun
	a.putBack(r, first)
	a.putBack(r, second)
	for _, w := range r.Writes {
		a.Log.Info("restored", "cgroup", w.Cgroup, "key", w.Key, "old", w.Old, "new", w.New, "dryRun", a.DryRun)
	}
	for _, e := range r.Errors {
		a.Log.Warn("not restored", "cgroup", e.Cgroup, "key", e.Key, "error", e.Error)
	}
	if a.DryRun {
		out.Back = len(r.Writes)
		return out, nil
	}
	a.judge(back, &out)
	if len(a.records) == 0 {
		return out, a.Journal.Remove()
	}
	return out, a.Journal.rewrite()
}

// restoring is one file that is being restored.
type restoring struct {
	file    plan.File
	record  *record
	first   string // the value to restore
	already bool
}

// restoring determines what must be restored.
func (a *Applier) restoring(force bool, out *Restored) []*restoring {
	var back []*restoring
	for _, f := range sortedFiles(a.records) {
		r := a.records[f]
		if a.inode(f) != r.Inode || a.diskGone(f.Device) {
			out.Vanished++
			if !a.DryRun {
				delete(a.records, f)
			}
			continue
		}
		present, err := a.text(f)
		switch {
		case err != nil:
			out.Failed++
			a.Log.Warn("not restored", "cgroup", f.Cgroup, "file", f.Name, "error", err)
		case !force && !r.ours(f.Name, present):
			out.Foreign++
			a.Log.Warn("left alone: changed by someone else (--force restores it too)", "cgroup", f.Cgroup, "file", f.Name, "value", present, "first", r.First)
		default:
			first, err := a.machine.First(f, r.First, present)
			if err != nil {
				out.Failed++
				a.Log.Warn("not restored", "cgroup", f.Cgroup, "file", f.Name, "error", err)
				continue
			}
			back = append(back, &restoring{file: f, record: r, first: first, already: plan.Same(f.Name, present, first)})
		}
	}
	return back
}

// putBack plans and writes. Files that already have their original value take part in the plan, because its order depends on them.
func (a *Applier) putBack(r *round, back []*restoring) {
	settings := make([]plan.Setting, 0, len(back))
	for _, it := range back {
		s, err := plan.Restore(it.file, it.record.Key, it.first, a.Hierarchy.Version(it.file.Controller))
		if err == nil {
			s.Present, err = a.text(s.File)
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
	a.bursts(settings)
	var bound []*plan.Setting
	for i := range settings {
		if s := &settings[i]; s.Bound() && !s.Done() {
			bound = append(bound, s)
		}
	}
	writes, problems := plan.Make(a.machine, settings, a.around(bound, settings))
	for _, p := range problems {
		r.fail(p)
	}
	if a.DryRun {
		for _, w := range writes {
			r.wrote(w, w.Old, w.New)
		}
		return
	}
	a.noteWrites(writes)
	a.carry(r, writes)
}

// noteWrites records what a restore writes, so that a restore that is killed between two writes can be repeated. A
// full disk does not prevent the restore.
func (a *Applier) noteWrites(writes []plan.Write) {
	var entries []entry
	for _, w := range writes {
		if r := a.records[w.File]; r != nil {
			e := entryOf(w.File, r.Inode)
			e.Wrote = &w.New
			entries = append(entries, e)
			r.note(w.New)
		}
	}
	if len(entries) == 0 {
		return
	}
	if err := a.Journal.Append(entries, false); err != nil {
		a.Log.Warn("restoring without noting it", "error", err)
	}
}

// judge reads what the files contain now; restored files are removed from the journal.
func (a *Applier) judge(back []*restoring, out *Restored) {
	for _, it := range back {
		present, err := a.text(it.file)
		switch {
		case err != nil && gone(err):
			out.Vanished++
		case err == nil && a.above[it.file] != "" && plan.Same(it.file.Name, present, a.above[it.file]):
			out.LikeAbove++
			a.Log.Warn("as wide as the cgroup above: the kernel takes no empty list while there are processes; --restore again when there are none",
				"cgroup", it.file.Cgroup, "file", it.file.Name, "value", present)
			continue
		case err != nil || !plan.Same(it.file.Name, present, it.first):
			out.Failed++
			a.Log.Warn("not restored", "cgroup", it.file.Cgroup, "file", it.file.Name, "value", present, "first", it.first, "error", err)
			continue
		case it.already:
			out.Already++
		default:
			out.Back++
		}
		delete(a.records, it.file)
	}
}

// String returns the result in one line.
func (r Restored) String() string {
	return phrase.Nonzero("restored "+phrase.Count(r.Back, "value"),
		phrase.Number{N: r.Already, Text: "unchanged"},
		phrase.Number{N: r.LikeAbove, Text: "set as the cgroup above has it"},
		phrase.Number{N: r.Vanished, Text: "skipped: the cgroup is gone"},
		phrase.Number{N: r.Foreign, Text: "skipped: changed externally"},
		phrase.Number{N: r.Failed, Text: "failed"},
	)
}
