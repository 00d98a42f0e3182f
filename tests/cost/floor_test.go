package cost

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/cgroup"
	"polder/lib/kernfile"
	"polder/tests/group"
)

// floorFiles are the files of a container that collect holds open, with the number of seconds between two readings of a container whose
// memory does not change and which no quota throttles.
var floorFiles = map[int][]struct {
	controller, name string
	every            int
}{
	1: {
		{"cpuacct", "cpuacct.usage", 1},
		{"memory", "memory.usage_in_bytes", 1},
		{"cpu", "cpu.stat", 2},
		{"cpuset", "cpuset.effective_cpus", 2},
		{"pids", "pids.current", 2},
		{"memory", "memory.stat", 5},
	},
	2: {
		{"cpuacct", "cpu.stat", 1},
		{"memory", "memory.current", 1},
		{"cpuset", "cpuset.cpus.effective", 2},
		{"pids", "pids.current", 2},
		{"memory", "memory.stat", 5},
	},
}

// floor is the part of one CPU that bare loops use, in percent, once a second over the containers, beside the running programs: over the
// files that collect reads, over all of them in each second, and over the schedstat of so many threads by name, which collect reads on
// version 1. The loops do not use what they read. page is how long it takes to touch a page of memory that was touched a second before, the
// mean of 1,024.
func floor(b *testing.B, above *group.Group, count int) (paced, all, threads float64, page time.Duration) {
	b.Helper()
	const rounds, perRound = 10, 256 // the threads that collect reads in a round
	const pages, pageSize = 1024, 4096
	memory, err := unix.Mmap(-1, 0, pages*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	touch := func() {
		for at := 0; at < len(memory); at += pageSize {
			memory[at]++
		}
	}
	touch()
	rested := 0.0
	h, err := cgroup.Detect("/")
	if err != nil {
		b.Fatal(err)
	}
	list := floorFiles[h.Version("cpuacct")]
	files := make([][]*cgroup.File, count)
	var tids []string
	for i := range files {
		name := above.Name + "/c" + strconv.Itoa(i)
		for _, f := range list {
			file, err := h.Open(f.controller, name, f.name)
			if err != nil {
				b.Fatal(err)
			}
			defer file.Close()
			files[i] = append(files[i], file)
		}
		if _, err := h.Threads(name, nil, func(tid uint64) { tids = append(tids, strconv.Itoa(int(tid))) }); err != nil {
			b.Fatal(err)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	buf := make([]byte, 16<<10)
	next := 0
	for round := range rounds {
		time.Sleep(time.Second / 2)
		paced += loop(b, func() {
			for i := range files {
				for j, f := range list {
					if (round+i)%f.every == 0 {
						read(b, files[i][j], buf)
					}
				}
			}
		})
		threads += loop(b, func() {
			for range perRound {
				tid := tids[next%len(tids)]
				next++
				if _, err := kernfile.ReadPiece(filepath.Join("/proc", tid, "task", tid, "schedstat"), buf); err != nil && !os.IsNotExist(err) {
					b.Fatal(err)
				}
			}
		})
		time.Sleep(time.Second / 2)
		rested += loop(b, touch)
		all += loop(b, func() {
			for i := range files {
				for _, f := range files[i] {
					read(b, f, buf)
				}
			}
		})
	}
	page = time.Duration(rested / rounds / pages * float64(time.Second))
	return 100 * paced / rounds, 100 * all / rounds, 100 * threads / rounds, page
}

func read(b *testing.B, f *cgroup.File, buf []byte) {
	if _, err := f.Read(buf); err != nil {
		b.Fatal(err)
	}
}

// loop is the CPU time of the thread in seconds.
func loop(b *testing.B, do func()) float64 {
	b.Helper()
	now := func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
			b.Fatal(err)
		}
		return time.Duration(ts.Nano())
	}
	begun := now()
	do()
	return (now() - begun).Seconds()
}
