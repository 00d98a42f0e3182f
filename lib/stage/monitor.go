package stage

import (
	"fmt"
	"os"
	"strconv"
)

// Go's runtime has a thread that looks every 20 µs, while the process works, for system calls that last long and goroutines to preempt. A
// tool works for some milliseconds per second: in these the thread wakes up to 40 times, each time on the tool's CPU or by an interrupt of
// another one. That was a sixth of the whole pipe's CPU time (docs/performance.md).

// monitorSlack is how many nanoseconds after the requested time the kernel may wake that thread (prctl(2), PR_SET_TIMERSLACK): as much as a
// goroutine may have to wait, in addition, while another one is in a system call. deploy/s6/calm and the units have the same number.
const monitorSlack = 1_000_000

// calmMonitor lets the runtime's monitor thread wake every [monitorSlack] at most. It needs CAP_SYS_NICE, which a tool started by a
// supervisor does not have: that gives all of the tool's threads this slack instead.
func calmMonitor() error {
	tasks, err := os.Open("/proc/self/task")
	if err != nil {
		return err
	}
	defer tasks.Close()
	threads, err := tasks.Readdirnames(2) // the kernel lists them in the order of their creation, and the runtime creates this one first
	if err != nil {
		return err
	}
	if len(threads) < 2 {
		return fmt.Errorf("%s has no second thread", tasks.Name())
	}
	// The file is not in /proc/self/task/TID.
	return os.WriteFile("/proc/"+threads[1]+"/timerslack_ns", []byte(strconv.Itoa(monitorSlack)), 0)
}
