// Package journal stores isolate's own changes and counts external ones: a [File] of entries, from which its changes can be reverted,
// and a [Contest] for each value that another program changes as well.
package journal

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
	"polder/lib/tick"
)

// Stamp is the boot ID and the time at which an entry was written. The type of a journal's entries embeds it.
type Stamp struct {
	Boot string `json:"boot,omitempty"`
	Time string `json:"time,omitempty"`
}

func (s *Stamp) stamp() *Stamp { return s }

// Entry is a pointer to the type of a journal's entries, which embeds [Stamp].
type Entry[E any] interface {
	*E
	stamp() *Stamp
}

// Kind is what a line of a journal is to this version of isolate.
type Kind int

const (
	Foreign Kind = iota // not an entry of this kind of journal
	Unknown             // an entry that another version of isolate wrote, and that this version cannot restore
	Known
)

// File is an append-only file of entries, one JSON object per line.
type File[E any, P Entry[E]] struct {
	path     string
	boot     string
	now      func() time.Time
	f        *os.File // nil if nothing was written and the file is not locked
	size     int64
	validEnd int64 // where the rest of an entry begins at the file's end; the size if there is none
	isCut    bool  // the last line has no newline
	ownLines int   // lines that isolate wrote, in any boot of the machine
	damaged  int   // invalid lines that may be the rest of an entry, after a crash of the machine or on a full disk
	// unknown are the entries of this boot that another version of isolate wrote.
	unknown [][]byte

	// StaleLines counts the lines of an earlier boot; InvalidLines counts the lines that are cut off or invalid.
	StaleLines, InvalidLines int
}

// ErrInUse is returned if another isolate has the journal open.
var ErrInUse = errors.New("in use by another isolate")

// Open opens and locks the journal at path, and creates it if it does not exist. It calls load with each entry of this boot that kind
// says is known. root is the root directory of the machine.
func Open[E any, P Entry[E]](path, root string, now func() time.Time, kind func(P) Kind, load func(P)) (*File[E, P], error) {
	f, err := openLocked(path)
	if err != nil {
		return nil, err
	}
	j := &File[E, P]{path: path, boot: kernfile.BootID(root), now: now, f: f}
	if err := j.read(f, kind, load); err != nil {
		f.Close()
		return nil, err
	}
	return j, nil
}

// OpenUnlocked is like Open for a journal that the lock of another journal protects. The first entry creates the file.
func OpenUnlocked[E any, P Entry[E]](path, root string, now func() time.Time, kind func(P) Kind, load func(P)) (*File[E, P], error) {
	j := &File[E, P]{path: path, boot: kernfile.BootID(root), now: now}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := j.read(f, kind, load); err != nil {
		return nil, err
	}
	return j, nil
}

// lockTries is how often a journal that is replaced or removed while it is being locked is opened again.
const lockTries = 10

