package network

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
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
)

// seeker finds the sources of the cgroups' packets: sockets in isolate's own network namespace, which have a cgroup of version 2, and
// links into other network namespaces, which contain a pod's processes. Only the pod's own end of such a link sees the pod's sockets.
type seeker struct {
	h   *cgroup.Hierarchy
	now func() time.Time

	of    string // the marks of the last search
	at    time.Time
	found sources
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
	level uint32
	mark  uint32
}

// linkMark is the host's end of a link into a pod.
type linkMark struct {
	name  string
	index int
	mark  uint32
}

// seekEvery is how often everything is searched again: a pod's first process appears after its cgroup.
const seekEvery = 5 * time.Second

const (
	// maxDirs bounds the cgroup directories that one round searches; maxMarkedLinks bounds the links that are marked.
	maxDirs        = 20_000
	maxMarkedLinks = 2000
)

// seek finds the sources of packets of the marks' cgroups.
func (s *seeker) seek(marks []plan.Mark, seen []netlink.Link) *sources {
	of := fmt.Sprint(marks, len(seen))
	if age := s.now().Sub(s.at); of == s.of && age >= 0 && age < seekEvery {
		s.found.errs = nil
		return &s.found
	}
	s.of, s.at, s.found = of, s.now(), sources{}
	w := seekWork{seeker: s, spaces: map[int]uint32{}, marked: map[uint64]bool{}, dirs: maxDirs}
	for _, m := range marks {
		for _, c := range m.Cgroups {
			w.cgroup(c, m.Mark)
		}
	}
	if w.hidden > 0 {
		s.found.errs = append(s.found.errs, fmt.Errorf("processes of %d cgroups are of another pid namespace: isolate must run in the host's (hostPID: true)", w.hidden))
	}
	for _, l := range seen {
		a := l.Attrs()
		mark, pod := w.spaces[a.NetNsID]
		if a.NetNsID < 0 || !pod || len(s.found.links) == maxMarkedLinks {
			continue
		}
		if l.Type() == "veth" {
			s.found.links = append(s.found.links, linkMark{a.Name, a.Index, mark})
		}
	}
	slices.SortFunc(s.found.links, func(x, y linkMark) int { return x.index - y.index })
	return &s.found
}

type seekWork struct {
	*seeker
	spaces map[int]uint32 // by the kernel's number of a network namespace
	marked map[uint64]bool
	hidden int
	dirs   int
}

// cgroup searches one cgroup and its descendants.
func (w *seekWork) cgroup(c string, mark uint32) {
	err := cgroup.CheckPath(c)
	switch {
	case err != nil:
		w.found.errs = append(w.found.errs, fmt.Errorf("refused: %w", err))
		return
	case c == "/":
		w.found.errs = append(w.found.errs, errors.New("refused: the root cgroup is the whole machine"))
		return
	case w.h == nil:
		return
	}
	there := false
	if v2 := w.h.Unified(); v2 != "" {
		var st unix.Stat_t
		if dir := filepath.Join(v2, c); unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			there = true
			if !w.marked[st.Ino] { // the first class that names it wins
				w.marked[st.Ino] = true
				w.found.cgroups = append(w.found.cgroups, cgroupMark{st.Ino, uint32(strings.Count(c, "/")), mark})
			}
			w.walk(dir, mark)
		}
	}
	if first := w.h.Primary(); first != w.h.Unified() {
		if _, err := os.Lstat(filepath.Join(first, c)); err == nil {
			there = true
			w.walk(filepath.Join(first, c), mark)
		}
	}
	if !there {
		w.found.missing++
	}
}

// walk reads the network namespace of the first process of each cgroup: containers of a pod share one, and jobs below one cgroup may
// have one each.
func (w *seekWork) walk(top string, mark uint32) {
	_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error { // a cgroup that was removed meanwhile has no packets
		if err != nil || !d.IsDir() {
			return nil
		}
		if w.dirs--; w.dirs < 0 {
			return fs.SkipAll
		}
		pid, ok := firstProcess(path)
		switch {
		case !ok:
		case pid == 0:
			w.hidden++
		default:
			if id, err := netlink.GetNetNsIdByPid(pid); err == nil && id >= 0 {
				if _, known := w.spaces[id]; !known {
					w.spaces[id] = mark
				}
			}
		}
		return nil
	})
}

// firstProcess returns the first process in a cgroup's own list; 0 for a process of another PID namespace.
func firstProcess(dir string) (pid int, ok bool) {
	f, err := os.Open(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	if !lines.Scan() {
		return 0, false
	}
	pid, err = strconv.Atoi(lines.Text())
	return pid, err == nil && pid >= 0
}

// levels returns the depths of the cgroups, sorted.
func (s *sources) levels() []uint32 {
	set := map[uint32]bool{}
	for _, c := range s.cgroups {
		set[c.level] = true
	}
	return slices.Sorted(maps.Keys(set))
}
