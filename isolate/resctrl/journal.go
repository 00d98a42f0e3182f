package resctrl

import (
	"maps"
	"slices"
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
	Creates    bool   `json:"creates,omitempty"`
	Created    bool   `json:"created,omitempty"`
	NotCreated bool   `json:"not,omitempty"`
	Original   string `json:"first,omitempty"` // the original text of a line
	Written    string `json:"wrote,omitempty"` // a line that is about to be written
}

// record is what the journal contains about one group.
type record struct {
	inode     uint64 // 0 if isolate was killed between creating the group and recording it
	isCreated bool
	originals map[string]schemata.Line   // by resource
	written   map[string][]schemata.Line // the last ones
}

// maxWritten is the number of written lines that are remembered for a resource: isolate may be killed before the last write.
const maxWritten = 2

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
	if j.File, err = journal.OpenUnlocked(JournalName(path), root, now, (*entry).kind, j.load); err != nil {
		return nil, err
	}
	return j, nil
}

// kind tells an entry that this version writes from one of another version.
func (e *entry) kind() journal.Kind {
	switch {
	case CheckName(e.Group) != nil:
		return journal.Foreign
	case !e.Creates && !e.Created && !e.NotCreated && e.Original == "" && e.Written == "":
		return journal.Unknown
	}
	return journal.Known
}

func (j *Journal) load(e *entry) {
	r := j.records[e.Group]
	switch {
	case e.NotCreated:
		delete(j.records, e.Group)
		return
	case e.Creates, e.Created:
		j.records[e.Group] = &record{inode: e.Inode, isCreated: true}
		return
	case r == nil || r.inode != e.Inode:
		r = &record{inode: e.Inode, originals: map[string]schemata.Line{}, written: map[string][]schemata.Line{}}
		j.records[e.Group] = r
	}
	if r.isCreated {
		return
	}
	if l, err := schemata.Parse(e.Original); err == nil {
		if _, known := r.originals[l.Resource]; !known {
			r.originals[l.Resource] = l
		}
	}
	if l, err := schemata.Parse(e.Written); err == nil {
		list := append(r.written[l.Resource], l)
		r.written[l.Resource] = list[max(0, len(list)-maxWritten):]
	}
}

// Compact rewrites the journal if it has lines that are not needed any more, such as those of an earlier boot, whose groups no longer
// exist.
func (j *Journal) Compact() error {
	if !j.HasObsoleteLines() {
		return nil
	}
	var entries []entry
	for _, group := range slices.Sorted(maps.Keys(j.records)) {
		r := j.records[group]
		e := entry{Group: group, Inode: r.inode}
		if r.isCreated {
			e.Creates, e.Created = r.inode == 0, r.inode != 0
			entries = append(entries, e)
			continue
		}
		for _, resource := range slices.Sorted(maps.Keys(r.originals)) {
			original := e
			original.Original = textOf(r.originals[resource])
			entries = append(entries, original)
			for _, l := range r.written[resource] {
				written := e
				written.Written = l.String()
				entries = append(entries, written)
			}
		}
	}
	return j.Rewrite(entries)
}

// Len returns the number of groups in the journal.
func (j *Journal) Len() int {
	if j == nil {
		return 0
	}
	return len(j.records)
}

// recordCreation records that a group is about to be created.
func (j *Journal) recordCreation(group string) error {
	return j.add(entry{Group: group, Creates: true})
}

// recordCreated records the inode of the new group.
func (j *Journal) recordCreated(group string, inode uint64) error {
	return j.add(entry{Group: group, Inode: inode, Created: true})
}

// recordNotCreated records that a group could not be created. If that fails too, a restore finds no group or no inode.
func (j *Journal) recordNotCreated(group string) { _ = j.add(entry{Group: group, NotCreated: true}) }

// recordChange records a line before it is changed, unless isolate created its group: that is removed as a whole.
func (j *Journal) recordChange(group string, inode uint64, old, desired schemata.Line) error {
	if j == nil {
		return nil
	}
	r := j.records[group]
	if r != nil && r.isCreated && (r.inode == inode || r.inode == 0) {
		return nil
	}
	e := entry{Group: group, Inode: inode, Written: desired.String()}
	if r == nil || r.isCreated || r.inode != inode || r.originals[old.Resource].Values == nil {
		e.Original = textOf(old)
	} else if written := r.written[desired.Resource]; len(written) > 0 && written[len(written)-1].String() == e.Written {
		return nil // the same value again, after another program changed it
	}
	return j.add(e)
}

// add adds an entry, which is in the file before it returns.
func (j *Journal) add(e entry) error {
	if j == nil {
		return nil
	}
	if err := j.Append([]entry{e}); err != nil {
		return err
	}
	j.load(&e)
	return nil
}

// Close closes the journal.
func (j *Journal) Close() error {
	if j == nil {
		return nil
	}
	return j.File.Close()
}
