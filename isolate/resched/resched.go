// Package resched makes the kernel choose more often what a CPU runs, while batch runs beside services.
//
// A service comes before batch in the idle class when it wakes. But the kernel's fair scheduler (EEVDF, Linux 6.6) chooses only among
// tasks that did not get more than their share yet, and a service that has just run has got more by some microseconds. So if something
// interrupts it, such as a thread of the kernel that handles its packets or its writes, batch is next, and the CPU is only chosen for
// again at the kernel's next tick: up to 4 ms later with 250 ticks a second. After some microseconds of batch the service would be
// chosen. So one thread for each CPU wakes at an interval and sleeps again at once: each time the kernel chooses again
// (docs/adr/0021-choose-again-more-often.md has the measurements).
//
// The threads are those of a child process (child.go): in this one Go's runtime would need four times their CPU time. The process is in
// the root cgroup: anywhere below it each wake would change the weights of the cgroups above it, by which the kernel (6.18) gave all
// CPUs to such a cgroup, for minutes, if it also contained an idle cgroup or one with a small weight.
package resched

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/clip"
	"polder/lib/tick"
)

// key is the advice's key, as errors name it.
const key = "reschedIntervalSeconds"

// The threads wake at least and at most so often, whatever the advice says: below minInterval they would use a large part of the CPUs,
// and above maxInterval the kernel's own tick comes first.
const (
	minInterval = 200 * time.Microsecond
	maxInterval = 10 * time.Millisecond
)

// maxShownBytes bounds the child's text in a message.
const maxShownBytes = 300

// noRoot is the error where a process would stay below the machine's root cgroup.
const noRoot = "only a part of the machine's cgroups is visible here, and in a part of them it would take CPUs from the rest: " +
	"CPUs choose again only at the kernel's tick"

// endTime is how long the child may take to end by itself.
const endTime = 2 * time.Second

// Options set how a [Runner] acts.
type Options struct {
	DryRun bool
	// Copy means that isolate works on a copy of a machine's files (--root): no thread is started.
	Copy bool
	// MoveToRoot moves a process to the root cgroup of the machine; nil if only a part of the hierarchy is visible here.
	MoveToRoot func(pid int) error
	Log        *slog.Logger
}

// Runner starts and ends the child process. Only one goroutine may call its methods.
type Runner struct {
	Options
	inForce time.Duration // the interval, in a dry run that which would be; 0 means none
	told    bool          // that the root cgroup is missing was reported
	child   *child        // nil if none runs
	failed  error         // why there is none, although one was advised; it is not tried again
}

// child is a running child process.
type child struct {
	process *os.Process
	stdin   io.Closer   // its end ends the process, and its first line starts the threads
	ended   chan error  // receives why the process ended
	cpus    unix.CPUSet // those of its threads
}

// New returns a Runner without a child process.
func New(o Options) *Runner { return &Runner{Options: o} }

// Apply starts or ends the threads, or changes their interval, as the advice requests: nil or 0 seconds means no threads.
func (r *Runner) Apply(out *tick.Isolation, seconds *float64) {
	interval := intervalOf(seconds)
	if interval > 0 && r.MoveToRoot == nil && !r.Copy {
		out.Unavailable = append(out.Unavailable, key)
		if !r.told {
			r.told = true
			out.Errors = append(out.Errors, tick.IsolationError{Key: key, Error: noRoot})
		}
		return
	}
	if r.DryRun || r.Copy {
		r.inForce = interval
		return
	}
	r.run(interval)
	if r.failed != nil && interval > 0 {
		out.Errors = append(out.Errors, tick.IsolationError{Key: key, Error: r.failed.Error()})
	}
}

// Report adds the interval that is in force.
func (r *Runner) Report(out *tick.Isolation) {
	if r.inForce > 0 {
		out.ReschedIntervalSeconds = new(r.inForce.Seconds())
	}
}

// Stop ends the threads; a later Apply may start them again.
func (r *Runner) Stop() {
	r.inForce = 0
	if r.child == nil {
		return
	}
	_ = r.child.end() // that it ended is what was wanted
	r.child = nil
	r.Log.Info("only the kernel's own tick makes CPUs choose again what they run")
}

// intervalOf returns the interval that an advice means, within its bounds; 0 means none.
func intervalOf(seconds *float64) time.Duration {
	if seconds == nil || math.IsNaN(*seconds) || *seconds <= 0 {
		return 0
	}
	return time.Duration(min(max(*seconds, minInterval.Seconds()), maxInterval.Seconds()) * float64(time.Second))
}

// run ensures that a child process with this interval runs, or with 0 that none does.
func (r *Runner) run(interval time.Duration) {
	if r.child != nil {
		select {
		case err := <-r.child.ended:
			r.child, r.inForce = nil, 0
			r.fail(errors.Join(errors.New("its process ended"), err))
		default:
			if r.inForce == interval && !r.child.hasOtherCPUs() {
				return
			}
			r.Stop()
		}
	}
	if interval == 0 || r.failed != nil {
		return
	}
	if err := r.start(interval); err != nil {
		r.fail(err)
		return
	}
	r.inForce = interval
	r.Log.Info("batch runs beside services: CPUs choose again what they run more often than at the kernel's tick", "interval", interval)
}

func (r *Runner) start(interval time.Duration) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(path)
	cmd.Args = []string{childName, interval.String()}
	cmd.Env = []string{"GODEBUG=asyncpreemptoff=1"}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	started := &child{process: cmd.Process, stdin: stdin, ended: make(chan error, 1)}
	go func() {
		err := cmd.Wait()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, clip.Text(stderr.String(), maxShownBytes))
		}
		started.ended <- err
	}()
	err = r.MoveToRoot(cmd.Process.Pid)
	if err == nil {
		started.cpus, err = cpusOf(cmd.Process)
	}
	if err == nil {
		_, err = stdin.Write([]byte("\n")) // the threads start
	}
	if err != nil {
		return errors.Join(err, started.end())
	}
	r.child = started
	return nil
}

// end ends the process, and returns why it ended if not for that.
func (c *child) end() error {
	kill := time.AfterFunc(endTime, func() { _ = c.process.Kill() }) // it may have ended
	defer kill.Stop()
	c.stdin.Close()
	return <-c.ended
}

// hasOtherCPUs reports whether the process may use other CPUs than its threads were started for: one is offline or online again.
// The kernel moves the thread of a CPU that goes offline to another, and not back.
func (c *child) hasOtherCPUs() bool {
	cpus, err := cpusOf(c.process)
	return err == nil && cpus != c.cpus // else it has just ended, which the next tick learns
}

// cpusOf are the online CPUs that the first thread of a process may use.
func cpusOf(p *os.Process) (cpus unix.CPUSet, err error) {
	err = os.NewSyscallError("sched_getaffinity", unix.SchedGetaffinity(p.Pid, &cpus))
	return cpus, err
}

func (r *Runner) fail(err error) {
	r.failed = fmt.Errorf("CPUs choose again only at the kernel's tick: %w (a new isolate tries again)", err)
}
