package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const mount = "/sys/fs/cgroup"

// group is a cgroup: one directory in each hierarchy of version 1, or the one of version 2.
type group struct {
	name string // from the root of the hierarchy
	dirs []string
	v2   bool
}

// newRootGroup makes the cgroup that contains all others of the run.
func newRootGroup(name string) (*group, error) {
	top := &group{name: ""}
	if exists(mount + "/cgroup.controllers") {
		top.dirs, top.v2 = []string{mount}, true
	} else {
		for _, controller := range []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "freezer"} {
			dir, err := filepath.EvalSymlinks(filepath.Join(mount, controller)) // cpu is often a link to cpu,cpuacct
			if err == nil && !slices.Contains(top.dirs, dir) {
				top.dirs = append(top.dirs, dir)
			}
		}
	}
	if len(top.dirs) == 0 {
		return nil, fmt.Errorf("no cgroup hierarchy is mounted at %s", mount)
	}
	if err := top.delegate(); err != nil {
		return nil, err
	}
	root, err := top.child(name)
	if err == nil {
		err = root.delegate()
	}
	if err != nil && root != nil {
		err = errors.Join(err, root.remove())
	}
	return root, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// delegate enables the controllers that the tools read and write for the cgroups below; version 1 has no such thing.
func (g *group) delegate() error {
	if !g.v2 {
		return nil
	}
	return write(filepath.Join(g.dirs[0], "cgroup.subtree_control"), "+cpu +cpuset +memory +pids")
}

// child makes a cgroup below g. With an error, too, it returns what has been made of it.
func (g *group) child(name string) (*group, error) {
	c := &group{name: g.name + "/" + name, v2: g.v2}
	for _, above := range g.dirs {
		dir := filepath.Join(above, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return c, err
		}
		c.dirs = append(c.dirs, dir)
		if g.v2 {
			continue
		}
		for _, file := range []string{"cpuset.mems", "cpuset.cpus"} { // empty until written, and then takes no process
			data, err := os.ReadFile(filepath.Join(above, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = write(filepath.Join(dir, file), strings.TrimSpace(string(data)))
			}
			if err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

func (g *group) enter(pid int) error {
	for _, dir := range g.dirs {
		if err := write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// remove ends the processes in the cgroup and in those below, and removes them all.
func (g *group) remove() error {
	var err error
	for range 100 {
		err = nil
		for _, dir := range g.dirs {
			err = errors.Join(err, removeTree(dir))
		}
		if err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("cgroup %s is left: %w", g.name, err)
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if entry.IsDir() {
			_ = removeTree(filepath.Join(dir, entry.Name())) // what is left shows in the removal of dir
		}
	}
	pids, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for pid := range strings.FieldsSeq(string(pids)) {
		if n, err := strconv.Atoi(pid); err == nil && n > 0 {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
	if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rmdir %s: %w", dir, err)
	}
	return nil
}

// write writes to a file that must exist, in one write, as the kernel requires.
func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
