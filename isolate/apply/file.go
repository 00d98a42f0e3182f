package apply

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"

	"polder/isolate/plan"
	"polder/lib/cgroup"
	"polder/lib/kernfile"
)

// file is one file of a cgroup, kept open between rounds, and what is known about it.
type file struct {
	plan.File
	handle *cgroup.File
	data   []byte
	text   string // as [kernfile.Text] returned it
	// textVersion counts the changes of the text, so that a caller who judged one text knows when it changed.
	textVersion    uint64
	usedGeneration uint64 // the itemsGeneration that used the file last

	// lastApplied is the last value that was as desired, or that was written last.
	lastApplied    string
	hasLastApplied bool
	earlier        *record // what an earlier run recorded, until the first reading sets lastApplied; nil if nothing

	isOwnLimitReported bool // by [Applier.warnOfOwnLimit]

	contest
}

// read reads the file. If the file does not exist, [cgroup.IsGone] is true of the error.
func (a *Applier) read(f *file) error {
	if f.handle != nil {
		if err := a.readOpen(f); err == nil || !cgroup.IsGone(err) {
			return err
		}
		// The cgroup was removed; another one of the same name may exist, about which nothing is known.
		a.closeFile(f)
		f.hasLastApplied, f.earlier, f.contest = false, nil, contest{}
	}
	handle, err := a.Hierarchy.Open(f.Controller, f.Cgroup, f.Name)
	if err != nil {
		return err
	}
	f.handle = handle
	a.openFiles++
	err = a.readOpen(f)
	if err != nil || a.openFiles > a.maxOpenFiles {
		a.closeFile(f)
	}
	return err
}

func (a *Applier) readOpen(f *file) error {
	data, err := f.handle.Read(a.buf)
	if err != nil {
		return err
	}
	a.buf = data[:cap(data)]
	if f.textVersion > 0 && bytes.Equal(data, f.data) {
		return nil
	}
	f.data = append(f.data[:0], data...)
	text := string(kernfile.Text(data))
	if f.Device != "" { // the lines of other disks may have changed
		if text = plan.DeviceText(text, f.Device); f.textVersion > 0 && text == f.text {
			return nil
		}
	}
	f.text = text
	f.textVersion++
	f.takeOver()
	return nil
}

// takeOver sets lastApplied at the first reading to what an earlier run applied. A value is recorded before it is written, and that run may
// have been killed in between: then the file has an earlier one of its values.
func (f *file) takeOver() {
	if f.earlier == nil {
		return
	}
	f.lastApplied, f.hasLastApplied = f.earlier.Written[len(f.earlier.Written)-1], true
	if f.earlier.isOurs(f.Name, f.text) {
		f.lastApplied = f.text
	}
	f.earlier = nil
}

func (a *Applier) closeFile(f *file) {
	if f.handle != nil {
		f.handle.Close()
		f.handle = nil
		a.openFiles--
	}
}

// expect records that the value is as desired.
func (f *file) expect(text string) {
	f.lastApplied, f.hasLastApplied = text, true
	f.RecordUnchanged()
}

// fileOf returns what is known about a file, and marks it as in use.
func (a *Applier) fileOf(f plan.File) *file {
	known := a.files[f]
	if known == nil {
		known = &file{File: f}
		if r := a.records[f]; r != nil && r.Inode == a.inode(f) && len(r.Written) > 0 && !r.IsSideEffect {
			known.earlier = r
		}
		a.files[f] = known
	}
	known.usedGeneration = a.itemsGeneration
	return known
}

// inode identifies a cgroup as long as the machine runs: the kernel never reuses a cgroup's inode. It returns 0 if the
// cgroup does not exist, or if that is unknown.
func (a *Applier) inode(f plan.File) uint64 {
	inode, _ := a.inodeOrError(f)
	return inode
}

// inodeOrError is like inode, with an error where the cgroup may exist: its controller is not mounted here, or it cannot be read.
func (a *Applier) inodeOrError(f plan.File) (uint64, error) {
	st, err := a.stat(f)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOTDIR) {
		return 0, fmt.Errorf("the cgroup's directory: %w", err)
	}
	return st.Ino, nil
}

// children returns the file in each child of its cgroup, whether or not it exists there; none if the cgroup was removed meanwhile.
func (a *Applier) children(f plan.File) []plan.File {
	if st, err := a.stat(f); err == nil && st.Nlink == 2 { // a directory without subdirectories has only its own links
		return nil
	}
	names, err := a.Hierarchy.Children(f.Controller, f.Cgroup)
	if err != nil {
		return nil
	}
	children := make([]plan.File, len(names))
	for i, name := range names {
		children[i] = f
		children[i].Cgroup = path.Join(f.Cgroup, name)
	}
	return children
}

// stat returns what a cgroup's directory is; ENOTDIR if it is none.
func (a *Applier) stat(f plan.File) (unix.Stat_t, error) {
	dir, _, err := a.Hierarchy.Dir(f.Controller, f.Cgroup)
	if err != nil {
		return unix.Stat_t{}, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return unix.Stat_t{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.Stat_t{}, unix.ENOTDIR
	}
	return st, nil
}
