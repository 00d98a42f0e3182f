package network

import (
	"maps"
	"slices"
	"time"

	"polder/isolate/journal"
)

// entry is one line of the journal: what is about to be made.
type entry struct {
	// Link is shaped from now on; Index is its number, which another link of its name has not, and Old its root qdisc's kind before.
	Link  string `json:"link,omitempty"`
	Index int    `json:"index,omitempty"`
	Old   string `json:"old,omitempty"`
	// Table is the family of a table that is made.
	Table string `json:"table,omitempty"`
	// The stamp has the machine's run: what an earlier one had is gone.
	journal.Stamp
}

func (e *entry) isValid() bool { return (e.Link == "") != (e.Table == "") }

// Journal is the file that keeps what was made. It is locked while it is open. All its methods but those of the file may be called on nil.
type Journal struct {
	*journal.File[entry, *entry]
	links  map[string]entry
	tables map[string]bool
}

// OpenJournal opens the journal at path, which it makes if need be, and reads it. root is the machine's.
func OpenJournal(path, root string, now func() time.Time) (*Journal, error) {
	j := &Journal{links: map[string]entry{}, tables: map[string]bool{}}
	var err error
	if j.File, err = journal.Open(path, root, now, (*entry).isValid, j.take); err != nil {
		return nil, err
	}
	return j, nil
}

func (j *Journal) take(e *entry) {
	if e.Table != "" {
		j.tables[e.Table] = true
		return
	}
	j.links[e.Link] = *e
}

// Links are the names of the links that were shaped.
func (j *Journal) Links() []string {
	if j == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(j.links))
}

// shapes notes a link before it is shaped.
func (j *Journal) shapes(link string, index int, old string) error {
	if j == nil || j.links[link].Index == index {
		return nil
	}
	return j.note(entry{Link: link, Index: index, Old: old})
}

// marks notes a table before it is made.
func (j *Journal) marks(table string) error {
	if j == nil || j.tables[table] {
		return nil
	}
	return j.note(entry{Table: table})
}

// note adds an entry, on the disk before it returns.
func (j *Journal) note(e entry) error {
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
