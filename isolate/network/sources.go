package network

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"polder/isolate/network/plan"
	"polder/lib/cgroup"
	"polder/lib/phrase"
)

// sourceFinder finds the sources of the cgroups' packets: sockets in isolate's own network namespace, which have a cgroup of version 2, and
// links into other network namespaces, which contain a pod's processes. Only the pod's own end of such a link sees the pod's sockets.
type sourceFinder struct {
	h   *cgroup.Hierarchy
	now func() time.Time

	marksText  string // the marks of the last search
	searchedAt time.Time
	result     sources
}

// sources are the sources of marked packets.
type sources struct {
	cgroups []cgroupMark
	links   []linkMark
	missing int
	errs    []error
}

// cgroupMark is a cgroup of version 2, by its inode and its depth below the root, with the mark of its packets.
type cgroupMark struct {
	id    uint64
	depth uint32
	mark  uint32
}

// linkMark is the host's end of a link into a pod.
type linkMark struct {
	name  string
	index int
	mark  uint32
}

// searchInterval is how often everything is searched again: a pod's first process appears after its cgroup.
const searchInterval = 5 * time.Second

const (
	// maxDirs bounds the cgroup directories that one round searches; maxMarkedLinks bounds the links that are marked.
	maxDirs        = 20_000
	maxMarkedLinks = 2000
)

// find finds the sources of packets of the marks' cgroups.
func (s *sourceFinder) find(marks []plan.Mark, links []netlink.Link) *sources {
	text := fmt.Sprint(marks, len(links))
	if age := s.now().Sub(s.searchedAt); text == s.marksText && age >= 0 && age < searchInterval {
		s.result.errs = nil
		return &s.result
	}
	s.marksText, s.searchedAt, s.result = text, s.now(), sources{}
	w := sourceSearch{sourceFinder: s, marks: map[int]uint32{}, isMarked: map[uint64]bool{}}
	for _, m := range marks {
		w.dirs = w.dirs[:0]
		for _, c := range m.Cgroups {
			w.searchCgroup(c, m.Mark)
		}
		w.searchProcesses(m.Mark, maxDirs/len(marks))
	}
	if w.hiddenCgroups > 0 {
		s.result.errs = append(s.result.errs, fmt.Errorf("processes of %s are in another PID namespace: "+
			"isolate must run in the host's (hostPID: true)", phrase.Count(w.hiddenCgroups, "cgroup")))
	}
	for _, l := range links {
		a := l.Attrs()
		mark, isPod := w.marks[a.NetNsID]
		if a.NetNsID < 0 || !isPod || len(s.result.links) == maxMarkedLinks {
			continue
		}
		if l.Type() == "veth" {
			s.result.links = append(s.result.links, linkMark{a.Name, a.Index, mark})
		}
	}
	slices.SortFunc(s.result.links, func(x, y linkMark) int { return x.index - y.index })
	return &s.result
}

type sourceSearch struct {
	*sourceFinder
	marks         map[int]uint32 // by the kernel's number of a network namespace
	isMarked      map[uint64]bool
	hiddenCgroups int
	dirs          []cgroupDir // of the mark, whose processes are to be searched
}

// cgroupDir is a directory in the mount of a hierarchy.
type cgroupDir struct{ mount, path string }

// searchCgroup searches one cgroup.
func (w *sourceSearch) searchCgroup(c string, mark uint32) {
	err := cgroup.CheckPath(c)
	switch {
	case err != nil:
		w.result.errs = append(w.result.errs, fmt.Errorf("refused: %w", err))
		return
	case c == "/":
		w.result.errs = append(w.result.errs, errors.New("refused: the root cgroup contains the whole machine"))
		return
	case w.h == nil:
		return
	}
	exists := false
	if v2 := w.h.Unified(); v2 != "" {
		var st unix.Stat_t
		if dir := filepath.Join(v2, c); unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			exists = true
			if !w.isMarked[st.Ino] { // the first class that names it wins
				w.isMarked[st.Ino] = true
				w.result.cgroups = append(w.result.cgroups, cgroupMark{st.Ino, uint32(strings.Count(c, "/")), mark})
			}
			w.dirs = append(w.dirs, cgroupDir{v2, c})
		}
	}
	if primary := w.h.Primary(); primary != w.h.Unified() {
		if _, err := os.Lstat(filepath.Join(primary, c)); err == nil {
			exists = true
			w.dirs = append(w.dirs, cgroupDir{primary, c})
		}
	}
	if !exists {
		w.result.missing++
	}
}

// searchProcesses reads the network namespace of the first process of each of the mark's cgroups and their descendants: containers of a pod
// share one, and jobs below one cgroup may have one each. It reads one level after the other, because a job that may create cgroups in its
// own could otherwise use up the bound before the next job is found.
func (w *sourceSearch) searchProcesses(mark uint32, bound int) {
	for i := 0; i < min(len(w.dirs), bound); i++ {
		d := w.dirs[i]
		dir := filepath.Join(d.mount, d.path)
		pid, err := firstProcess(dir)
		switch {
		case err != nil: // it was removed meanwhile, and has no packets
		case pid == noProcess:
			if d.mount == w.h.Primary() && w.h.MayHideTasks("", d.path) {
				w.hiddenCgroups++
			}
		case pid == 0:
			w.hiddenCgroups++
		default:
			if id, err := netlink.GetNetNsIdByPid(pid); err == nil && id >= 0 {
				if _, known := w.marks[id]; !known {
					w.marks[id] = mark
				}
			}
		}
		children, err := os.ReadDir(dir)
		for _, child := range children {
			if err == nil && child.IsDir() && len(w.dirs) < bound {
				w.dirs = append(w.dirs, cgroupDir{d.mount, d.path + "/" + child.Name()})
			}
		}
	}
}

// noProcess means that a cgroup lists no process.
const noProcess = -1

// firstProcess returns the first process in a cgroup's own list, 0 for a process of another PID namespace, and noProcess for an empty list.
func firstProcess(dir string) (pid int, err error) {
	f, err := os.Open(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	if !lines.Scan() {
		return noProcess, lines.Err()
	}
	n, err := strconv.ParseUint(lines.Text(), 10, 31)
	return int(n), err
}

// depths returns the depths of the cgroups, sorted.
func (s *sources) depths() []uint32 {
	set := map[uint32]bool{}
	for _, c := range s.cgroups {
		set[c.depth] = true
	}
	return slices.Sorted(maps.Keys(set))
}
