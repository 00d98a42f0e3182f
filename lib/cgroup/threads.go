package cgroup

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"polder/lib/kernfile"
)

// eachThread calls f with the id of each thread in the cgroup and in those below it, by the primary hierarchy. It
// reports false where the cgroup could not be read at all. buf is memory to read into, from its beginning.
func (h *Hierarchy) eachThread(cgroup string, buf []byte, f func(tid []byte)) bool {
	return h.eachThreadIn(filepath.Join(h.Primary(), cgroup), h.threadsFile(), buf, func(tid []byte, n uint64) {
		if n != 0 {
			f(tid)
		}
	})
}

func (h *Hierarchy) threadsFile() string {
	if h.primaryVersion() == 2 {
		return "cgroup.threads"
	}
	return "tasks"
}

// Threads calls f with the id of each thread in the cgroup and in those below it, by the primary hierarchy. It returns how
// many there are of a pid namespace that is not seen from here: they have no id. The error wraps fs.ErrNotExist where the cgroup
// is not there, [ErrPath] where its path is refused. buf is memory to read into.
func (h *Hierarchy) Threads(cgroup string, buf []byte, f func(tid uint64)) (hidden int, err error) {
	dir, _, err := h.Dir("", cgroup)
	if err != nil {
		return 0, err
	}
	ok := h.eachThreadIn(dir, h.threadsFile(), buf, func(_ []byte, n uint64) {
		if n == 0 {
			hidden++
			return
		}
		f(n)
	})
	if !ok {
		return hidden, &fs.PathError{Op: "read the threads", Path: dir, Err: fs.ErrNotExist}
	}
	return hidden, nil
}

// eachThreadIn calls f with every number in the files: 0 stands for a thread of another pid namespace.
func (h *Hierarchy) eachThreadIn(dir, name string, buf []byte, f func(tid []byte, n uint64)) bool {
	data, err := kernfile.Read(dir+"/"+name, buf)
	if err != nil && (name == "tasks" || !errors.Is(err, unix.ENOENT)) {
		return false
	}
	if err != nil { // a copy of a v2 tree, or a kernel before 4.14
		if data, err = kernfile.Read(dir+"/cgroup.procs", buf); err != nil {
			return false
		}
	}
	for len(data) > 0 {
		var tid []byte
		tid, data = kernfile.Line(data)
		if n, ok := kernfile.Uint(tid); ok {
			f(tid, n)
		}
	}
	if !hasDirectories(dir) {
		return true
	}
	names, err := directories(dir)
	if err != nil {
		return true // gone meanwhile
	}
	for _, child := range names {
		h.eachThreadIn(dir+"/"+child, name, buf, f)
	}
	return true
}

// hasDirectories is a cheap no where a directory has no other in it: the kernel's directories have one link for each.
func hasDirectories(dir string) bool {
	var st unix.Stat_t
	return unix.Stat(dir, &st) != nil || st.Nlink != 2
}

// Runnable counts the threads of the cgroup, and of those below it, that run or wait for a CPU. It reports false where
// the cgroup cannot be read.
func (r *Reader) Runnable(cgroup string) (int, bool) {
	if CheckPath(cgroup) != nil {
		return 0, false
	}
	runnable := 0
	stat := make([]byte, 1024)
	proc := filepath.Join(r.h.root, "proc") + "/"
	ok := r.h.eachThread(cgroup, r.buf, func(tid []byte) {
		data, err := kernfile.Read(proc+string(tid)+"/stat", stat)
		if err == nil && ThreadState(data) == 'R' { // a thread that ended meanwhile does not run
			runnable++
		}
	})
	return runnable, ok
}

// ThreadState finds the state in /proc/TID/stat, 0 where there is none. The name before it, in parentheses, may hold
// blanks and parentheses itself.
func ThreadState(data []byte) byte {
	i := bytes.LastIndexByte(data, ')')
	if i < 0 || i+2 >= len(data) || data[i+1] != ' ' {
		return 0
	}
	return data[i+2]
}
