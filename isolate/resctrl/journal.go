package resctrl

import (
	"time"

	"polder/isolate/journal"
	"polder/lib/schemata"
)

// JournalName is the name of the groups' journal beside that of the cgroups.
func JournalName(path string) string { return path + ".resctrl" }

// entry is one line of the journal.
type entry struct {
	Group string `json:"group"`
	// Inode is the group's and the stamp has the machine's run: another group of the same name is not taken for this one.
	Inode uint64 `json:"inode,omitempty"`
	journal.Stamp

	// Creates stands before the group is made, Created after that with its inode, and Not where it could not be made.
	Creates bool   `json:"creates,omitempty"`
	Created bool   `json:"created,omitempty"`
	Not     bool   `json:"not,omitempty"`
	First   string `json:"first,omitempty"` // a line as it was before it was ever changed
	Wrote   string `json:"wrote,omitempty"` // one about to be written
}

// record is what the journal contains about one group.
type record struct {
	inode   uint64 // 0 where isolate was killed between making the group and noting it
	created bool
	first   map[string]schemata.Line   // by resource
	wrote   map[string][]schemata.Line // the last ones
}

// keepWrote is how many written lines are remembered of a resource: a killed one may have stopped before the last.
const keepWrote = 2

// Journal is the file that keeps which groups were made, and the first lines of those that were there. Whoever has the cgroups'
// journal locked has this one too. It is made with the first entry. All its methods may be called on nil.
type Journal struct {
	*journal.File[entry, *entry]
	records map[string]*record
}

// OpenJournal reads the journal of groups beside the one at path. root is the machine's.
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

// Len is the number of groups that the journal knows.
func (j *Journal) Len() int {
	if j == nil {
		return 0
	}
	return len(j.records)
}

// creates notes that a group is about to be made.
func (j *Journal) creates(group string) error {
	return j.note(entry{Group: group, Creates: true})
}

// created notes the inode of the group that was made.
func (j *Journal) created(group string, inode uint64) error {
	return j.note(entry{Group: group, Inode: inode, Created: true})
}

// forget notes that a group could not be made. Where that cannot be noted, a restore finds no group, or an empty claim.
func (j *Journal) forget(group string) { _ = j.note(entry{Group: group, Not: true}) }

// changes notes a line before it is changed, unless its group was made here: that is removed as a whole.
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
		return nil // the same value again, which another program had changed
	}
	return j.note(e)
}

// note adds an entry, on the disk before it returns.
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
