package apply

import (
	"bytes"

	"golang.org/x/sys/unix"

	"polder/isolate/plan"
	"polder/lib/cgroup"
	"polder/lib/kernfile"
)

// file is one file of a cgroup, kept open between rounds, and what is known about it.
type file struct {
	plan.File
	held *cgroup.File
	seen []byte
	text string // as [kernfile.Text] returned it
	// readings counts the changes of the text, so that a caller who judged one text knows when it changed.
	readings uint64
	age      uint64

	// agreed is the last value that was as desired, or that was written last.
	agreed string
	known  bool
	contest
}

// read reads the file. If the file does not exist, [gone] is true of the error.
func (a *Applier) read(f *file) error {
	if f.held != nil {
		if err := a.readHeld(f); err == nil || !gone(err) {
			return err
		}
		// The cgroup was removed; another one of the same name may exist, about which nothing is known.
		a.shut(f)
		f.known, f.contest = false, contest{}
	}
	held, err := a.Hierarchy.Open(f.Controller, f.Cgroup, f.Name)
	if err != nil {
		return err
	}
	f.held = held
	a.open++
	err = a.readHeld(f)
	if err != nil || a.open > a.maxOpen {
		a.shut(f)
	}
	return err
}

func (a *Applier) readHeld(f *file) error {
	data, err := f.held.Read(a.buf)
	if err != nil {
		return err
	}
	a.buf = data[:cap(data)]
	if f.readings > 0 && bytes.Equal(data, f.seen) {
		return nil
	}
	f.seen = append(f.seen[:0], data...)
	text := string(kernfile.Text(data))
	if f.Device != "" { // the lines of other disks may have changed
		if text = plan.DeviceText(text, f.Device); f.readings > 0 && text == f.text {
			return nil
		}
	}
	f.text = text
	f.readings++
	return nil
}

func (a *Applier) shut(f *file) {
	if f.held != nil {
		f.held.Close()
		f.held = nil
		a.open--
	}
}

// agree records that the value is as desired.
func (f *file) agree(text string) {
	f.agreed, f.known = text, true
	f.Calm()
}

// fileOf returns what is known about a file, and marks it as in use.
func (a *Applier) fileOf(f plan.File) *file {
	known := a.files[f]
	if known == nil {
		known = &file{File: f}
		if r := a.records[f]; r != nil && r.Inode == a.inode(f) && len(r.Wrote) > 0 { // written by an earlier run
			known.agreed, known.known = r.Wrote[len(r.Wrote)-1], true
		}
		a.files[f] = known
	}
	known.age = a.age
	return known
}

// inode identifies a cgroup as long as the machine runs: the kernel never reuses a cgroup's inode. It returns 0 if the
// cgroup does not exist.
func (a *Applier) inode(f plan.File) uint64 {
	st, ok := a.stat(f)
	if !ok {
		return 0
	}
	return st.Ino
}

// childless reports whether a cgroup certainly has no children: its directory has only its own links.
func (a *Applier) childless(f plan.File) bool {
	st, ok := a.stat(f)
	return ok && st.Nlink == 2
}

func (a *Applier) stat(f plan.File) (st unix.Stat_t, ok bool) {
	dir, _, err := a.Hierarchy.Dir(f.Controller, f.Cgroup)
	if err != nil {
		return st, false
	}
	err = unix.Lstat(dir, &st)
	return st, err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}
