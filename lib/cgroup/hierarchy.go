// Package cgroup reads and writes control groups of version 1 and 2: it finds the controllers' mounts, keeps files open
// between readings, and writes safely. It is the only importer of opencontainers/cgroups.
//
// A cgroup is named by its path from the root of the hierarchy ("/kubepods/burstable/pod1"), the same in every
// hierarchy of version 1.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"polder/lib/kernfile"
)

// These are the modes of mounting.
const (
	ModeV1     = "v1"
	ModeV2     = "v2"
	ModeHybrid = "hybrid" // controllers in v1 hierarchies, and a v2 mount beside them
)

// Hierarchy has the mount points of the controllers.
type Hierarchy struct {
	root    string
	mode    string
	v1      map[string]string // controller -> mount point, under root
	unified string            // the v2 mount point, under root; empty if there is none
	v2      []string          // the controllers at v2's root
	// isNested means that there may be processes of PID namespaces other than this process's and its descendants.
	isNested bool
	// hasAnyNames means that every path is accepted that the kernel may have, see WithAnyNames.
	hasAnyNames bool
}

// WithAnyNames returns a copy that accepts every path that [CheckAnyNames] accepts, for the cgroups that [Hierarchy.Children] lists:
// whoever may create a cgroup chooses its name, and could otherwise prevent that it is changed. Paths from elsewhere need [CheckPath].
func (h *Hierarchy) WithAnyNames() *Hierarchy {
	other := *h
	other.hasAnyNames = true
	return &other
}

// ErrNoCgroups is returned if no cgroup hierarchy is mounted.
var ErrNoCgroups = errors.New("no cgroup hierarchy is mounted")

// testMode makes opencontainers/cgroups accept files that are not on a cgroup file system, for copies. It is set once.
var testMode sync.Once

// Detect finds the mounts in /proc/self/mountinfo under root. For a copy without a mountinfo the files at its
// /sys/fs/cgroup decide.
func Detect(root string) (*Hierarchy, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("find cgroup mounts: %w", err)
	}
	if root != "/" {
		testMode.Do(func() { cgroups.TestMode = true })
	}
	h := &Hierarchy{root: root, v1: map[string]string{}, isNested: isNestedPIDNamespace(root)}
	path := filepath.Join(root, "proc/self/mountinfo")
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && root != "/":
		h.fromDirectories()
	case err != nil:
		return nil, fmt.Errorf("find cgroup mounts: %w", err)
	default:
		defer f.Close()
		mounts, err := mountinfo.GetMountsFromReader(f, func(i *mountinfo.Info) (skip, stop bool) {
			return i.FSType != "cgroup" && i.FSType != "cgroup2", false
		})
		if err != nil {
			return nil, fmt.Errorf("find cgroup mounts in %s: %w", path, err)
		}
		h.fromMounts(mounts)
	}
	return h, h.determineMode()
}

// knownV1 are the controllers of version 1 that Polder reads or writes.
var knownV1 = []string{"cpu", "cpuacct", "cpuset", "memory", "freezer", "blkio", "pids"}

func (h *Hierarchy) fromMounts(mounts []*mountinfo.Info) {
	for _, m := range mounts {
		at := filepath.Join(h.root, filepath.Join("/", m.Mountpoint)) // a copy's ".." must not lead out of it
		if m.FSType == "cgroup2" {
			if h.unified == "" {
				h.unified = at
			}
			continue
		}
		for option := range strings.SplitSeq(m.VFSOptions, ",") {
			if slices.Contains(knownV1, option) && h.v1[option] == "" {
				h.v1[option] = at
			}
		}
	}
}

func (h *Hierarchy) fromDirectories() {
	base := filepath.Join(h.root, "sys/fs/cgroup")
	for _, at := range []string{base, filepath.Join(base, "unified")} {
		if _, err := os.Stat(filepath.Join(at, "cgroup.controllers")); err == nil && h.unified == "" {
			h.unified = at
		}
	}
	for _, controller := range knownV1 {
		for _, name := range []string{controller, "cpu,cpuacct", "cpuacct,cpu"} {
			if name != controller && !strings.Contains(name, controller) {
				continue
			}
			at := filepath.Join(base, name)
			if _, err := os.Stat(filepath.Join(at, "cgroup.procs")); err == nil && h.v1[controller] == "" {
				h.v1[controller] = at
			}
		}
	}
}

