package cgroup

import (
	"strconv"

	"golang.org/x/sys/unix"

	"polder/lib/kernfile"
)

// ThreadFile is a thread's open schedstat; the zero ThreadFile is none. It always belongs to that thread: a later thread with the
// same ID is not read through it.
type ThreadFile int32

// MaxThreadFiles bounds the threads' files that a [Reader] keeps open; it uses at most a tenth of the process's descriptors. Each file
// costs the kernel some 8 KiB, and saves four fifths of the time of reading the file by its name.
const MaxThreadFiles = 2048

// ThreadFiles has the files of a cgroup's threads between two walks.
type ThreadFiles interface {
	// Take removes and returns a thread's file.
	Take(tid uint32) ThreadFile
	// See receives a thread's delay, and the file from which it was read, if that stays open.
	See(tid uint32, f ThreadFile, nanoseconds uint64)
}

// RunDelays calls files.See with the run delay of each thread in the cgroup and its descendants: the time that the thread was runnable and
// waited for a CPU, in nanoseconds since its creation. The kernel counts a wait when it ends. The walk continues at w, and stops when
// hasTime returns false; w.Count is the number of threads whose delay could be read. ok is false if the cgroup cannot be read.
func (r *Reader) RunDelays(cgroup string, w *Walk, hasTime HasTime, files ThreadFiles) (done, ok bool) {
	if CheckPath(cgroup) != nil {
		return false, false
	}
	return r.walk(cgroup, w, hasTime, func(tid uint32) (counts, isSeen bool) {
		delay, f, ok := r.runDelay(tid, files.Take(tid))
		if ok {
			files.See(tid, f, delay)
		}
		return ok, true // one that never ran has no delay either; the caller sees whether any has
	})
}

// runDelay reads a thread's schedstat. A thread that ended meanwhile has none.
func (r *Reader) runDelay(tid uint32, f ThreadFile) (nanoseconds uint64, open ThreadFile, ok bool) {
	if f != 0 {
		if data, err := kernfile.ReadPieceFD(f.fd(), r.stat); err == nil {
			nanoseconds, ok = RunDelay(data)
		}
		if ok {
			return nanoseconds, f, true
		}
		r.Release(f) // the thread has ended; another one may have its ID
	}
	id := strconv.FormatUint(uint64(tid), 10)
	fd, err := unix.Open(r.h.root+"/proc/"+id+"/task/"+id+"/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, false
	}
	data, err := kernfile.ReadPieceFD(fd, r.stat)
	if err == nil {
		nanoseconds, ok = RunDelay(data)
	}
	if !ok || r.h.root != "/" || !r.mayKeepOpen() {
		unix.Close(fd)
		return nanoseconds, 0, ok
	}
	return nanoseconds, ThreadFile(fd + 1), true
}

func (f ThreadFile) fd() int { return int(f) - 1 }

// mayKeepOpen reports whether one more file may stay open, and counts it.
func (r *Reader) mayKeepOpen() bool {
	if r.maxThreadFiles == 0 {
		r.maxThreadFiles = 1
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
			r.maxThreadFiles = int(min(MaxThreadFiles, limit.Cur/10))
		}
	}
	if r.threadFiles >= r.maxThreadFiles {
		return false
	}
	r.threadFiles++
	return true
}

// Release closes a thread's file.
func (r *Reader) Release(f ThreadFile) {
	if f != 0 {
		unix.Close(f.fd())
		r.threadFiles--
	}
}

// RunDelay finds the run delay in a thread's schedstat (Documentation/scheduler/sched-stats.rst): the time on a CPU, the run delay, both
// in nanoseconds, and how often the thread got a CPU. "0 0 0" is a thread that never ran, or a kernel that does not count: then the
// delay is unknown.
func RunDelay(data []byte) (nanoseconds uint64, ok bool) {
	var numbers [3]uint64
	rest := kernfile.Text(data)
	for i := range numbers {
		var field []byte
		field, rest = kernfile.Field(rest)
		if numbers[i], ok = kernfile.Uint(field); !ok {
			return 0, false
		}
	}
	return numbers[1], numbers != [3]uint64{}
}
