package apply

import (
	"cmp"
	"fmt"
	"slices"

	"polder/isolate/plan"
	"polder/lib/cgroup"
)

// rewriteThreshold is the journal's size from which entries that are no longer needed are removed.
const rewriteThreshold = 1 << 20

// recordOriginals records, before anything is written, the original value of every file that the writes
// change, and the values to be written; changing are the items that the writes are for.
func (a *Applier) recordOriginals(writes []plan.Write, changing []*item) error {
	pending := journalEntries{Applier: a, changed: map[plan.File]*record{}, followers: map[plan.File]bool{}}
	for _, it := range changing {
		pending.followers[it.File] = it.FollowsOriginal()
	}
	for _, w := range writes {
		if err := pending.add(w); err != nil {
			return err
		}
	}
	if a.Journal != nil && len(pending.entries) > 0 {
		if err := a.Journal.Append(pending.entries); err != nil {
			return err
		}
	}
	for f, r := range pending.changed {
		if known := a.records[f]; known != nil && known.Inode == r.Inode {
			*known = *r // others refer to it
		} else {
			a.records[f] = r
		}
	}
	return nil
}

// journalEntries are the entries that the journal needs for some writes.
type journalEntries struct {
	*Applier
	changed   map[plan.File]*record // new ones and changed copies; they become valid when the entries are in the journal, not before
	followers map[plan.File]bool    // files whose desired value follows the original one
	entries   []entry
}

func (n *journalEntries) add(w plan.Write) error {
	isReplaced := func(known *record) bool { return known.isReplaced(w.Name, w.Old, n.followers[w.File]) }
	r, err := n.record(w.File, w.Key, isReplaced, func(present string) (string, bool) {
		return cmp.Or(w.Original, w.Old), present == w.Old
	})
	if err != nil {
		return err
	}
	if r == nil {
		return nil
	}
	n.entries = append(n.entries, r.addWrite(w)...)
	if w.SideEffect == "" {
		return nil
	}
	f := w.File
	f.Name = w.SideEffect
	isReplaced = func(known *record) bool { // read only for a class that was recorded before
		present, err := n.readText(f)
		return err == nil && w.Old == "0" && known.isReplaced(f.Name, present, true)
	}
	r, err = n.record(f, "cpuWeight", isReplaced, func(present string) (string, bool) { return present, true })
	if err != nil {
		return fmt.Errorf("the kernel changes that file with %s: %w", w.Name, err)
	}
	if r != nil && !r.IsSideEffect {
		r.IsSideEffect = true
		e := entryOf(f, r.Inode)
		e.IsSideEffect = true
		n.entries = append(n.entries, e)
	}
	return nil
}

// record returns the record of a file, and creates it if there is none of this very file, or a new original value has replaced that of the
// known record: then original returns the original value, given the present one, or false if that is not what the plan was made for. It
// returns nil if the file is gone or has another value than planned, because it is then not written before the next tick.
func (n *journalEntries) record(f plan.File, key string, isReplaced func(known *record) bool, original func(present string) (string, bool),
) (*record, error) {
	if r := n.changed[f]; r != nil {
		return r, nil
	}
	inode := n.inode(f)
	if inode == 0 {
		return nil, nil
	}
	if known := n.records[f]; known != nil && known.Inode == inode && !isReplaced(known) {
		r := *known
		r.Written = slices.Clone(known.Written)
		n.changed[f] = &r
		return &r, nil
	}
	// The cgroup may have been removed and created again since the plan's values were read, perhaps through the handle of the old one. This
	// reading by the path comes after that of the inode: should the cgroup be replaced in between, then the record is of a cgroup that
	// is gone, and the new one is not written without a record of its own.
	present, err := n.readText(f)
	switch {
	case cgroup.IsGone(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the present value of %s: %w", f.Name, err)
	}
	text, isAsPlanned := original(present)
	if !isAsPlanned {
		return nil, nil
	}
	r := &record{Key: key, Inode: inode, RootInode: n.inode(plan.File{Controller: f.Controller, Cgroup: "/"}), Original: text}
	n.changed[f] = r
	e := entryOf(f, inode)
	e.Key, e.Original, e.RootInode = key, &r.Original, r.RootInode
	n.entries = append(n.entries, e)
	if text != present { // if the write fails the file keeps the present value, which an earlier plan caused
		r.addWritten(present)
		written := entryOf(f, inode)
		written.Written = &present
		n.entries = append(n.entries, written)
	}
	return r, nil
}

// recordAccepted records a list of version 1 that is as desired without a write: the kernel took CPUs that went offline out of it and never
// gives them back, and a later restore must recognize it as isolate's.
func (a *Applier) recordAccepted(it *item) {
	r := a.records[it.File]
	if !it.isAsDesired || !it.IsListV1() || a.DryRun || r == nil || r.isOurs(it.Name, it.Observed) || r.Inode != a.inode(it.File) {
		return
	}
	text := it.Observed
	if a.Journal != nil {
		e := entryOf(it.File, r.Inode)
		e.Written = &text
		if err := a.Journal.Append([]entry{e}); err != nil {
			a.Log.Warn("a list that the kernel changed was not recorded; a restore will leave it", "cgroup", it.Cgroup, "error", err)
			return
		}
	}
	r.addWritten(text)
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
			a.Log.Warn("the journal was not rewritten; it keeps growing", "error", err)
		}
	}
}
