package apply

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"polder/isolate/plan"
	"polder/lib/cgroup"
	"polder/lib/kernfile"
	"polder/lib/tick"
)

// entry is one line of the journal: the first value of a file, before it was ever changed, or one about to be written.
type entry struct {
	Controller string `json:"controller"`
	Cgroup     string `json:"cgroup"`
	File       string `json:"file"`
	Device     string `json:"device,omitempty"`
	Key        string `json:"key,omitempty"`
	// Inode is the cgroup's and Boot the machine's run: another cgroup of the same name is not given this one's value.
	Inode uint64 `json:"inode"`
	Boot  string `json:"boot,omitempty"`
	Time  string `json:"time,omitempty"`

	First *string `json:"first,omitempty"`
	Wrote *string `json:"wrote,omitempty"`
	// Disturbed says that the kernel changes the value along with another one that is written.
	Disturbed bool `json:"disturbed,omitempty"`
}

func entryOf(f plan.File, inode uint64) entry {
	return entry{Controller: f.Controller, Cgroup: f.Cgroup, File: f.Name, Device: f.Device, Inode: inode}
}

func (e *entry) file() plan.File {
	return plan.File{Controller: e.Controller, Cgroup: e.Cgroup, Name: e.File, Device: e.Device}
}

// record is what the journal says of one file.
type record struct {
	Key       string
	Inode     uint64
	First     string
	Wrote     []string // the last ones, the newest last
	Disturbed bool
}

// keepWrote is how many written values are remembered of a file: one plan writes it three times at most, and a killed
// one may have stopped before any of them.
const keepWrote = 4

// ours reports whether the value is one that was there first or that was written.
func (r *record) ours(name, text string) bool {
	if r.Disturbed || plan.Same(name, text, r.First) {
		return true
	}
	return slices.ContainsFunc(r.Wrote, func(w string) bool { return plan.Same(name, text, w) })
}

func (r *record) note(text string) {
	if n := len(r.Wrote); n > 0 && r.Wrote[n-1] == text {
		return
	}
	if r.Wrote = append(r.Wrote, text); len(r.Wrote) > keepWrote {
		r.Wrote = slices.Delete(r.Wrote, 0, len(r.Wrote)-keepWrote)
	}
}

// Journal is the file that keeps the first value of everything that was changed. It is locked while it is open.
type Journal struct {
	path    string
	boot    string
	now     func() time.Time
	f       *os.File
	size    int64
	cut     bool // the last line has no end
	known   int  // lines that an isolate wrote, of whatever run of the machine
	records map[plan.File]*record

	// Stale counts the lines of an earlier run of the machine, Bad those that are cut off or none of ours.
	Stale, Bad int
}

// ErrInUse is returned where another isolate has the journal open.
var ErrInUse = errors.New("in use by another isolate")

// OpenJournal opens the journal at path, which it makes if need be, and reads it. root is the machine's.
func OpenJournal(path, root string, now func() time.Time) (*Journal, error) {
	j := &Journal{path: path, boot: kernfile.BootID(root), now: now, records: map[plan.File]*record{}}
	f, err := openLocked(path)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	j.f, j.size = f, int64(len(data))
	j.load(data)
	if j.Stale > 0 { // another run of the machine had other cgroups
		if err := j.rewrite(); err != nil {
			f.Close()
			return nil, err
		}
	}
	return j, nil
}

// lockTries is how often a journal that is replaced or removed while it is being locked is opened anew.
const lockTries = 10

// openLocked opens and locks the file that the path names. Between the two another isolate may have replaced it (see rewrite) or
// removed it: a lock of that file would keep nobody out, and what is written to it would be lost.
func openLocked(path string) (*os.File, error) {
	for range lockTries {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		opened()
		if err := lock(f, path); err != nil {
			f.Close()
			return nil, err
		}
		mine, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		if named, err := os.Lstat(path); err == nil && os.SameFile(mine, named) {
			return f, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("%s: %w: it is replaced again and again", path, ErrInUse)
}

// opened is called between the opening and the locking of a journal, for tests.
var opened = func() {}

func lock(f *os.File, path string) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("%s: %w: stop that one first", path, ErrInUse)
	case err != nil:
		return fmt.Errorf("lock %s: %w", path, err)
	}
	return nil
}

