package resched

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"polder/isolate/resched/onwait"
)

// childName is the child process' name: the first of its arguments, and what ps shows. The kernel keeps 15 bytes of a name.
const childName = "isolate-resched"

// The first thread runs only the main function, so that the CPUs that it may use are the process' and not those of a thread that is
// pinned: by them the parent learns that a CPU is offline or online again.
func init() {
	if IsChild() {
		runtime.LockOSThread()
	}
}

// IsChild reports whether this process was started as the child of a [Runner].
func IsChild() bool { return len(os.Args) == 2 && os.Args[0] == childName }

// RunChild is the main function of the child process: a thread for each CPU that this process may use wakes as the command line says,
// from the first line of standard input until the parent closes it or ends. A line on standard output says that the threads have started.
func RunChild() {
	if err := runChild(way(os.Args[1])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runChild(w way) error {
	var interval time.Duration
	if w != onWait {
		var err error
		if interval, err = time.ParseDuration(string(w)); err != nil {
			return err
		}
		if interval < minInterval || interval > maxInterval {
			return fmt.Errorf("the interval %s is not from %s to %s", interval, minInterval, maxInterval)
		}
	}
	if isEnd() {
		return nil
	}
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(unsafe.StringData(childName+"\x00"))), 0, 0, 0) // only for ps
	cpus, err := cpusOfThis()
	if err != nil {
		return err
	}
	wake := func(int) { wakeAtInterval(interval) }
	begin := func() error { return nil }
	if w == onWait {
		watch, err := onwait.New(cpus)
		if err != nil {
			return err
		}
		debug.FreeOSMemory() // the kernel's types need some megabytes while they are read
		begin = watch.Attach
		wake = func(cpu int) { watch.Events(cpu).WakeAtEach() }
	}
	if err := startThreads(cpus, wake); err != nil {
		return err
	}
	if err := begin(); err != nil {
		return err
	}
	fmt.Println("ready")
	for !isEnd() {
	}
	runtime.KeepAlive(begin) // and with it the program in the kernel
	return nil
}

// cpusOfThis are the CPUs that this process may use, in ascending order.
func cpusOfThis() (list []int, err error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, fmt.Errorf("the CPUs of this process: %w", os.NewSyscallError("sched_getaffinity", err))
	}
	for cpu, left := 0, allowed.Count(); left > 0; cpu++ {
		if allowed.IsSet(cpu) {
			list = append(list, cpu)
			left--
		}
	}
	return list, nil
}

// startThreads starts a thread on each CPU and returns when all run, or one could not start. A function that does not return keeps its
// thread.
func startThreads(cpus []int, wake func(cpu int)) error {
	// A thread below never comes back to Go's scheduler. So nothing may need to stop all of them, as the garbage collector would, and
	// each has a processor of the runtime, besides one for this goroutine.
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(len(cpus) + 1)
	started := make(chan error)
	for _, cpu := range cpus {
		go func() {
			runtime.LockOSThread()
			err := pin(cpu)
			if errors.Is(err, unix.EINVAL) { // the CPU has just gone offline, which the parent learns as well
				started <- nil
				return
			}
			if started <- err; err == nil {
				wake(cpu)
			}
		}()
	}
	for range cpus {
		if err := <-started; err != nil {
			return err
		}
	}
	return nil
}

// isEnd waits for a byte of standard input and reports whether there is none any more.
func isEnd() bool {
	for {
		n, err := unix.Read(0, make([]byte, 1))
		if err != unix.EINTR {
			return n != 1
		}
	}
}

// pin restricts this thread to a CPU, and its sleeps to their exact length.
func pin(cpu int) error {
	var only unix.CPUSet
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("a thread for CPU %d: %w", cpu, os.NewSyscallError("sched_setaffinity", err))
	}
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // else the kernel may wake the thread 50 µs late
	return nil
}

// wakeAtInterval sleeps again and again. A raw system call does not tell Go's runtime, which would do more for each one than the kernel
// does.
func wakeAtInterval(interval time.Duration) {
	span := unix.NsecToTimespec(int64(interval))
	for {
		unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&span)), 0, 0)
	}
}
