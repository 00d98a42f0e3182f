package apply

import (
	"bytes"

	"golang.org/x/sys/unix"

	"polder/isolate/plan"
	"polder/lib/cgroup"
	"polder/lib/kernfile"
)

// file is one file of a cgroup, held open between the rounds, and what is known of it.
type file struct {
	plan.File
	held *cgroup.File
	seen []byte
	text string // seen as kernfile.Text has it
	// readings counts the different texts seen, so that who judged one knows when there is another.
	readings uint64
	age      uint64

	// agreed is the value that was there when all was well, or that was written last.
	agreed string
	known  bool
	contest
}

// read reads the file. [gone] is true of the error where it is not there.
func (a *Applier) read(f *file) error {
	if f.held != nil {
		if err := a.readHeld(f); err == nil || !gone(err) {
			return err
		}
		// Removed; there may be another of the same name, of which nothing is known.
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
	if f.Device != "" { // the lines of other disks may have changed alone
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

// agree notes that the value is as it should be.
func (f *file) agree(text string) {
	f.agreed, f.known = text, true
	f.Calm()
}

// fileOf returns what is known of a file, marked as in use.
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

// inode identifies a cgroup for as long as the machine runs: the kernel gives no inode of a cgroup twice. It is 0 where
// the cgroup is not there.
func (a *Applier) inode(f plan.File) uint64 {
	st, ok := a.stat(f)
	if !ok {
		return 0
	}
	return st.Ino
}

// childless reports whether a cgroup surely has no children: its directory has only the links of its own.
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
