package resctrl

import (
	"time"

	"polder/isolate/journal"
	"polder/lib/schemata"
)

// JournalName is the name of the groups' journal, beside that of the cgroups.
func JournalName(path string) string { return path + ".resctrl" }

// entry is one line of the journal.
type entry struct {
	Group string `json:"group"`
	// Inode is the group's inode. With the boot ID of the stamp it tells the group from another one of the same name.
	Inode uint64 `json:"inode,omitempty"`
	journal.Stamp

	// Creates is written before the group is created, Created afterwards with its inode, and Not if the creation failed.
	Creates bool   `json:"creates,omitempty"`
	Created bool   `json:"created,omitempty"`
	Not     bool   `json:"not,omitempty"`
	First   string `json:"first,omitempty"` // the original text of a line
	Wrote   string `json:"wrote,omitempty"` // a line that is about to be written
}

// record is what the journal contains about one group.
type record struct {
	inode   uint64 // 0 if isolate was killed between creating the group and recording it
	created bool
	first   map[string]schemata.Line   // by resource
	wrote   map[string][]schemata.Line // the last ones
}

// keepWrote is the number of written lines that are remembered for a resource: isolate may be killed before the last write.
const keepWrote = 2

// Journal is the file that records which groups were created, and the original lines of groups that existed before. The lock of
// the cgroups' journal protects it too. The first entry creates the file. All its methods may be called on nil.
type Journal struct {
	*journal.File[entry, *entry]
	records map[string]*record
}

// OpenJournal reads the journal of groups beside the journal at path. root is the root directory of the machine.
func OpenJournal(path, root string, now func() time.Time) (*Journal, error) {
	j := &Journal{records: map[string]*record{}}
	var err error
	if j.File, err = journal.OpenUnlocked(JournalName(path), root, now, (*entry).isValid, j.take); err != nil {
		return nil, err
	}
	return j, nil
}

func (e *entry) isValid() bool { return CheckName(e.Group) == nil }

func (j *Journal) take(e *entry) {
	r := j.records[e.Group]
	switch {
	case e.Not:
		delete(j.records, e.Group)
		return
	case e.Creates, e.Created:
		j.records[e.Group] = &record{inode: e.Inode, created: true}
		return
	case r == nil || r.inode != e.Inode:
		r = &record{inode: e.Inode, first: map[string]schemata.Line{}, wrote: map[string][]schemata.Line{}}
		j.records[e.Group] = r
	}
	if r.created {
		return
	}
	if l, err := schemata.Parse(e.First); err == nil {
		if _, known := r.first[l.Resource]; !known {
			r.first[l.Resource] = l
		}
	}
	if l, err := schemata.Parse(e.Wrote); err == nil {
		list := append(r.wrote[l.Resource], l)
		r.wrote[l.Resource] = list[max(0, len(list)-keepWrote):]
	}
}

// Len returns the number of groups in the journal.
func (j *Journal) Len() int {
	if j == nil {
		return 0
	}
	return len(j.records)
}

// creates records that a group is about to be created.
func (j *Journal) creates(group string) error {
	return j.note(entry{Group: group, Creates: true})
}

// created records the inode of the new group.
func (j *Journal) created(group string, inode uint64) error {
	return j.note(entry{Group: group, Inode: inode, Created: true})
}

// forget records that a group could not be created. If that fails too, a restore finds no group or no inode.
func (j *Journal) forget(group string) { _ = j.note(entry{Group: group, Not: true}) }

// changes records a line before it is changed, unless isolate created its group: that is removed as a whole.
func (j *Journal) changes(group string, inode uint64, old, now schemata.Line) error {
	if j == nil {
		return nil
	}
	r := j.records[group]
	if r != nil && r.created && (r.inode == inode || r.inode == 0) {
		return nil
	}
	e := entry{Group: group, Inode: inode, Wrote: now.String()}
	if r == nil || r.created || r.inode != inode || r.first[old.Resource].Values == nil {
		e.First = textOf(old)
	} else if wrote := r.wrote[now.Resource]; len(wrote) > 0 && wrote[len(wrote)-1].String() == e.Wrote {
		return nil // the same value again, after another program changed it
	}
	return j.note(e)
}

// note adds an entry, which is on the disk before it returns.
func (j *Journal) note(e entry) error {
	if j == nil {
		return nil
	}
	if err := j.Append([]entry{e}, true); err != nil {
		return err
	}
	j.take(&e)
	return nil
}

// Close closes the journal.
func (j *Journal) Close() error {
	if j == nil {
		return nil
	}
	return j.File.Close()
}
