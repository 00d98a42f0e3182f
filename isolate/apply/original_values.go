package apply

import (
	"cmp"
	"fmt"

	"polder/isolate/plan"
)

// rewriteThreshold is the journal's size from which entries that are no longer needed are removed.
const rewriteThreshold = 1 << 20

// recordOriginals records, before anything is written, the original value of every file that the writes
// change, and the values to be written.
func (a *Applier) recordOriginals(writes []plan.Write) error {
	notes := journalEntries{Applier: a, newRecords: map[plan.File]*record{}}
	for _, w := range writes {
		if err := notes.add(w); err != nil {
			return err
		}
	}
	if a.Journal != nil {
		if err := a.Journal.Append(notes.entries); err != nil {
			return err
		}
	}
	for _, e := range notes.entries {
		f := e.file()
		r := notes.newRecords[f]
		a.records[f] = r
		r.IsSideEffect = r.IsSideEffect || e.IsSideEffect
		if e.Written != nil {
			r.addWritten(*e.Written)
		}
	}
	return nil
}

// journalEntries are the entries that the journal needs for some writes.
type journalEntries struct {
	*Applier
	newRecords map[plan.File]*record // they become valid when the entries are in the journal, not before
	entries    []entry
}

func (n *journalEntries) add(w plan.Write) error {
	r := n.record(w.File, w.Key, w.Old, cmp.Or(w.Original, w.Old))
	if r == nil {
		return nil
	}
	e := entryOf(w.File, r.Inode)
	e.Written = &w.New
	n.entries = append(n.entries, e)
	if w.SideEffect == "" {
		return nil
	}
	f := w.File
	f.Name = w.SideEffect
	observed, err := n.Hierarchy.ReadFile(f.Controller, f.Cgroup, f.Name)
	switch {
	case isGone(err):
		return nil
	case err != nil:
		return fmt.Errorf("read the file that the kernel changes with %s: %w", w.Name, err)
	}
	if r := n.record(f, "cpuWeight", observed, observed); r != nil {
		e := entryOf(f, r.Inode)
		e.IsSideEffect = true
		n.entries = append(n.entries, e)
	}
	return nil
}

// record returns the record of a file, and creates it if there is none of this very file. It returns nil if the file is gone,
// because it is then not written.
func (n *journalEntries) record(f plan.File, key, observed, original string) *record {
	r := n.newRecords[f]
	if r != nil {
		return r
	}
	inode := n.inode(f)
	if inode == 0 {
		return nil
	}
	if r = n.records[f]; r == nil || r.Inode != inode {
		r = &record{Key: key, Inode: inode, RootInode: n.inode(plan.File{Controller: f.Controller, Cgroup: "/"}), Original: original}
		e := entryOf(f, inode)
		e.Key, e.Original, e.RootInode = key, &r.Original, r.RootInode
		n.entries = append(n.entries, e)
		if original != observed { // the present value is a plan's as well, should the write not come to pass
			present := entryOf(f, inode)
			present.Written = &observed
			n.entries = append(n.entries, present)
		}
	}
	n.newRecords[f] = r
	return r
}

// minPruneThreshold is the number of records from which records of removed cgroups are searched.
const minPruneThreshold = 512

// prune removes the records of removed cgroups once there are many, so that neither memory nor the journal grows as cgroups come and go.
// It keeps those of cgroups that cannot be looked at: they may still exist.
func (a *Applier) prune() {
	isLarge := a.Journal != nil && a.Journal.Size() > max(rewriteThreshold, int64(len(a.records))*2048)
	if len(a.records) < a.pruneThreshold && !isLarge {
		return
	}
	for f, r := range a.records {
		if inode, err := a.inodeOrError(f); err == nil && inode != r.Inode {
			delete(a.records, f)
		}
	}
	a.pruneThreshold = max(minPruneThreshold, 2*len(a.records))
	if a.Journal != nil {
		if err := a.Journal.rewrite(); err != nil {
			a.Log.Warn("cannot rewrite the journal; it keeps growing", "error", err)
		}
	}
}