func (h *Hierarchy) determineMode() error {
	switch {
	case len(h.v1) > 0 && h.unified != "":
		h.mode = ModeHybrid
	case len(h.v1) > 0:
		h.mode = ModeV1
	case h.unified != "":
		h.mode = ModeV2
	default:
		return fmt.Errorf("%w under %s (looked for cgroup and cgroup2 in /proc/self/mountinfo)", ErrNoCgroups, h.root)
	}
	if h.unified != "" {
		text, err := kernfile.ReadText(filepath.Join(h.unified, "cgroup.controllers"))
		if err != nil {
			return fmt.Errorf("read the controllers of cgroup v2: %w", err)
		}
		h.v2 = strings.Fields(text)
	}
	return nil
}

// IsMachineRoot reports whether a controller's hierarchy begins at the root of the kernel's own: in a cgroup namespace, and where only a
// part of it is mounted, it does not. Each version has a file that only the root has, or has not.
func (h *Hierarchy) IsMachineRoot(controller string) bool {
	switch h.Version(controller) {
	case 1:
		return h.Has(controller, "/", "cgroup.sane_behavior")
	case 2:
		return !h.Has(controller, "/", "cgroup.type")
	}
	return false
}

// Mode returns ModeV1, ModeV2 or ModeHybrid.
func (h *Hierarchy) Mode() string { return h.mode }

// Version returns the version of the hierarchy that has the controller ("cpu", "cpuset", "memory", …), 1 or 2, and 0 if none has it.
// Names of both versions are accepted: v1's "cpuacct" is v2's "cpu", and "blkio" is "io".
func (h *Hierarchy) Version(controller string) int {
	_, version := h.mount(controller)
	return version
}

func (h *Hierarchy) mount(controller string) (at string, version int) {
	if controller == "" { // the hierarchy itself, with any controllers
		return h.Primary(), h.primaryVersion()
	}
	v1 := controller
	if controller == "io" {
		v1 = "blkio"
	}
	if at := h.v1[v1]; at != "" {
		return at, 1
	}
	switch controller {
	case "cpuacct":
		controller = "cpu"
	case "blkio":
		controller = "io"
	case "freezer": // in v2 it is no controller but always available
		if h.unified != "" && len(h.v1) == 0 {
			return h.unified, 2
		}
	}
	if slices.Contains(h.v2, controller) || h.mode == ModeV2 && controller == "cpu" { // cpu.stat's usage exists without the controller
		return h.unified, 2
	}
	return "", 0
}

// Primary returns the mount point in which cgroups are searched: v2's, or in v1 the one that accounts for CPU time.
func (h *Hierarchy) Primary() string {
	if h.mode == ModeV2 {
		return h.unified
	}
	for _, controller := range []string{"cpuacct", "cpu", "memory", "cpuset"} {
		if at := h.v1[controller]; at != "" {
			return at
		}
	}
	return h.unified
}

// Unified returns the mount point of version 2, which may exist beside version 1; empty if there is none.
func (h *Hierarchy) Unified() string { return h.unified }

func (h *Hierarchy) primaryVersion() int {
	if h.Primary() == h.unified {
		return 2
	}
	return 1
}

// Dir returns the directory of a cgroup in the controller's hierarchy ("" stands for [Hierarchy.Primary]), with the
// version. It rejects paths that lead out of the hierarchy; it does not check whether the directory exists.
func (h *Hierarchy) Dir(controller, cgroup string) (string, int, error) {
	if err := h.checkPath(cgroup); err != nil {
		return "", 0, err
	}
	at, version := h.mount(controller)
	if version == 0 {
		return "", 0, fmt.Errorf("controller %s: %w", controller, ErrNoController)
	}
	return filepath.Join(at, cgroup), version, nil
}

// Inode returns the inode of a cgroup's directory in the primary hierarchy: a cgroup that is created again has another one.
func (h *Hierarchy) Inode(cgroup string) (uint64, error) { return h.InodeIn("", cgroup) }

// InodeIn is like Inode for the controller's hierarchy.
func (h *Hierarchy) InodeIn(controller, cgroup string) (uint64, error) {
	dir, _, err := h.Dir(controller, cgroup)
	if err != nil {
		return 0, err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: ShownPath(dir), Err: err}
	}
	return st.Ino, nil
}

// ErrNoController is wrapped if no mounted hierarchy has a controller.
var ErrNoController = errors.New("not mounted in any cgroup hierarchy")
