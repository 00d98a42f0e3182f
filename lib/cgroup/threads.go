package cgroup

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"polder/lib/kernfile"
)

func (h *Hierarchy) threadsFile() string {
	if h.primaryVersion() == 2 {
		return "cgroup.threads"
	}
	return "tasks"
}

// Threads calls f with the ID of each thread in the cgroup and its descendants, by the primary hierarchy. It returns the number
// of hidden threads: those of another PID namespace, which have no ID here; see [Hierarchy.MayHideTasks] for version 1, where 1 is also
// an unknown number. The error wraps fs.ErrNotExist if the cgroup does not exist, [ErrPath] if its path is rejected. buf is reused memory.
func (h *Hierarchy) Threads(cgroup string, buf []byte, f func(tid uint64)) (hidden int, err error) {
	dir, _, err := h.Dir("", cgroup)
	if err != nil {
		return 0, err
	}
	if !h.eachThreadBelow(dir, buf, func(n uint64) {
		if n == 0 {
			hidden++
			return
		}
		f(n)
	}) {
		return hidden, &fs.PathError{Op: "read the threads", Path: dir, Err: fs.ErrNotExist}
	}
	return hidden, nil
}

func (h *Hierarchy) eachThreadBelow(dir string, buf []byte, f func(n uint64)) bool {
	buf, ok := h.eachThreadIn(dir, h.threadsFile(), buf, f)
	if !ok {
		return false
	}
	if !hasDirectories(dir) {
		return true
	}
	names, err := directories(dir)
	if err != nil {
		return true // removed meanwhile
	}
	for _, child := range names {
		h.eachThreadBelow(dir+"/"+child, buf, f)
	}
	return true
}

// eachThreadIn calls f with every number in the file of a directory of the primary hierarchy: 0 stands for a thread of another PID
// namespace. It returns the memory for the next reading.
func (h *Hierarchy) eachThreadIn(dir, name string, buf []byte, f func(n uint64)) ([]byte, bool) {
	data, err := kernfile.Read(dir+"/"+name, buf)
	if err != nil && (name == "tasks" || !errors.Is(err, unix.ENOENT)) {
		return buf, false
	}
	if err != nil { // a copy of a v2 tree, or a kernel before 4.14
		if data, err = kernfile.Read(dir+"/cgroup.procs", buf); err != nil {
			return buf, false
		}
	}
	if cap(data) > cap(buf) {
		buf = data
	}
	if len(data) == 0 {
		for range h.unlistedTasks("", "/"+strings.TrimPrefix(strings.TrimPrefix(dir, h.Primary()), "/")) {
			f(0)
		}
	}
	for len(data) > 0 {
		var tid []byte
		tid, data = kernfile.Line(data)
		if n, ok := kernfile.Uint(tid); ok {
			f(n)
		}
	}
	return buf, true
}

// hasDirectories is a cheap check, false only if a directory certainly has no subdirectory: the kernel's have one link for each.
func hasDirectories(dir string) bool {
	var st unix.Stat_t
	return unix.Stat(dir, &st) != nil || st.Nlink != 2
}

// Walk is where an incomplete walk over the threads of a cgroup continues. The zero Walk starts at the beginning.
type Walk struct {
	// Dir is the directory in which the walk stopped, relative to the cgroup's own. Its threads up to TID have been visited.
	Dir string `json:"dir,omitempty"`
	TID uint32 `json:"tid,omitempty"`
	// Count is the number of threads counted so far.
	Count uint64 `json:"count,omitempty"`
	// Hidden means that there are threads that cannot be seen here: those of another pid namespace, or of other users where /proc is
	// mounted with hidepid. Then nothing is known of them, and Count is too small.
	Hidden bool `json:"hidden,omitempty"`
}

// HasTime reports whether a walk has time for this many more steps; a step takes as long as reading one thread. With a nil HasTime
// the time is unlimited.
type HasTime func(steps int) bool

// minThreads is how many threads a walk reads even if listing them took all its time, so that it ends eventually.
const minThreads = 16

// listedPerStep is how many threads the kernel lists in the time in which one is read.
const listedPerStep = 32

// Runnable counts the threads of the cgroup and its descendants that run or wait for a CPU. It continues at w, and stops
// when hasTime returns false; w.Count is the number when it is done, unless threads are hidden. ok is false if the cgroup cannot be read.
func (r *Reader) Runnable(cgroup string, w *Walk, hasTime HasTime) (done, ok bool) {
	if CheckPath(cgroup) != nil {
		return false, false
	}
	if *w == (Walk{}) {
		if n, ok := r.countByNetlink(cgroup); ok {
			w.Count = n
			if hasTime != nil {
				hasTime(1)
			}
			return true, true
		}
	}
	return r.walk(cgroup, w, hasTime, r.isRunnable)
}

// walker is one walk over the threads of a cgroup and its descendants: the directories in depth-first order by name, the
// threads of each by number, so that the walk can continue at any position.
type walker struct {
	*Reader
	top, file string
	position  *Walk
	hasTime   HasTime
	visit     func(tid uint32) (counts, isSeen bool) // nil counts all threads
	visited   int
	isFailed  bool // the cgroup itself cannot be read

	unnumbered uint64 // the threads of another pid namespace
}

