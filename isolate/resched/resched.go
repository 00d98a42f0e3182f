// Package resched makes the kernel choose more often what a CPU runs, while batch runs beside services.
//
// A service comes before batch in the idle class when it wakes. But the kernel's fair scheduler (EEVDF, Linux 6.6) chooses only among
// tasks that did not get more than their share yet, and a service that has just run has got more by some microseconds. So if something
// interrupts it, such as a thread of the kernel that handles its packets or its writes, batch is next, and the CPU is only chosen for
// again at the kernel's next tick: up to 4 ms later with 250 ticks a second. After some microseconds of batch the service would be
// chosen. Whenever a thread wakes on that CPU and sleeps again at once, the kernel reschedules it. There are two ways of doing that, and
// each has a thread for each CPU:
//
//   - on wait: a BPF program notices that batch begins to run while something else waits, and wakes the thread (package onwait,
//     docs/adr/0023-wake-when-a-task-waits-behind-batch.md). It costs next to nothing, but not every kernel and container permits it.
//   - at an interval: the thread wakes always (docs/adr/0021-choose-again-more-often.md has the measurements).
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
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/clip"
	"polder/lib/tick"
)

// The advice's keys, as errors name them.
const (
	onWaitKey   = "reschedOnWait"
	intervalKey = "reschedIntervalSeconds"
)

// The threads wake at least and at most so often, whatever the advice says: below minInterval they would use a large part of the CPUs,
// and above maxInterval the kernel's timer interrupt comes first.
const (
	minInterval = 200 * time.Microsecond
	maxInterval = 10 * time.Millisecond
)

// maxShownBytes bounds the child's text in a message.
const maxShownBytes = 300

// noRoot is the error where a process would stay below the machine's root cgroup.
const noRoot = "only a part of the machine's cgroups is visible here, and in a part of them it would take CPUs from the rest: " +
	"CPUs are rescheduled only by the kernel's timer interrupt"

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
	inForce  way    // in a dry run that which would be
	child    *child // nil if none runs
	noOnWait error  // why CPUs cannot be rescheduled on wait, although that was advised; it is not tried again
	failed   error  // why they cannot at an interval; it is not tried again either

	noRootReported, noOnWaitReported bool
}

// way is how CPUs are rescheduled, which is the child process' argument: [onWait] or an interval; [kernelOnly] is none of them.
type way string

const (
	kernelOnly way = ""
	onWait     way = "on-wait"
)

// child is a running child process.
type child struct {
	way     way
	process *os.Process
	stdin   io.Closer   // its end ends the process, and its first line starts the threads
	isReady atomic.Bool // the threads have started
	ended   chan error  // receives why the process ended
	cpus    unix.CPUSet // those of its threads
}

// New returns a Runner without a child process.
func New(o Options) *Runner { return &Runner{Options: o} }

// Apply has CPUs rescheduled as the advice requests: on wait where that is possible, otherwise at its interval, if it has one.
func (r *Runner) Apply(out *tick.Isolation, a *tick.Advice) {
	interval := intervalOf(a.ReschedIntervalSeconds)
	if r.MoveToRoot == nil && !r.Copy && (a.ReschedOnWait || interval != kernelOnly) {
		r.reportNoRoot(out, a.ReschedOnWait, interval)
		return
	}
	if r.DryRun || r.Copy {
		r.inForce = r.choose(a.ReschedOnWait, interval)
		return
	}
	r.checkChild()
	want := r.choose(a.ReschedOnWait, interval)
	r.run(want)
	if a.ReschedOnWait && r.noOnWait != nil {
		out.Unavailable = append(out.Unavailable, onWaitKey)
		if !r.noOnWaitReported {
			r.noOnWaitReported = true
			out.Errors = append(out.Errors, tick.IsolationError{Key: onWaitKey, Error: r.noOnWait.Error()})
		}
	}
	if want != kernelOnly && want != onWait && r.failed != nil {
		out.Errors = append(out.Errors, tick.IsolationError{Key: intervalKey, Error: r.failed.Error()})
	}
}

