package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"polder/lib/kernfile"
)

// File is a cgroup's file, open for reading. The error of a reading wraps unix.ENODEV if the cgroup was removed meanwhile (see [IsGone]).
type File = kernfile.File

// noLinks are the flags for opening cgroup files: below the hierarchy's mount, without following symbolic links.
const noLinks = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// Open opens a cgroup's file for reading. The error wraps fs.ErrNotExist if the cgroup or the file does not exist.
func (h *Hierarchy) Open(controller, cgroup, name string) (*File, error) {
	if err := h.checkPath(cgroup); err != nil {
		return nil, err
	}
	at, version := h.mount(controller)
	if version == 0 {
		return nil, fmt.Errorf("read %s of %s: controller %s: %w", name, ShownPath(cgroup), controller, ErrNoController)
	}
	fd, err := openBeneath(at, filepath.Join(cgroup, name), unix.O_RDONLY)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: ShownPath(filepath.Join(at, cgroup, name)), Err: err}
	}
	return kernfile.NewFile(fd, ShownPath(filepath.Join(at, cgroup, name))), nil
}

func openBeneath(dir, path string, flags int) (int, error) {
	base, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(base)
	rel := strings.TrimLeft(path, "/")
	if rel == "" {
		rel = "."
	}
	fd, err := unix.Openat2(base, rel, &unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: noLinks})
	if errors.Is(err, unix.ENOSYS) { // Linux before 5.6; checkPath has checked the path
		return unix.Openat(base, rel, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	}
	return fd, err
}

// Has reports whether a cgroup has a file.
func (h *Hierarchy) Has(controller, cgroup, name string) bool {
	at, _ := h.mount(controller)
	return unix.Faccessat(unix.AT_FDCWD, filepath.Join(at, cgroup, name), unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// IsGone reports whether err means that the cgroup does not exist or was removed.
func IsGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// ReadFile reads a cgroup's file once; see [kernfile.Text].
func (h *Hierarchy) ReadFile(controller, cgroup, name string) (string, error) {
	f, err := h.Open(controller, cgroup, name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := f.Read(nil)
	return string(kernfile.Text(data)), err
}

// WriteFile writes one value to a cgroup's file. It does not create files: a missing file is an error.
func (h *Hierarchy) WriteFile(controller, cgroup, name, value string) error {
	dir, version, err := h.Dir(controller, cgroup)
	if err != nil {
		return err
	}
	if h.root != "/" {
		// On a copy opencontainers/cgroups creates files and follows links, which is impossible on the kernel's own file system.
		at, _ := h.mount(controller)
		fd, err := openBeneath(at, filepath.Join(cgroup, name), unix.O_PATH)
		if err != nil {
			return &fs.PathError{Op: "write", Path: ShownPath(filepath.Join(dir, name)), Err: err}
		}
		unix.Close(fd)
	}
	if err := writeFile(dir, name, value, writeFlags(version, name)); err != nil {
		return fmt.Errorf("write %q to %s: %w", value, ShownPath(filepath.Join(dir, name)), rootCause(err))
	}
	return nil
}

// writeFlags returns the flags beside O_WRONLY for writing a file. A limit of memory under the use makes the kernel reclaim within the
// write, which can take seconds while memory is short, and the tick loop would wait for it. Since Linux 6.16 O_NONBLOCK leaves that to the
// cgroup's own next allocation (memory.high and memory.max in the kernel's cgroup-v2.rst); older kernels ignore the flag.
func writeFlags(version int, name string) int {
	if version == 2 && (name == "memory.high" || name == "memory.max") {
		return unix.O_NONBLOCK
	}
	return 0
}

func writeFile(dir, name, value string, flags int) error {
	f, err := cgroups.OpenFile(dir, name, unix.O_WRONLY|flags)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}

// rootCause removes the library's text, because Polder's own message has the same facts.
func rootCause(err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return err
}

// Exists reports whether a cgroup exists in the controller's hierarchy.
func (h *Hierarchy) Exists(controller, cgroup string) (bool, error) {
	dir, _, err := h.Dir(controller, cgroup)
	if err != nil {
		return false, err
	}
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.IsDir(), err
}

// Children lists the names of a cgroup's child cgroups in the controller's hierarchy ("" is the primary one), sorted.
func (h *Hierarchy) Children(controller, cgroup string) ([]string, error) {
	dir, _, err := h.Dir(controller, cgroup)
	if err != nil {
		return nil, err
	}
	return directories(dir)
}

// directories lists the directories in a directory, sorted.
func directories(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// PIDs lists the processes of a cgroup and its descendants.
func (h *Hierarchy) PIDs(controller, cgroup string) ([]int, error) {
	dir, _, err := h.Dir(controller, cgroup)
	if err != nil {
		return nil, err
	}
	return cgroups.GetAllPids(dir)
}