func (j *Journal) load(data []byte) {
	j.cut = len(data) > 0 && data[len(data)-1] != '\n'
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var e entry
		if err := tick.Unmarshal(line, &e); err != nil || !plan.Known(e.file()) || cgroup.CheckPath(e.Cgroup) != nil {
			j.Bad++
			continue
		}
		j.known++
		if e.Boot != j.boot {
			j.Stale++
			continue
		}
		j.take(e)
	}
}

func (j *Journal) take(e entry) {
	f := e.file()
	r := j.records[f]
	if e.First != nil && (r == nil || r.Inode != e.Inode) {
		r = &record{Key: e.Key, Inode: e.Inode, First: *e.First}
		j.records[f] = r
	}
	if r == nil || r.Inode != e.Inode {
		return // a line whose first value was cut off
	}
	r.Disturbed = r.Disturbed || e.Disturbed
	if e.Wrote != nil {
		r.note(*e.Wrote)
	}
}

// IsForeign reports whether the file holds whole lines of which none is a journal's: it is some other file.
func (j *Journal) IsForeign() bool {
	whole := j.Bad
	if j.cut {
		whole-- // or a journal's first line, which was cut off
	}
	return whole > 0 && j.known == 0
}

// Len is the number of files that the journal knows.
func (j *Journal) Len() int { return len(j.records) }

// append adds entries, on the disk before it returns where sync is asked for. On an error the file is as before.
func (j *Journal) append(entries []entry, sync bool) error {
	var data []byte
	if j.cut {
		data = append(data, '\n')
	}
	at := j.now().UTC().Format(time.RFC3339)
	for _, e := range entries {
		e.Boot, e.Time = j.boot, at
		var err error
		if data, err = tick.AppendMarshal(data, e); err != nil {
			return fmt.Errorf("write journal %s: %w", j.path, err)
		}
		data = append(data, '\n')
	}
	n, err := j.f.Write(data)
	if err == nil && sync {
		err = j.f.Sync()
	}
	if err == nil {
		j.size += int64(n)
		j.cut = false
		return nil
	}
	if truncErr := j.f.Truncate(j.size); truncErr != nil && n > 0 {
		j.size += int64(n)
		j.cut = true
	}
	return fmt.Errorf("write journal %s: %w", j.path, rootCause(err))
}

// rootCause drops the path, which our own message has.
func rootCause(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// rewrite replaces the journal by what is still of use. Where that does not work the old one stays in force.
func (j *Journal) rewrite() error {
	var entries []entry
	for f, r := range j.records {
		e := entryOf(f, r.Inode)
		e.Key = r.Key
		first := e
		first.First, first.Disturbed = &r.First, r.Disturbed
		entries = append(entries, first)
		for i := range r.Wrote {
			wrote := e
			wrote.Wrote = &r.Wrote[i]
			entries = append(entries, wrote)
		}
	}
	path := j.path + ".new"
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("rewrite journal: %w", err)
	}
	fresh := &Journal{path: path, boot: j.boot, now: j.now, f: f}
	if err = lock(f, path); err == nil {
		err = fresh.append(entries, true)
	}
	if err == nil {
		err = os.Rename(path, j.path)
	}
	if err != nil {
		f.Close()
		os.Remove(path)
		return fmt.Errorf("rewrite journal: %w", err)
	}
	j.f.Close()
	j.f, j.size, j.cut = f, fresh.size, false
	return nil
}

// remove removes the journal: everything is restored.
func (j *Journal) remove() error {
	if err := os.Remove(j.path); err != nil {
		if err := j.f.Truncate(0); err != nil { // a directory that is not ours to change
			return fmt.Errorf("empty journal: %w", err)
		}
	}
	return nil
}

// Close closes the journal and lets others have it.
func (j *Journal) Close() error { return j.f.Close() }
