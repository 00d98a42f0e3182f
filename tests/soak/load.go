package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// loadPlan is what the tools manage.
type loadPlan struct {
	standing, churning int
	life               time.Duration // of a short-lived cgroup, on average
}

// A light load, because the soak tests the tools: other programs may need the machine for these thirty minutes.
const (
	serviceLowPercent, serviceHighPercent = 1, 9 // of a core; up and down
	batchPercent                          = 3
	standingThreads, churningThreads      = 3, 2
)

// load is the cgroups and processes that the tools look after.
type load struct {
	root   *group
	life   time.Duration
	cancel context.CancelFunc
	all    sync.WaitGroup

	alive, made, removed atomic.Int64

	mu    sync.Mutex
	first error // of the churn: the others are likely the same
	errs  int
}

func startLoad(ctx context.Context, root *group, plan loadPlan, length time.Duration) (*load, error) {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{root: root, life: plan.life, cancel: cancel}
	period := length / 6
	standing := map[string]string{
		"service": fmt.Sprintf("burn %d %d %s", serviceLowPercent, serviceHighPercent, period),
		"batch":   fmt.Sprintf("burn %d %d %s", batchPercent, batchPercent, period),
	}
	for i := range plan.standing - len(standing) {
		standing[fmt.Sprintf("s%d", i)] = fmt.Sprintf("sleep %d", standingThreads)
	}
	for name, work := range standing {
		end, err := l.begin(name, work)
		if err != nil {
			return l, err
		}
		l.all.Go(func() { <-ctx.Done(); l.note(end()) })
	}
	for slot := range plan.churning {
		l.all.Go(func() { l.churn(ctx, slot) })
	}
	return l, nil
}

// churn creates one cgroup after the other, each with a new name and a short-lived process: a tool
// that remembers cgroups by name, and does not forget, grows.
func (l *load) churn(ctx context.Context, slot int) {
	for i := 0; ; i++ {
		end, err := l.begin(fmt.Sprintf("c%d-%d", slot, i), fmt.Sprintf("sleep %d", churningThreads))
		if err != nil {
			l.note(err)
			return
		}
		life := time.Duration((0.25 + 1.5*rand.Float64()) * float64(l.life))
		select {
		case <-ctx.Done():
		case <-time.After(life):
		}
		l.note(end())
		if ctx.Err() != nil {
			return
		}
	}
}

// begin makes a cgroup with a process in it; the function ends both.
func (l *load) begin(name, work string) (end func() error, err error) {
	g, err := l.root.child(name)
	if err != nil {
		return nil, errors.Join(err, g.remove())
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{workVariable + "=" + work, "GOMAXPROCS=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // the load does not outlive a killed soak
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	err = g.enter(cmd.Process.Pid)
	l.made.Add(1)
	l.alive.Add(1)
	end = func() error {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		l.alive.Add(-1)
		err := g.remove()
		l.removed.Add(1)
		return err
	}
	if err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

func (l *load) note(err error) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs++
	if l.first == nil {
		l.first = err
	}
}

func (l *load) stop() {
	l.cancel()
	l.all.Wait()
}

func (l *load) failures() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		return nil
	}
	return []string{fmt.Sprintf("the load had %d errors, the first: %v", l.errs, l.first)}
}

// doWork is a process of the load: "sleep THREADS", or "burn LOW HIGH PERIOD" in percent of a core.
func doWork(work string) int {
	var threads int
	if n, _ := fmt.Sscanf(work, "sleep %d", &threads); n == 1 {
		for range threads - 1 {
			go sleepThread()
		}
		sleepThread()
	}
	var low, high float64
	var text string
	if n, _ := fmt.Sscanf(work, "burn %g %g %s", &low, &high, &text); n == 3 {
		period, err := time.ParseDuration(text)
		if err == nil && period > 0 {
			burn(low/100, high/100, period)
		}
	}
	fmt.Fprintf(os.Stderr, "soak: no work is %q\n", work)
	return 2
}

// sleepThread keeps a thread of its own in a system call.
func sleepThread() {
	runtime.LockOSThread()
	for {
		_ = syscall.Pause()
	}
}

// burn uses a part of a core that rises from low to high and falls again in each period, as a wave.
func burn(low, high float64, period time.Duration) {
	const slice = 100 * time.Millisecond
	begun := time.Now()
	for {
		phase := 2 * math.Pi * float64(time.Since(begun)%period) / float64(period)
		part := low + (high-low)*(1-math.Cos(phase))/2
		// By its own CPU time: on a busy machine a spin by the clock would mostly wait.
		sum := uint64(0)
		for until := cpuTime() + time.Duration(part*float64(slice)); cpuTime() < until; {
			sum += spin()
		}
		runtime.KeepAlive(sum) // keeps the compiler from removing the loop
		time.Sleep(slice)
	}
}

// spin is a few microseconds of work.
func spin() (sum uint64) {
	for i := range uint64(10_000) {
		sum += i * i
	}
	return sum
}

// cpuTime is the CPU time that this process has used so far.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
