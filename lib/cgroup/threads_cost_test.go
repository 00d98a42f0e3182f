package cgroup_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/cgroup"
	"polder/lib/kernfile"
	"polder/tests/await"
	"polder/tests/group"
)

// sleepers is the environment variable that makes this test binary a process with so many sleeping threads.
const sleepers = "POLDER_TEST_SLEEPERS"

func TestMain(m *testing.M) {
	n, err := strconv.Atoi(os.Getenv(sleepers))
	if err != nil {
		os.Exit(m.Run())
	}
	asleep := make(chan bool)
	for range n {
		go func() {
			runtime.LockOSThread()
			asleep <- true
			select {}
		}()
	}
	for range n {
		<-asleep
	}
	fmt.Println("asleep")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
}

// withSleepers starts a process with slightly more than n threads in its own cgroup.
func withSleepers(t testing.TB, n int) *group.Group {
	t.Helper()
	g := group.New(t, nil, fmt.Sprintf("sleepers%d", n))
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `read x; exec "$0"`, exe)
	cmd.Env = append(os.Environ(), sleepers+"="+strconv.Itoa(n))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for _, dir := range g.Dirs {
		if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%d sleeping threads: %q, %v", n, line, err)
	}
	return g
}

// cpuTime returns the process's CPU time.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// A thread of a large process costs as much as one of a small process, because no file is read for which the kernel sums up the process.
func TestCostOfAThreadIsFlat(t *testing.T) {
	// The least of several walks is the cost itself: other work on the machine, and other machines on the same host, make a walk only
	// dearer.
	cost := func(n int) func() time.Duration {
		g := withSleepers(t, n)
		r := reader(t)
		r.WithoutMessages()
		best := time.Hour
		return func() time.Duration {
			at := cpuTime(t)
			if done, ok := r.Runnable(g.Name, new(cgroup.Walk), nil); !done || !ok {
				t.Fatalf("the threads of %s: done %v, ok %v", g.Name, done, ok)
			}
			best = min(best, (cpuTime(t)-at)/time.Duration(n))
			return best
		}
	}
	ofSmall, ofLarge := cost(200), cost(3000)
	small, large := ofSmall(), ofLarge()
	for round := 1; round < 5 || round < 50 && large > 6*small; round++ {
		small, large = ofSmall(), ofLarge()
	}
	t.Logf("CPU time a thread: %s of 200, %s of 3000", small, large)
	if large > 6*small { // by /proc/TID/stat it is 15 times and more
		t.Errorf("a thread costs %s with 3000 in its process, and %s with 200", large, small)
	}
}

func reader(t testing.TB) *cgroup.Reader {
	t.Helper()
	h, err := cgroup.Detect("/")
	if err != nil {
		t.Fatal(err)
	}
	return cgroup.NewReader(h, false)
}

// BenchmarkRunnable measures the walk over the threads of a process with many threads, against the floor: the same files read by their
// names, without parsing. It also measures the cost of the process's own file for each thread. All are measured in the same run.
func BenchmarkRunnable(b *testing.B) {
	for _, n := range []int{500, 4000, 8000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			g := withSleepers(b, n)
			r, byMessage := reader(b), reader(b)
			r.WithoutMessages()
			tids, err := filepath.Glob("/proc/" + pid(b, g) + "/task/*")
			if err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, 1024)
			read := func(path string) {
				if _, err := kernfile.Read(path, buf); err != nil {
					b.Fatal(err)
				}
			}
			var whole, floor, process, message time.Duration
			const every = 50 // of the slow ones
			for b.Loop() {
				at := cpuTime(b)
				r.Runnable(g.Name, new(cgroup.Walk), nil)
				one := cpuTime(b)
				for _, tid := range tids {
					read(tid + "/stat")
				}
				two := cpuTime(b)
				for i := 0; i < len(tids); i += every {
					read("/proc/" + filepath.Base(tids[i]) + "/stat")
				}
				three := cpuTime(b)
				byMessage.Runnable(g.Name, new(cgroup.Walk), nil)
				whole, floor, process, message = whole+one-at, floor+two-one, process+three-two, message+cpuTime(b)-three
			}
			per := func(d time.Duration, n int) float64 {
				return float64(d.Nanoseconds()) / 1e3 / float64(b.N) / float64(n)
			}
			b.ReportMetric(per(whole, len(tids)), "us/thread")
			b.ReportMetric(per(floor, len(tids)), "floor-us/thread")
			b.ReportMetric(float64(whole)/float64(floor), "ratio")
			b.ReportMetric(per(message, len(tids)), "message-us/thread") // a walk on version 2
			b.ReportMetric(per(process, (len(tids)+every-1)/every), "process-us/thread")
		})
	}
}

