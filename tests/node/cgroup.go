package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"polder/tests/node/wire"
	"polder/tests/stale"
)

// prefix begins the names of all cgroups and directories of this package; the test's PID follows.
const prefix = "polder-node-"

// makeCgroups creates a cgroup in every hierarchy. A new one of cpuset has neither CPUs nor memory, and accepts no process.
func makeCgroups(cgroup string) error {
	hierarchies, err := wire.Hierarchies()
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		path := filepath.Join(h.Mount, cgroup)
		if err := os.Mkdir(path, 0o755); err != nil {
			return fmt.Errorf("make the node's cgroup: %w", err)
		}
		if h.Options != "cpuset" {
			continue
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(h.Mount, file))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(path, file), value, 0); err != nil {
				return fmt.Errorf("give the node's cgroup the machine's %s: %w", file, err)
			}
		}
	}
	return nil
}

// removeCgroups removes a cgroup and all under it from every hierarchy. Processes that were killed may take a while to leave.
func removeCgroups(cgroup string) error {
	hierarchies, err := wire.Hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range hierarchies {
		errs = append(errs, removeTree(filepath.Join(h.Mount, cgroup)))
	}
	return errors.Join(errs...)
}

func removeTree(root string) error {
	var err error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var dirs []string
		err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it was removed meanwhile
			}
			return err
		})
		slices.Reverse(dirs) // children before parents
		for _, dir := range dirs {
			if e := syscall.Rmdir(dir); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, fmt.Errorf("remove the cgroup %s: %w", dir, e))
			}
		}
		if err == nil {
			return nil
		}
	}
	return err
}

// removeStale removes the cgroups and files of tests that were killed.
func removeStale() error {
	hierarchies, err := wire.Hierarchies()
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		if err := stale.Remove(h.Mount, prefix, removeTree); err != nil {
			return err
		}
	}
	return stale.Remove(os.TempDir(), prefix, os.RemoveAll)
}
