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
	// Inode is the group's inode. With the boot ID of the stamp it distinguishes the group from another one of the same name.
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
	originals map[string]schemata.Line // by resource; each domain's value from before isolate first named it
	written   map[domain][]uint64      // the last different ones, the newest at the end
}

// domain is one domain of a resource.
type domain struct {
	resource string
	id       int64
}

// maxWritten is the number of written values that are remembered for a domain: isolate may be killed before the last write, or the kernel
// may refuse it.
const maxWritten = 2

// isOurs reports whether a domain's value is one that isolate wrote.
func (r *record) isOurs(resource string, v schemata.Value) bool {
	return slices.Contains(r.written[domain{resource, v.ID}], v.Part)
}

// addWritten adds the values of a line as the newest ones.
func (r *record) addWritten(l schemata.Line) {
	for _, v := range l.Values {
		d := domain{l.Resource, v.ID}
		parts := append(slices.DeleteFunc(r.written[d], func(part uint64) bool { return part == v.Part }), v.Part)
		r.written[d] = parts[max(0, len(parts)-maxWritten):]
	}
}

// isNewest reports whether the line's values are the newest ones in all its domains.
func (r *record) isNewest(l schemata.Line) bool {
	return !slices.ContainsFunc(l.Values, func(v schemata.Value) bool {
		parts := r.written[domain{l.Resource, v.ID}]
		return len(parts) == 0 || parts[len(parts)-1] != v.Part
	})
}

// writtenLines returns the remembered values of a resource as lines, the newest at the end.
func (r *record) writtenLines(resource string) []schemata.Line {
	var lines []schemata.Line
	for i := range maxWritten {
		l := schemata.Line{Resource: resource}
		for d, parts := range r.written {
			if d.resource == resource && i < len(parts) {
				l = l.Merge(schemata.Line{Resource: resource, Values: []schemata.Value{{ID: d.id, Part: parts[i]}}})
			}
		}
		if len(l.Values) > 0 {
			lines = append(lines, l)
		}
	}
	return lines
}

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

// kind distinguishes an entry that this version writes from one of another version.
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
		r = &record{inode: e.Inode, originals: map[string]schemata.Line{}, written: map[domain][]uint64{}}
		j.records[e.Group] = r
	}
	if r.isCreated {
		return
	}
	if l, err := schemata.Parse(e.Original); err == nil {
		r.originals[l.Resource] = r.originals[l.Resource].Merge(l)
	}
	if l, err := schemata.Parse(e.Written); err == nil {
		r.addWritten(l)
	}
}

// Check returns an error if the file is another program's.
func (j *Journal) Check() error { return j.CheckForeign("resctrl groups") }

// Compact rewrites the journal if it has lines that are not needed any more, such as those of an earlier boot, whose groups no longer
// exist.
func (j *Journal) Compact() error {
	if !j.HasObsoleteLines() {
		return nil
	}
	return j.rewrite()
}

// rewrite replaces the journal by the entries that are still needed.
func (j *Journal) rewrite() error {
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
			for _, l := range r.writtenLines(resource) {
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
	if r == nil || r.isCreated || r.inode != inode {
		e.Original = textOf(old)
		return j.add(e)
	}
	// A domain that an earlier advice did not name has its original value still. One that an earlier version of isolate wrote without
	// recording it has no known original value.
	e.Original = textOf(old.Filter(func(v schemata.Value) bool {
		_, known := r.originals[old.Resource].Part(v.ID)
		return !known && len(r.written[domain{old.Resource, v.ID}]) == 0
	}))
	if e.Original == "" && r.isNewest(desired) {
		return nil // the same value again, after another program changed it, or the kernel refused it
	}
	// The kernel may refuse this write and later ones: they must not push the value that the domain keeps out of the remembered ones.
	present := old.Filter(func(v schemata.Value) bool { return r.isOurs(old.Resource, v) })
	if len(present.Values) == 0 || r.isNewest(present) {
		return j.add(e)
	}
	return j.add(entry{Group: group, Inode: inode, Written: present.String()}, e)
}

// add adds entries, which are in the file before it returns.
func (j *Journal) add(entries ...entry) error {
	if j == nil {
		return nil
	}
	if err := j.Append(entries); err != nil {
		return err
	}
	for i := range entries {
		j.load(&entries[i])
	}
	return nil
}

// Close closes the journal.
func (j *Journal) Close() error {
	if j == nil {
		return nil
	}
	return j.File.Close()
}