// openFiles are the files of threads.
type openFiles struct {
	files map[uint32]cgroup.ThreadFile
	read  int
}

func (h *openFiles) Take(tid uint32) cgroup.ThreadFile { return h.files[tid] }

func (h *openFiles) See(tid uint32, f cgroup.ThreadFile, _ uint64) {
	h.files[tid] = f
	h.read++
}

// BenchmarkRunDelays measures the cost of reading how long a thread has waited, against the same files read by name: for the first walk,
// which opens the files, and for the next ones.
func BenchmarkRunDelays(b *testing.B) {
	g := withSleepers(b, 1000)
	tids, err := filepath.Glob("/proc/" + pid(b, g) + "/task/*")
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 1024)
	var first, whole, floor time.Duration
	for b.Loop() {
		r, open := reader(b), &openFiles{files: map[uint32]cgroup.ThreadFile{}}
		at := cpuTime(b)
		r.RunDelays(g.Name, new(cgroup.Walk), nil, open)
		one := cpuTime(b)
		r.RunDelays(g.Name, new(cgroup.Walk), nil, open)
		two := cpuTime(b)
		if open.read < 2000 {
			b.Fatalf("%d delays of 1000 threads, twice", open.read)
		}
		for _, tid := range tids {
			if _, err := kernfile.Read(tid+"/schedstat", buf); err != nil {
				b.Fatal(err)
			}
		}
		first, whole, floor = first+one-at, whole+two-one, floor+cpuTime(b)-two
		for _, f := range open.files {
			r.Release(f)
		}
	}
	per := func(d time.Duration) float64 {
		return float64(d.Nanoseconds()) / 1e3 / float64(b.N) / float64(len(tids))
	}
	b.ReportMetric(per(first), "first-us/thread")
	b.ReportMetric(per(whole), "us/thread")
	b.ReportMetric(per(floor), "floor-us/thread")
}

// The file of a thread that has ended is not read: a thread with the same ID is another one.
func TestThreadFilesAreOfTheirThreads(t *testing.T) {
	own := group.New(t, nil, "delays")
	cmd := own.Run(t, "while :; do :; done")
	r, open := reader(t), &openFiles{files: map[uint32]cgroup.ThreadFile{}}
	tid := uint32(cmd.Process.Pid)
	await.Until(t, time.Minute, "the delay of a busy thread", func() string {
		if done, ok := r.RunDelays(own.Name, new(cgroup.Walk), nil, open); !done || !ok || open.files[tid] == 0 {
			return "no file is kept open"
		}
		return ""
	})
	f := open.files[tid]
	open.read = 0
	if r.RunDelays(own.Name, new(cgroup.Walk), nil, open); open.read != 1 || open.files[tid] != f {
		t.Errorf("read again: %d delays, file %d; want one through file %d", open.read, open.files[tid], f)
	}
	own.Kill(t)
	_ = cmd.Wait() // it was killed
	if n, ok := r.ReadThreadFile(tid, f); ok {
		t.Errorf("the thread has ended, and its delay is read: %d", n)
	}
}

func pid(b *testing.B, g *group.Group) string {
	b.Helper()
	pid, err := kernfile.ReadText(g.Dirs[0] + "/cgroup.procs")
	if err != nil {
		b.Fatal(err)
	}
	return pid
}
