package qemu

import (
	"bytes"
	"fmt"
	"path"
)

// Archive is an initramfs under construction: cpio's "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst).
// It is not compressed: an emulated CPU would take longer over that than QEMU takes to copy it.
type Archive struct {
	bytes.Buffer
	inode int
	made  map[string]bool
}

// Types of files, as in stat(2).
const (
	typeFile = 0o100000
	typeDir  = 0o040000
	typeLink = 0o120000
)

// NewArchive creates an empty one.
func NewArchive() *Archive { return &Archive{made: map[string]bool{}} }

// File adds a file with the directories above it.
func (a *Archive) File(name string, perm int, data []byte) {
	a.Directories(path.Dir(name))
	a.entry(name, typeFile|perm, data)
}

// Link adds a symbolic link.
func (a *Archive) Link(name, target string) {
	a.Directories(path.Dir(name))
	a.entry(name, typeLink|0o777, []byte(target))
}

// Directories adds a directory with those above it.
func (a *Archive) Directories(name string) {
	if name == "." || name == "/" || a.made[name] {
		return
	}
	a.Directories(path.Dir(name))
	a.made[name] = true
	a.entry(name, typeDir|0o755, nil)
}

func (a *Archive) entry(name string, mode int, data []byte) {
	a.inode++
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.WriteString(name)
	a.WriteByte(0)
	a.pad()
	a.Write(data)
	a.pad()
}

func (a *Archive) pad() {
	for a.Len()%4 != 0 {
		a.WriteByte(0)
	}
}

// End returns the archive.
func (a *Archive) End() []byte {
	a.inode = -1
	a.entry("TRAILER!!!", 0, nil)
	return a.Bytes()
}
