package apply

import (
	"fmt"

	"polder/isolate/plan"
)

// rewriteAt is the size from which a journal is looked through for what is of no more use.
const rewriteAt = 1 << 20

// remember notes, before anything is written, the first value of every file that the writes change, and what they write.
func (a *Applier) remember(writes []plan.Write) error {
	var entries []entry
	firsts := false
	fresh := map[plan.File]*record{} // not believed before they are on the disk
	recordOf := func(f plan.File, key, present string) *record {
		r := fresh[f]
		if r != nil {
			return r
		}
		inode := a.inode(f)
		if inode == 0 {
			return nil // gone: it will not be written
		}
		if r = a.records[f]; r == nil || r.Inode != inode {
			r = &record{Key: key, Inode: inode, First: present}
			e := entryOf(f, inode)
			e.Key, e.First = key, &r.First
			entries = append(entries, e)
			firsts = true
		}
		fresh[f] = r
		return r
	}
	for _, w := range writes {
		r := recordOf(w.File, w.Key, w.Old)
		if r == nil {
			continue
		}
		text := w.New
		e := entryOf(w.File, r.Inode)
		e.Wrote = &text
		entries = append(entries, e)
		if w.Disturbs != "" {
			f := w.File
			f.Name = w.Disturbs
			present, err := a.Hierarchy.ReadFile(f.Controller, f.Cgroup, f.Name)
			if err != nil {
				if gone(err) {
					continue
				}
				return fmt.Errorf("read what the write of %s changes too: %w", w.Name, err)
			}
			if r := recordOf(f, "cpuWeight", present); r != nil {
				e := entryOf(f, r.Inode)
				e.Disturbed = true
				entries = append(entries, e)
			}
		}
	}
	if a.Journal != nil {
		if err := a.Journal.Append(entries, firsts); err != nil {
			return err
		}
	}
	for _, e := range entries {
		f := e.file()
		r := fresh[f]
		a.records[f] = r
		r.Disturbed = r.Disturbed || e.Disturbed
		if e.Wrote != nil {
			r.note(*e.Wrote)
		}
	}
	return nil
}

// leastPrune is the least number of records at which those of cgroups that are gone are looked for.
const leastPrune = 512

// prune forgets the cgroups that are gone once there are many, so that neither memory nor journal grow with the churn.
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
