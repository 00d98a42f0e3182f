package network

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"polder/isolate/journal"
)

// entry is one line of the journal: a link or table that is about to be set, or a link that was released.
type entry struct {
	// Link is about to be shaped; Index is its number, which no other link of its name has, and Old the kind of its previous root qdisc.
	Link  string `json:"link,omitempty"`
	Index int    `json:"index,omitempty"`
	Old   string `json:"old,omitempty"`
	// IsReleased means that the link's root qdisc was removed again: what the link has from then on is not isolate's.
	IsReleased bool `json:"released,omitempty"`
	// Table is the family of a table that is about to be created.
	Table string `json:"table,omitempty"`
	// Namespace is the inode of the network namespace: in another one, links and tables of the same names are others.
	Namespace uint64 `json:"namespace,omitempty"`
	// The stamp contains the boot ID: whatever an earlier boot had is gone.
	journal.Stamp
}

// kind distinguishes an entry that this version writes from one of another version.
func (e *entry) kind() journal.Kind {
	switch {
	case e.Link != "" && e.Table != "" || e.Link == "" && e.Table == "" && e.Namespace == 0:
		return journal.Foreign
	case e.Link != "" || e.Table == inet.name || e.Table == netdev.name:
		return journal.Known
	}
	return journal.Unknown
}

// Journal is the file that records what was created. It is locked while it is open. Methods that do not use the file may be called on nil.
type Journal struct {
	*journal.File[entry, *entry]
	links     map[string]entry
	tables    map[string]bool
	namespace uint64 // of this process; 0 if unknown
	other     uint64 // of an entry that another network namespace has; 0 if there is none
}

// OpenJournal opens the journal at path, creates it if it does not exist, and reads it. root is the root directory of the machine.
func OpenJournal(path, root string, now func() time.Time) (*Journal, error) {
	j := &Journal{links: map[string]entry{}, tables: map[string]bool{}, namespace: ownNamespace()}
	var err error
	if j.File, err = journal.Open(path, root, now, (*entry).kind, j.load); err != nil {
		return nil, err
	}
	return j, nil
}

// ownNamespace returns the inode of this process's network namespace; 0 if it cannot be read.
func ownNamespace() uint64 {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return 0
	}
	return st.Ino
}

// Check returns an error if the file is another program's, or if the journal has links or tables of another network namespace.
func (j *Journal) Check() error {
	if err := j.CheckForeign("isolate --only network"); err != nil || j.other == 0 {
		return err
	}
	return fmt.Errorf("%s was written in another network namespace (%d, this one is %d): "+
		"run isolate --only network --restore there, for example with hostNetwork; the file is unchanged",
		j.Path(), j.other, j.namespace)
}

// Compact rewrites the journal if it has lines that are not needed any more, such as those of an earlier boot, whose links and tables no
// longer exist. Check must have returned no error: all entries get this process's network namespace.
func (j *Journal) Compact() error {
	if !j.HasObsoleteLines() || j.namespace == 0 {
		return nil
	}
	var entries []entry
	for _, link := range j.Links() {
		entries = append(entries, j.links[link])
	}
	for _, table := range slices.Sorted(maps.Keys(j.tables)) {
		entries = append(entries, entry{Table: table, Namespace: j.namespace})
	}
	return j.Rewrite(entries)
}

func (j *Journal) load(e *entry) {
	if e.Namespace != 0 && j.namespace != 0 && e.Namespace != j.namespace {
		j.other = e.Namespace
	}
	switch {
	case e.Table != "":
		j.tables[e.Table] = true
	case e.IsReleased:
		delete(j.links, e.Link)
	default:
		j.links[e.Link] = *e
	}
}

// Links returns the names of the links that were shaped.
func (j *Journal) Links() []string {
	if j == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(j.links))
}

// recordLink records a link before it is shaped.
func (j *Journal) recordLink(link string, index int, old string) error {
	if j == nil || j.links[link].Index == index {
		return nil
	}
	return j.add(entry{Link: link, Index: index, Old: old})
}

// recordRelease records that a link is no longer shaped.
func (j *Journal) recordRelease(link string, index int) error {
	if j == nil || j.links[link].Index != index {
		return nil
	}
	return j.add(entry{Link: link, Index: index, IsReleased: true})
}

// recordTable records a table before it is created.
func (j *Journal) recordTable(table string) error {
	if j == nil || j.tables[table] {
		return nil
	}
	return j.add(entry{Table: table})
}

// add adds an entry, which is in the file before it returns.
func (j *Journal) add(e entry) error {
	e.Namespace = j.namespace
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
