package resctrl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/kernfile"
	"polder/lib/schemata"
	"polder/lib/tick"
)

// JournalName is the name of the groups' journal beside that of the cgroups.
func JournalName(journal string) string { return journal + ".resctrl" }

// entry is one line of the journal.
type entry struct {
	Group string `json:"group"`
	// Inode is the group's and Boot the machine's run: another group of the same name is not taken for this one.
	Inode uint64 `json:"inode,omitempty"`
	Boot  string `json:"boot,omitempty"`
	Time  string `json:"time,omitempty"`

	// Creates stands before the group is made, Created after that with its inode, and Not where it could not be made.
	Creates bool   `json:"creates,omitempty"`
	Created bool   `json:"created,omitempty"`
	Not     bool   `json:"not,omitempty"`
	First   string `json:"first,omitempty"` // a line as it was before it was ever changed
	Wrote   string `json:"wrote,omitempty"` // one about to be written
}

// record is what the journal says of one group.
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
	path    string
	boot    string
	now     func() time.Time
	f       *os.File // nil until something is written
	cut     bool     // the last line has no end
	records map[string]*record

	// Bad counts the lines that are cut off or none of ours.
	Bad int
}

// OpenJournal reads the journal of groups beside the one at path. root is the machine's.
func OpenJournal(path, root string, now func() time.Time) (*Journal, error) {
	j := &Journal{path: JournalName(path), boot: kernfile.BootID(root), now: now, records: map[string]*record{}}
	f, err := os.OpenFile(j.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", j.path)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", j.path, err)
	}
	j.load(data)
	return j, nil
}

func (j *Journal) load(data []byte) {
	j.cut = len(data) > 0 && data[len(data)-1] != '\n'
	for one := range bytes.SplitSeq(data, []byte("\n")) {
		if len(bytes.TrimSpace(one)) == 0 {
			continue
		}
		var e entry
		switch err := tick.Unmarshal(one, &e); {
		case err != nil, CheckName(e.Group) != nil:
			j.Bad++
		case e.Boot == j.boot: // an earlier run of the machine had other groups
			j.take(e)
		}
	}
}

func (j *Journal) take(e entry) {
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
	if j.f == nil {
		f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		j.f = f
	}
	e.Boot, e.Time = j.boot, j.now().UTC().Format(time.RFC3339)
	var data []byte
	if j.cut {
		data = append(data, '\n')
	}
	data, err := tick.AppendMarshal(data, e)
	if err == nil {
		_, err = j.f.Write(append(data, '\n'))
	}
	if err == nil {
		err = j.f.Sync()
	}
	if err != nil {
		j.cut = true // a blank line does no harm
		return fmt.Errorf("write journal: %w", err)
	}
	j.cut = false
	j.take(e)
	return nil
}

// Close closes the journal.
func (j *Journal) Close() error {
	if j == nil || j.f == nil {
		return nil
	}
	return j.f.Close()
}

// remove removes the journal: everything is restored.
func (j *Journal) remove() error {
	if err := os.Remove(j.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove journal: %w", err)
	}
	return nil
}
