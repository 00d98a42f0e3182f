package apply

import (
	"fmt"

	"polder/isolate/plan"
)

// rewriteAt is the journal's size from which entries that are no longer needed are removed.
const rewriteAt = 1 << 20

// remember records, before anything is written, the original value of every file that the writes change, and the values to be written.
func (a *Applier) remember(writes []plan.Write) error {
	n := notes{Applier: a, noted: map[plan.File]*record{}}
	for _, w := range writes {
		if err := n.add(w); err != nil {
			return err
		}
	}
	if a.Journal != nil {
		if err := a.Journal.Append(n.entries, n.firsts); err != nil {
			return err
		}
	}
	for _, e := range n.entries {
		f := e.file()
		r := n.noted[f]
		a.records[f] = r
		r.Disturbed = r.Disturbed || e.Disturbed
		if e.Wrote != nil {
			r.note(*e.Wrote)
		}
	}
	return nil
}

// notes are the entries that the journal needs for some writes.
type notes struct {
	*Applier
	noted   map[plan.File]*record // they become valid when the entries are on the disk, not before
	entries []entry
	firsts  bool // some of the entries contain an original value
}

func (n *notes) add(w plan.Write) error {
	r := n.record(w.File, w.Key, w.Old)
	if r == nil {
		return nil
	}
	e := entryOf(w.File, r.Inode)
	e.Wrote = &w.New
	n.entries = append(n.entries, e)
	if w.Disturbs == "" {
		return nil
	}
	f := w.File
	f.Name = w.Disturbs
	observed, err := n.Hierarchy.ReadFile(f.Controller, f.Cgroup, f.Name)
	switch {
	case gone(err):
		return nil
	case err != nil:
		return fmt.Errorf("read what the write of %s changes too: %w", w.Name, err)
	}
	if r := n.record(f, "cpuWeight", observed); r != nil {
		e := entryOf(f, r.Inode)
		e.Disturbed = true
		n.entries = append(n.entries, e)
	}
	return nil
}

// record returns the record of a file, and creates it if there is none of this very file. It returns nil if the file is gone,
// because it is then not written.
func (n *notes) record(f plan.File, key, observed string) *record {
	r := n.noted[f]
	if r != nil {
		return r
	}
	inode := n.inode(f)
	if inode == 0 {
		return nil
	}
	if r = n.records[f]; r == nil || r.Inode != inode {
		r = &record{Key: key, Inode: inode, First: observed}
		e := entryOf(f, inode)
		e.Key, e.First = key, &r.First
		n.entries = append(n.entries, e)
		n.firsts = true
	}
	n.noted[f] = r
	return r
}

// leastPrune is the number of records from which records of removed cgroups are searched.
const leastPrune = 512

// prune removes the records of removed cgroups once there are many, so that neither memory nor the journal grows as cgroups come and go.
func (a *Applier) prune() {
	large := a.Journal != nil && a.Journal.Size() > max(rewriteAt, int64(len(a.records))*2048)
	if len(a.records) < a.pruneAt && !large {
		return
	}
	for f, r := range a.records {
		if a.inode(f) != r.Inode {
			delete(a.records, f)
		}
	}
	a.pruneAt = max(leastPrune, 2*len(a.records))
	if a.Journal != nil {
		if err := a.Journal.rewrite(); err != nil {
			a.Log.Warn("the journal grows on", "error", err)
		}
	}
}
