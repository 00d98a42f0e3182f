package resctrl

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/opencontainers/runc/libcontainer/intelrdt"
	"golang.org/x/sys/unix"

	"polder/lib/schemata"
)

// kernel contains what only the kernel's own file system does: a new directory contains a group's files at once, and a
// directory with these files can be removed. In tests on a copy, functions do that here.
type kernel struct {
	mkdir func(at *os.Root, group string, mode fs.FileMode) error
	rmdir func(at *os.Root, group string) error
	// move writes one task into a group's tasks.
	move func(at *os.Root, dir, group string, tid uint64) error
}

// moveTask moves a task as runc does for its containers. A file of a copy is not the kernel's: a write would truncate its content.
func moveTask(at *os.Root, dir, group string, tid uint64) error {
	var mount unix.Statfs_t
	if unix.Statfs(dir, &mount) == nil && mount.Type == unix.RDTGROUP_SUPER_MAGIC {
		return runcTask(at, dir, group, tid)
	}
	return appendLine(at, filepath.Join(group, keyTasks), strconv.FormatUint(tid, 10))
}

func runcTask(_ *os.Root, dir, group string, tid uint64) error {
	if tid > math.MaxInt32 { // above the kernel's largest PID; runc may take a negative one for none
		return unix.EINVAL
	}
	return intelrdt.WriteIntelRdtTasks(filepath.Join(dir, group), int(tid))
}

// maxText bounds what is read of a schemata file.
const maxText = 64 << 10

func readAll(r io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxText))
	return string(data), err
}

// schemataOf reads a group's lines.
func schemataOf(at *os.Root, group string) ([]schemata.Line, error) {
	f, err := at.Open(filepath.Join(group, keySchemata))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := readAll(f)
	return schemata.ParseFile(text), err
}

// appendLine writes one line with its newline to an existing file: the kernel rejects a line of schemata without a newline. The
// kernel ignores the file position; in a copy the previous lines stay.
func appendLine(at *os.Root, name, text string) error {
	f, err := at.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text + "\n")
	return errors.Join(err, f.Close())
}

// groupsIn returns the names of the groups beside the root group.
func groupsIn(at *os.Root) ([]string, error) {
	f, err := at.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(kernelDirs, e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// inodeOf returns the inode that distinguishes a group from another one of its name; 0 if the group does not exist.
func inodeOf(at *os.Root, group string) uint64 {
	info, err := at.Lstat(group)
	if err != nil || !info.IsDir() {
		return 0
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// explain adds the kernel's own text about its last error.
func (r *round) explain(what string, err error) error { return explain(r.at, r.dir, what, err) }

func explain(at *os.Root, dir, what string, err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		err = errno
	}
	hint := ""
	switch {
	case errors.Is(err, unix.ENOSPC):
		hint = "all groups are in use"
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		hint = "isolate needs root and a writable mount of " + dir
	}
	if f, openErr := at.Open(filepath.Join("info", "last_cmd_status")); openErr == nil {
		status, readErr := readAll(f)
		f.Close()
		if status = strings.TrimSpace(status); readErr == nil && status != "" && status != "ok" {
			hint = "last_cmd_status: " + status
		}
	}
	if hint == "" {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w (%s)", what, err, hint)
}