func (r *Reader) walk(cgroup string, w *Walk, hasTime HasTime, visit func(uint32) (counts, isSeen bool)) (done, ok bool) {
	v := &walker{Reader: r, top: filepath.Join(r.h.Primary(), cgroup), file: r.h.threadsFile(), position: w, hasTime: hasTime, visit: visit}
	from := *w
	done = v.directory("", strings.TrimPrefix(from.Dir, "/"), from.TID)
	if v.isFailed {
		*w = Walk{}
	}
	return done && !v.isFailed, !v.isFailed
}

// directory visits the threads of a directory, those after a number, and all threads of its descendants. resume is the path
// below it at which the walk continues; everything before that is skipped. It returns false if the walk stopped.
func (v *walker) directory(rel, resume string, after uint32) bool {
	dir := v.top + rel
	if resume == "" {
		if !v.list(dir) {
			v.isFailed = v.isFailed || rel == ""
			return true
		}
		v.visited++
		if !v.threads(rel, after) {
			return false
		}
	}
	if !hasDirectories(dir) {
		return true
	}
	names, err := directories(dir)
	if err != nil { // removed meanwhile
		v.isFailed = v.isFailed || rel == ""
		return true
	}
	first, rest, _ := strings.Cut(resume, "/")
	for _, name := range names {
		switch {
		case name < first:
			continue
		case name == first && first != "":
			if !v.directory(rel+"/"+name, rest, after) {
				return false
			}
			continue
		}
		if v.mustStop(1) {
			v.position.Dir, v.position.TID = rel+"/"+name, 0
			return false
		}
		if !v.directory(rel+"/"+name, "", 0) {
			return false
		}
	}
	return true
}

// list reads the numbers of a directory's threads, sorted. Threads of another pid namespace have none.
func (v *walker) list(dir string) bool {
	v.tids, v.unnumbered = v.tids[:0], 0
	buf, ok := v.h.eachThreadIn(dir, v.file, v.buf, func(n uint64) {
		switch {
		case n == 0:
			v.unnumbered++
		case n < math.MaxUint32:
			v.tids = append(v.tids, uint32(n))
		}
	})
	v.buf = buf
	slices.Sort(v.tids)
	return ok
}

// threads visits the listed threads after a number.
func (v *walker) threads(rel string, after uint32) bool {
	i, _ := slices.BinarySearch(v.tids, after+1)
	remaining := v.tids[i:]
	isStopped := v.mustStop(len(v.tids) / listedPerStep)
	if v.visit == nil {
		v.position.Count += uint64(len(remaining)) + v.unnumbered
		if v.unnumbered > 0 && v.file == "tasks" { // their number is unknown
			v.position.Hidden = true
		}
		v.visited += minThreads // the next directory may wait
		return true
	}
	v.position.Hidden = v.position.Hidden || v.unnumbered > 0
	isAnySeen := false
	for _, tid := range remaining {
		if isStopped {
			return false
		}
		counts, isSeen := v.visit(tid)
		if counts {
			v.position.Count++
		}
		isAnySeen = isAnySeen || isSeen
		v.visited++
		v.position.Dir, v.position.TID = rel, tid
		isStopped = v.mustStop(1)
	}
	if len(remaining) > 0 && !isAnySeen && v.stillLists(v.top+rel, remaining[0]) {
		v.position.Hidden = true
	}
	return true
}

// stillLists reports whether a directory still lists a thread, so that it has not ended.
func (v *walker) stillLists(dir string, tid uint32) bool {
	if !v.list(dir) {
		return false
	}
	_, is := slices.BinarySearch(v.tids, tid)
	return is
}

func (v *walker) mustStop(steps int) bool {
	return v.hasTime != nil && !v.hasTime(steps) && v.visited >= minThreads
}

// isRunnable reports whether a thread runs or waits for a CPU, and whether it can be seen at all. It does not read the file of the process,
// for which the kernel adds up all the process's threads. A thread that ended meanwhile does not run.
func (r *Reader) isRunnable(tid uint32) (is, isSeen bool) {
	id := strconv.FormatUint(uint64(tid), 10)
	proc := r.h.root + "/proc/" + id
	data, err := kernfile.ReadPiece(proc+"/task/"+id+"/stat", r.stat)
	if err != nil && r.h.root != "/" { // a copy may have been made without the threads of each process
		data, err = kernfile.ReadPiece(proc+"/stat", r.stat)
	}
	return err == nil && ThreadState(data) == 'R', err == nil
}

// ThreadState finds the state in /proc/TID/stat, 0 if there is none. The name before it, in parentheses, may itself contain
// blanks and parentheses.
func ThreadState(data []byte) byte {
	i := bytes.LastIndexByte(data, ')')
	if i < 0 || i+2 >= len(data) || data[i+1] != ' ' {
		return 0
	}
	return data[i+2]
}
