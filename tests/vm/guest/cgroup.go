package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// v2 is where cgroup v2 is mounted.
const v2 = "/sys/fs/cgroup"

// mountV2 mounts cgroup v2 and enables the controllers that the suites use.
func mountV2() error {
	if err := unix.Mount("cgroup2", v2, "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mount cgroup2: %w", err)
	}
	return write(v2+"/cgroup.subtree_control", "+cpuset +cpu +memory +pids +io")
}

// mountV1 mounts the controllers as Debian did with version 1.
func mountV1() error {
	if err := unix.Mount("tmpfs", v2, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, controllers := range []string{"cpu,cpuacct", "cpuset", "memory", "pids", "freezer", "blkio"} {
		at := v2 + "/" + controllers
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("cgroup", at, "cgroup", 0, controllers); err != nil {
			return fmt.Errorf("mount cgroup %s: %w", controllers, err)
		}
	}
	return nil
}

// mountHybrid adds an empty v2 to version 1's mounts, which is systemd's hybrid layout: controllers in v1, and v2 beside them.
func mountHybrid() error {
	at := v2 + "/unified"
	if err := os.Mkdir(at, 0o755); err != nil {
		return err
	}
	return unix.Mount("cgroup2", at, "cgroup2", 0, "")
}

func write(path, value string) error {
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return fmt.Errorf("write %q: %w", value, err)
	}
	return nil
}

// read returns a file's text without the last newline; the error's text if it cannot be read.
func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data))
}

// group creates a cgroup of version 2, with all controllers enabled for those below it if it is to have any.
func (t *T) group(path string, controllers ...string) string {
	dir := v2 + path
	t.Must(os.Mkdir(dir, 0o755))
	t.Cleanup(func() { t.removeGroup(dir) })
	for _, c := range controllers {
		t.Must(write(dir+"/cgroup.subtree_control", "+"+c))
	}
	return dir
}

// removeGroup ends the processes of a cgroup and removes it with those below it.
func (t *T) removeGroup(dir string) {
	_ = write(dir+"/cgroup.freeze", "0") // a cgroup of version 2
	_ = write(dir+"/cgroup.kill", "1")
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			t.removeGroup(filepath.Join(dir, e.Name()))
		}
	}
	var err error
	if !within(func() bool { err = os.Remove(dir); return err == nil || os.IsNotExist(err) }) {
		t.Errorf("cgroup is left: %v", err)
	}
}

// expect compares files of a cgroup with their expected values: name, value, name, value ….
func (t *T) expect(dir string, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		if got := read(filepath.Join(dir, pairs[i])); got != pairs[i+1] {
			t.Errorf("%s/%s is %q, want %q", dir, pairs[i], got, pairs[i+1])
		}
	}
}

// has reports whether files of a cgroup have their expected values, for callers that wait for it.
func has(dir string, pairs ...string) bool {
	for i := 0; i < len(pairs); i += 2 {
		if read(filepath.Join(dir, pairs[i])) != pairs[i+1] {
			return false
		}
	}
	return true
}

// values reads every file of a tree of cgroups that a tool could have changed, and the effective sets.
func values(dir string) (map[string]string, error) {
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name := e.Name()
		inForce := strings.Contains(name, "effective")
		if info.Mode().Perm()&0o444 == 0 || info.Mode().Perm()&0o222 == 0 && !inForce {
			return nil
		}
		// Values that change by themselves, and are no settings.
		if name == "cgroup.procs" || name == "cgroup.threads" || name == "tasks" || strings.HasSuffix(name, ".pressure") ||
			strings.HasSuffix(name, "usage_in_bytes") || name == "cpuacct.usage" || name == "memory.oom_control" {
			return nil
		}
		out[path] = read(path)
		return nil
	})
	return out, err
}

// same compares two results of values.
func (t *T) same(before, after map[string]string) {
	for path, value := range before {
		if after[path] != value {
			t.Errorf("%s is %q, was %q", path, after[path], value)
		}
	}
	for path := range after {
		if _, ok := before[path]; !ok {
			t.Errorf("%s is new", path)
		}
	}
	t.Logf("%d files compared", len(before))
}
