package apply

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"polder/isolate/journal"
	"polder/isolate/plan"
	"polder/lib/cgroup"
)

// entry is one line of the journal: the original value of a file, which a later one may replace (see record.isReplaced), or a value about
// to be written.
type entry struct {
	Controller string      `json:"controller"`
	Cgroup     journalPath `json:"cgroup"`
	File       string      `json:"file"`
	Device     string      `json:"device,omitempty"`
	Key        string      `json:"key,omitempty"`
	// Inode is the cgroup's inode. With the boot ID of the stamp it ensures that another cgroup of the same name never gets this value.
	Inode uint64 `json:"inode"`
	// RootInode is the inode of the root cgroup that was seen, beside an original value. In another cgroup namespace the same paths name
	// other cgroups, and the cgroups of the journal cannot be seen.
	RootInode uint64 `json:"root,omitempty"`
	journal.Stamp

	Original *string `json:"first,omitempty"`
	Written  *string `json:"wrote,omitempty"`
	// IsSideEffect means that the kernel changes the value as a side effect of another write.
	IsSideEffect bool `json:"disturbed,omitempty"`
}

func entryOf(f plan.File, inode uint64) entry {
	return entry{Controller: f.Controller, Cgroup: journalPath(f.Cgroup), File: f.Name, Device: f.Device, Inode: inode}
}

func (e *entry) file() plan.File {
	return plan.File{Controller: e.Controller, Cgroup: string(e.Cgroup), Name: e.File, Device: e.Device}
}

// record is what the journal contains about one file.
type record struct {
	Key          string
	Inode        uint64
	RootInode    uint64 // 0 if unknown
	Original     string
	Written      []string // the last different ones, the newest at the end
	IsSideEffect bool
}

// maxWritten is the number of written values that are remembered for a file: one plan writes a file at most three times. A process that was
// killed during a plan may have stopped before any of these writes, and the kernel may refuse all of them: then the file keeps its value
// from before the plan.
const maxWritten = 4

// isOurs reports whether the value is the original one or one that isolate wrote.
func (r *record) isOurs(name, text string) bool {
	if plan.Same(name, text, r.Original) {
		return true
	}
	return slices.ContainsFunc(r.Written, func(w string) bool { return plan.Same(name, text, w) })
}

// isReplaced reports whether a file's present value is a new original one: another program set it while isolate had no value of its own
// there, or, if follows is true, while isolate's value was derived from the original one. A value that the kernel sets by itself is none.
func (r *record) isReplaced(name, text string, follows bool) bool {
	if plan.IsChangedByKernel(name) || r.isOurs(name, text) || r.IsSideEffect && plan.IsIdleWeight(name, text) {
		return false
	}
	hasOwnValue := len(r.Written) > 0 && !plan.Same(name, r.Written[len(r.Written)-1], r.Original)
	return follows || !hasOwnValue
}

// addWritten adds a value as the newest one, and reports whether that changed the record.
func (r *record) addWritten(text string) bool {
	if n := len(r.Written); n > 0 && r.Written[n-1] == text {
		return false
	}
	r.Written = append(slices.DeleteFunc(r.Written, func(w string) bool { return w == text }), text)
	r.Written = r.Written[max(0, len(r.Written)-maxWritten):]
	return true
}

// addWrite adds the value of a write that is about to be made, and returns the entries that the journal needs for it. If the file has an
// earlier value of isolate's, that one is added again before: otherwise refused writes, of which every one is recorded, would push it out.
func (r *record) addWrite(w plan.Write) []entry {
	texts := []string{w.New}
	if n := len(r.Written); n > 0 && r.Written[n-1] != w.New && !plan.Same(w.Name, w.Old, r.Original) && r.isOurs(w.Name, w.Old) {
		texts = []string{w.Old, w.New}
	}
	var entries []entry
	for _, text := range texts {
		if r.addWritten(text) {
			e := entryOf(w.File, r.Inode)
			e.Written = &text
			entries = append(entries, e)
		}
	}
	return entries
}

