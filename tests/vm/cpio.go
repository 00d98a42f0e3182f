package vm

import (
	"bytes"
	"fmt"
	"path"
)

// archive is an initramfs in the making: cpio's "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst).
// It is not compressed: an emulated CPU would take longer over that than QEMU takes to copy it.
type archive struct {
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

func newArchive() *archive { return &archive{made: map[string]bool{}} }

// file adds a file with the directories above it.
func (a *archive) file(name string, perm int, data []byte) {
	a.directories(path.Dir(name))
	a.entry(name, typeFile|perm, data)
}

// link adds a symbolic link.
func (a *archive) link(name, target string) {
	a.directories(path.Dir(name))
	a.entry(name, typeLink|0o777, []byte(target))
}

func (a *archive) directories(name string) {
	if name == "." || name == "/" || a.made[name] {
		return
	}
	a.directories(path.Dir(name))
	a.made[name] = true
	a.entry(name, typeDir|0o755, nil)
}

func (a *archive) entry(name string, mode int, data []byte) {
	a.inode++
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.WriteString(name)
	a.WriteByte(0)
	a.pad()
	a.Write(data)
	a.pad()
}

func (a *archive) pad() {
	for a.Len()%4 != 0 {
		a.WriteByte(0)
	}
}

// end returns the archive.
func (a *archive) end() []byte {
	a.inode = -1
	a.entry("TRAILER!!!", 0, nil)
	return a.Bytes()
}