// openLocked opens and locks the file at the path. Between the two steps another isolate may replace it (see Rewrite) or remove
// it: a lock on the old file would exclude no other process, and what is written to it would be lost.
func openLocked(path string) (*os.File, error) {
	for range lockTries {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		afterOpen()
		if err := lock(f, path); err != nil {
			f.Close()
			return nil, err
		}
		locked, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		if current, err := os.Lstat(path); err == nil && os.SameFile(locked, current) {
			return f, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("%s: %w: it was replaced during each attempt to lock it", path, ErrInUse)
}

// afterOpen is called between opening and locking a journal, for tests.
var afterOpen = func() {}

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

func (j *File[E, P]) read(f *os.File, kind func(P) Kind, load func(P)) error {
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", j.path)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("read %s: %w", j.path, err)
	}
	j.size, j.validEnd = int64(len(data)), int64(len(data))
	for line := range bytes.Lines(data) {
		j.isCut = line[len(line)-1] != '\n'
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		e, of, isJSON := decode(line, kind)
		if of == Foreign {
			j.InvalidLines++
			if isDamaged(line, j.isCut && !isJSON) {
				j.damaged++
				if j.isCut {
					j.validEnd = int64(bytes.LastIndexByte(data, '\n') + 1)
				}
			}
			continue
		}
		j.ownLines++
		if e.stamp().Boot != j.boot {
			j.StaleLines++
			continue
		}
		if of == Unknown {
			j.unknown = append(j.unknown, bytes.Clone(line))
			continue
		}
		load(e)
	}
	return nil
}

// decode decodes a line. A stamped object that does not fit the type is an entry of another version.
func decode[E any, P Entry[E]](line []byte, kind func(P) Kind) (e P, of Kind, isJSON bool) {
	e = P(new(E))
	if tick.Unmarshal(line, e) == nil {
		return e, kind(e), true
	}
	var s Stamp
	err := tick.Unmarshal(line, &s)
	if err != nil || s.Boot == "" || s.Time == "" {
		return e, Foreign, err == nil
	}
	*e.stamp() = s
	return e, Unknown, true
}

// isDamaged reports whether an invalid line may be the rest of an entry: a cut one, or one with the NUL bytes that a crash of the machine
// leaves where a file's data was not on the disk yet.
func isDamaged(line []byte, isCut bool) bool {
	return line[0] == 0 || line[0] == '{' && (isCut || bytes.IndexByte(line, 0) > 0)
}

// IsForeign reports whether the file contains lines, but none of a journal and none that may be the rest of one: it is another
// program's file.
func (j *File[E, P]) IsForeign() bool { return j.InvalidLines > j.damaged && j.ownLines == 0 }

// CheckForeign returns an error if the file is another program's (see IsForeign); kind is what the journal is of.
func (j *File[E, P]) CheckForeign(kind string) error {
	if !j.IsForeign() {
		return nil
	}
	return fmt.Errorf("%s is not a journal of %s: none of its %d lines is an entry; the file is unchanged", j.path, kind, j.InvalidLines)
}

// UnknownLines returns the number of entries of this boot that another version of isolate wrote. They stay in the journal.
func (j *File[E, P]) UnknownLines() int { return len(j.unknown) }

// HasObsoleteLines reports whether a rewrite would make a journal smaller: it has lines of an earlier boot, or invalid ones.
func (j *File[E, P]) HasObsoleteLines() bool { return j.StaleLines+j.InvalidLines > 0 }

// Path returns the file's path.
func (j *File[E, P]) Path() string { return j.path }

// Size returns the file's size in bytes.
func (j *File[E, P]) Size() int64 { return j.size }

// Append adds entries. They are in the kernel's page cache when it returns, which survives the death of the process; they are not
// synced to the disk, because a disk that batch saturates would block isolate, and after a crash of the machine no entry counts. On
// an error no entry is added.
func (j *File[E, P]) Append(entries []E) error { return j.append(nil, entries) }

// append adds lines as they are, and entries behind them.
func (j *File[E, P]) append(lines [][]byte, entries []E) error {
	var data []byte
	for _, line := range lines {
		data = append(append(data, line...), '\n')
	}
	at := j.now().UTC().Format(time.RFC3339)
	for _, e := range entries {
		*P(&e).stamp() = Stamp{Boot: j.boot, Time: at}
		var err error
		if data, err = tick.AppendMarshal(data, e); err != nil {
			return fmt.Errorf("write journal %s: %w", j.path, err)
		}
		data = append(data, '\n')
	}
	if err := j.create(); err != nil {
		return fmt.Errorf("write journal %s: %w", j.path, rootCause(err))
	}
	if j.validEnd < j.size && j.f.Truncate(j.validEnd) == nil {
		j.size, j.isCut = j.validEnd, false
	}
	if j.isCut {
		data = append([]byte("\n"), data...)
	}
	n, err := j.f.Write(data)
	if err == nil {
		j.size += int64(n)
		j.validEnd, j.isCut = j.size, false
		return nil
	}
	if truncErr := j.f.Truncate(j.size); truncErr != nil && n > 0 {
		j.size += int64(n)
		j.isCut = true
	}
	return fmt.Errorf("write journal %s: %w", j.path, rootCause(err))
}

// create opens a journal without a lock, and creates it if it does not exist.
func (j *File[E, P]) create() error {
	if j.f != nil {
		return nil
	}
	f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		j.f = f
	}
	return err
}

// rootCause removes the path from an error, because isolate's own message contains it.
func rootCause(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

// Rewrite replaces the journal by one with these entries, and those of this boot that another version of isolate wrote. If that fails,
// the old one stays valid.
func (j *File[E, P]) Rewrite(entries []E) error {
	path := j.path + ".new"
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("rewrite journal: %w", err)
	}
	fresh := &File[E, P]{path: path, boot: j.boot, now: j.now, f: f}
	if err = lock(f, path); err == nil {
		err = fresh.append(j.unknown, entries)
	}
	if err == nil {
		err = os.Rename(path, j.path)
	}
	if err != nil {
		f.Close()
		os.Remove(path)
		return fmt.Errorf("rewrite journal: %w", err)
	}
	j.Close()
	j.f, j.size, j.validEnd, j.isCut = f, fresh.size, fresh.size, false
	return nil
}

// Remove removes the journal after everything is restored. If isolate may not change its directory, the file is truncated instead.
// Entries that another version of isolate wrote stay, and the file with them.
func (j *File[E, P]) Remove() error {
	if len(j.unknown) > 0 {
		return j.Rewrite(nil)
	}
	err := os.Remove(j.path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err = j.create(); err == nil {
		err = j.f.Truncate(0)
	}
	if err != nil {
		return fmt.Errorf("truncate journal: %w", err)
	}
	return nil
}

// Close closes and unlocks the journal.
func (j *File[E, P]) Close() error {
	if j.f == nil {
		return nil
	}
	return j.f.Close()
}