// Journal is the file that stores the original value of everything that was changed. It is locked while it is open.
type Journal struct {
	*journal.File[entry, *entry]
	records map[plan.File]*record
}

// ErrInUse is returned if another isolate has the journal open.
var ErrInUse = journal.ErrInUse

// OpenJournal opens the journal at path, creates it if it does not exist, and reads it. root is the root directory of the machine.
func OpenJournal(path, root string, now func() time.Time) (*Journal, error) {
	j := &Journal{records: map[plan.File]*record{}}
	var err error
	if j.File, err = journal.Open(path, root, now, (*entry).kind, j.load); err != nil {
		return nil, err
	}
	return j, nil
}

// ReadJournal reads the journal at path without locking or creating it, for a dry run: another isolate may have it open. It is empty if it
// does not exist.
func ReadJournal(path, root string, now func() time.Time) (*Journal, error) {
	j := &Journal{records: map[plan.File]*record{}}
	var err error
	if j.File, err = journal.OpenUnlocked(path, root, now, (*entry).kind, j.load); err != nil {
		return nil, err
	}
	return j, nil
}

// Compact rewrites the journal if it has lines that are not needed any more, such as those of an earlier boot, whose cgroups no longer
// exist.
func (j *Journal) Compact() error {
	if !j.HasObsoleteLines() {
		return nil
	}
	return j.rewrite()
}

// kind distinguishes an entry for a file that this version writes from one for a file of another version.
func (e *entry) kind() journal.Kind {
	switch {
	case e.Controller == "" || e.File == "" || strings.ContainsRune(e.File, '/') || cgroup.CheckAnyNames(string(e.Cgroup)) != nil:
		return journal.Foreign
	case !plan.IsKnown(e.file()) || e.Original == nil && e.Written == nil && !e.IsSideEffect:
		return journal.Unknown
	}
	return journal.Known
}

func (j *Journal) load(e *entry) {
	f := e.file()
	r := j.records[f]
	if e.Original != nil { // the first one, or a new one: see record.isReplaced
		r = &record{Key: e.Key, Inode: e.Inode, RootInode: e.RootInode, Original: *e.Original}
		j.records[f] = r
	}
	if r == nil || r.Inode != e.Inode {
		return // a line whose entry with the original value was cut off
	}
	r.IsSideEffect = r.IsSideEffect || e.IsSideEffect
	if e.Written != nil {
		r.addWritten(*e.Written)
	}
}

// Check returns an error if the file is another program's, or if the journal has cgroups of another root than the hierarchy's: it was
// written in another cgroup namespace, or with another mount.
func (j *Journal) Check(h *cgroup.Hierarchy) error {
	if err := j.CheckForeign("isolate"); err != nil {
		return err
	}
	for f, r := range j.records {
		inode, err := h.InodeIn(f.Controller, "/")
		if err != nil || r.RootInode == 0 || r.RootInode == inode {
			continue
		}
		return fmt.Errorf("%s was written by an isolate that saw another root cgroup (inode %d of the controller %s, here it is %d): "+
			"run isolate --restore where that one ran, for example in the same cgroup namespace; the file is unchanged",
			j.Path(), r.RootInode, f.Controller, inode)
	}
	return nil
}

// Len returns the number of files in the journal.
func (j *Journal) Len() int { return len(j.records) }

// rewrite replaces the journal by the entries that are still needed.
func (j *Journal) rewrite() error {
	var entries []entry
	for f, r := range j.records {
		e := entryOf(f, r.Inode)
		e.Key = r.Key
		original := e
		original.Original, original.IsSideEffect, original.RootInode = &r.Original, r.IsSideEffect, r.RootInode
		entries = append(entries, original)
		for i := range r.Written {
			written := e
			written.Written = &r.Written[i]
			entries = append(entries, written)
		}
	}
	return j.Rewrite(entries)
}
