package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// spin keeps threads busy until it is killed: "spin [-duty PERCENT] [-deaf] THREADS". They start at a line on
// standard input, so that their cgroup is the right one from the first instant on.
func spin(args []string) error {
	set := flag.NewFlagSet("spin", flag.ContinueOnError)
	duty := set.Int("duty", 100, "percent of the time in which a thread is busy")
	deaf := set.Bool("deaf", false, "ignore SIGTERM")
	if err := set.Parse(args); err != nil {
		return err
	}
	threads, err := strconv.Atoi(set.Arg(0))
	if err != nil {
		return fmt.Errorf("spin %q: want a number of threads", set.Arg(0))
	}
	if *deaf {
		signal.Ignore(unix.SIGTERM)
	}
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(threads + 1)
	waitForStart()
	// On an idle machine the kernel may postpone its statistics of a cgroup's memory for as long as the changes are few.
	used := make([]byte, 8<<20)
	for i := 0; i < len(used); i += os.Getpagesize() {
		used[i] = 1
	}
	runtime.LockOSThread() // the first thread is none of the busy ones
	var ready sync.WaitGroup
	var begin atomic.Bool
	for range threads {
		ready.Add(1)
		go func() {
			runtime.LockOSThread()
			ready.Done()
			for pause := (unix.Timespec{Nsec: 5e6}); !begin.Load(); { // none uses the CPU before all are there
				_ = unix.Nanosleep(&pause, nil)
			}
			spinThread(*duty)
		}()
	}
	ready.Wait()
	begin.Store(true)
	select {}
}

func spinThread(duty int) {
	// Without a call, and without asynchronous preemption (startLoadKept), the Go scheduler cannot put another goroutine in a busy
	// thread's place. It does so every 10 ms, and where CPUs are scarce the thread then sleeps long until it is its turn again.
	for turns := 0; duty == 100; turns++ {
	}
	const period = 100 * time.Millisecond
	busy := period * time.Duration(duty) / 100
	for {
		for end := uptime() + busy; uptime() < end; {
		}
		time.Sleep(period - busy)
	}
}

// eat keeps memory in use until it is killed: "eat MiB".
func eat(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("eat %q: want a number of MiB", args)
	}
	mib, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	debug.SetGCPercent(-1)
	waitForStart()
	data, err := unix.Mmap(-1, 0, mib<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("mmap %d MiB: %w", mib, err)
	}
	for {
		for i := 0; i < len(data); i += os.Getpagesize() {
			data[i]++
		}
		time.Sleep(time.Second)
	}
}

func waitForStart() {
	var line [1]byte
	_, _ = os.Stdin.Read(line[:])
}

// load is a running load.
type load struct {
	*exec.Cmd
	ended chan struct{}
}

// startLoad starts a load in a cgroup; it is killed at the test's end.
func (t *T) startLoad(cgroup string, args ...string) *load {
	l := t.startLoadKept(cgroup, args...)
	t.Cleanup(l.kill)
	return l
}

// startLoadKept leaves the end to the caller.
func (t *T) startLoadKept(cgroup string, args ...string) *load {
	l := &load{Cmd: exec.Command("/bin/guest", args...), ended: make(chan struct{})}
	l.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
	l.Stderr = os.Stderr
	start, err := l.StdinPipe()
	t.Must(err)
	t.Must(l.Start())
	go func() {
		_ = l.Wait() // by a signal
		close(l.ended)
	}()
	t.Must(write(cgroup+"/cgroup.procs", strconv.Itoa(l.Process.Pid)))
	_, err = start.Write([]byte("\n"))
	t.Must(err)
	t.Logf("process %d: %s, in %s", l.Process.Pid, strings.Join(args, " "), cgroup)
	return l
}

func (l *load) kill() {
	_ = l.Process.Kill() // it may have ended
	<-l.ended
}

// alive reports whether the process still runs.
func (l *load) alive() bool {
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

// busiest is the thread of the process that has used the most CPU time, once one has used some; except the first one, whose ID is the
// process's.
func (l *load) busiest() (tid string) {
	const some = 500 * time.Millisecond // before the busy threads have it, those of the Go runtime itself have far less
	dir := fmt.Sprintf("/proc/%d/task", l.Process.Pid)
	within(func() bool {
		var most time.Duration
		entries, err := os.ReadDir(dir)
		if err != nil {
			return true // it has ended
		}
		for _, e := range entries {
			data, err := os.ReadFile(dir + "/" + e.Name() + "/schedstat")
			if err != nil || e.Name() == strconv.Itoa(l.Process.Pid) {
				continue
			}
			used, _, _ := strings.Cut(string(data), " ")
			if n, err := strconv.ParseInt(used, 10, 64); err == nil && time.Duration(n) > most {
				most, tid = time.Duration(n), e.Name()
			}
		}
		return most >= some
	})
	return tid
}

// threadStatus is a field of a thread's status file.
func threadStatus(tid, field string) string {
	data, err := os.ReadFile("/proc/" + tid + "/status")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && name == field {
			return strings.TrimSpace(value)
		}
	}
	return "no " + field
}
