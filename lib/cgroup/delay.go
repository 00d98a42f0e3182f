package cgroup

import (
	"strconv"

	"polder/lib/kernfile"
)

// RunDelays calls f with the run delay of each thread in the cgroup and in those below it: the time that the thread was runnable and waited
// for a CPU, in nanoseconds since it was made. The kernel counts a wait when it ends. The walk continues at w, and stops where more says
// so; w.Count is the number of threads whose delay could be read. It reports false for ok where the cgroup cannot be read.
func (r *Reader) RunDelays(cgroup string, w *Walk, more More, f func(tid uint32, nanoseconds uint64)) (done, ok bool) {
	if CheckPath(cgroup) != nil {
		return false, false
	}
	return r.walk(cgroup, w, more, func(tid uint32) bool {
		delay, ok := r.runDelay(tid)
		if ok {
			f(tid, delay)
		}
		return ok
	})
}

// runDelay reads a thread's schedstat. A thread that ended meanwhile has none.
func (r *Reader) runDelay(tid uint32) (nanoseconds uint64, ok bool) {
	id := strconv.FormatUint(uint64(tid), 10)
	data, err := kernfile.ReadPiece(r.h.root+"/proc/"+id+"/task/"+id+"/schedstat", r.stat)
	if err != nil {
		return 0, false
	}
	return RunDelay(data)
}

// RunDelay finds the run delay in a thread's schedstat (Documentation/scheduler/sched-stats.rst): the time on a CPU, the run delay, both
// in nanoseconds, and the number of times that the thread was given a CPU. A kernel that counts none of them writes "0 0 0", and so
// does one that does for a thread that never ran: then the delay is not known.
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