// reportNoRoot reports what cannot be done without the machine's root cgroup.
func (r *Runner) reportNoRoot(out *tick.Isolation, isOnWait bool, interval way) {
	var keys []string
	if isOnWait {
		keys = append(keys, onWaitKey)
	}
	if interval != kernelOnly {
		keys = append(keys, intervalKey)
	}
	out.Unavailable = append(out.Unavailable, keys...)
	if !r.noRootReported {
		r.noRootReported = true
		out.Errors = append(out.Errors, tick.IsolationError{Key: keys[0], Error: noRoot})
	}
}

// choose returns the way for an advice.
func (r *Runner) choose(isOnWait bool, interval way) way {
	if isOnWait && r.noOnWait == nil {
		return onWait
	}
	return interval
}

// Report adds what is in force.
func (r *Runner) Report(out *tick.Isolation) {
	switch r.inForce {
	case kernelOnly:
	case onWait:
		out.ReschedOnWait = true
	default:
		if d, err := time.ParseDuration(string(r.inForce)); err == nil { // always: intervalOf wrote it
			out.ReschedIntervalSeconds = new(d.Seconds())
		}
	}
}

// Stop ends the threads; a later Apply may start them again.
func (r *Runner) Stop() {
	r.inForce = kernelOnly
	if r.child == nil {
		return
	}
	_ = r.child.end() // that it ended is what was wanted
	r.child = nil
	r.Log.Info("CPUs are rescheduled only by the kernel's timer interrupt")
}

// intervalOf returns the interval that an advice means, within its bounds.
func intervalOf(seconds *float64) way {
	if seconds == nil || math.IsNaN(*seconds) || *seconds <= 0 {
		return kernelOnly
	}
	return way(time.Duration(min(max(*seconds, minInterval.Seconds()), maxInterval.Seconds()) * float64(time.Second)).String())
}

// checkChild learns whether the child process has started its threads or has ended.
func (r *Runner) checkChild() {
	if r.child == nil {
		return
	}
	select {
	case err := <-r.child.ended:
		r.fail(r.child.way, errors.Join(errors.New("its process ended"), err))
		r.child, r.inForce = nil, kernelOnly
	default:
		if r.inForce == kernelOnly && r.child.isReady.Load() {
			r.inForce = r.child.way
			r.Log.Info("batch runs beside services: CPUs are rescheduled more often than by the kernel's timer interrupt",
				"when", r.inForce)
		}
	}
}

// run ensures that a child process for this way runs, or none.
func (r *Runner) run(want way) {
	if r.child != nil && (r.child.way != want || r.child.hasOtherCPUs()) {
		r.Stop()
	}
	if want == kernelOnly || r.child != nil || want != onWait && r.failed != nil {
		return
	}
	if err := r.start(want); err != nil {
		r.fail(want, err)
		return
	}
	r.checkChild()
}

func (r *Runner) start(want way) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(path)
	cmd.Args = []string{childName, string(want)}
	cmd.Env = []string{"GODEBUG=asyncpreemptoff=1"}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	started := &child{way: want, process: cmd.Process, stdin: stdin, ended: make(chan error, 1)}
	go func() {
		if n, _ := stdout.Read(make([]byte, 1)); n > 0 { // the end of the process, which Wait returns, ends it too
			started.isReady.Store(true)
		}
		err := cmd.Wait()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, clip.Text(strings.TrimSpace(stderr.String()), maxShownBytes))
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

// fail keeps why a way is not possible.
func (r *Runner) fail(w way, err error) {
	if w == onWait {
		r.noOnWait = fmt.Errorf("nothing notices when a task waits behind batch; if the advice has an interval CPUs are rescheduled at "+
			"that: %w (a new isolate tries again)", err)
		return
	}
	r.failed = fmt.Errorf("CPUs are rescheduled only by the kernel's timer interrupt: %w (a new isolate tries again)", err)
}
