package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"polder/tests/vm/wire"
)

// suite is a list of tests that run one after the other in one guest.
type suite struct {
	name, doc string
	// mount mounts the cgroup hierarchies; mountsMore is true if it adds to the mounts of an earlier suite of the same guest.
	mount      func() error
	mountsMore bool
	tests      []test
}

type test struct {
	name string
	run  func(*T)
}

var suites = []suite{
	guide48, load48, basics, cold, sharedDisks, redisDisk, shareOfCPUs, newFiles, guestClock,
	version1, hybrid, faults, systemd, packaged, record48, wedged, crashing,
}

const (
	// patience is how long a test waits for an expected event. It comes at once or in some seconds; with a busy host the guest
	// is slower, and so are all users of its clocks. A passing test never waits that long.
	patience = 10 * time.Minute
	// testLimit ends a test that none of its own waits ends.
	testLimit = 30 * time.Minute
	// aliveEvery is how often the guest reports that it does not hang.
	aliveEvery = 5 * time.Second
)

// runSuites runs the named suites, in this order; the first one mounts what all of them use.
func runSuites(names []string) error {
	port, err := os.OpenFile(resultsPort, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer port.Close()
	if err := makeRaw(port); err != nil {
		return err
	}
	out := &results{encoder: json.NewEncoder(port)}
	go func() {
		for {
			out.line(wire.Line{State: wire.Alive})
			time.Sleep(aliveEvery)
		}
	}()
	for i, name := range names {
		at := slices.IndexFunc(suites, func(s suite) bool { return s.name == name })
		if at < 0 {
			return fmt.Errorf("no suite %q", name)
		}
		s := suites[at]
		if i == 0 || s.mountsMore {
			if err := s.mount(); err != nil {
				return fmt.Errorf("suite %s: %w", s.name, err)
			}
		}
		for _, test := range s.tests {
			if !runTest(out, test) {
				return fmt.Errorf("suite %s: %s did not end", s.name, test.name)
			}
		}
	}
	out.line(wire.Line{State: wire.End})
	return nil
}

// makeRaw keeps the terminal driver from changing bytes.
func makeRaw(port *os.File) error {
	settings, err := unix.IoctlGetTermios(int(port.Fd()), unix.TCGETS)
	if err != nil {
		return fmt.Errorf("%s: %w", port.Name(), err)
	}
	settings.Oflag &^= unix.OPOST
	settings.Lflag &^= unix.ECHO | unix.ICANON
	settings.Cflag = settings.Cflag&^unix.CBAUD | unix.B115200
	return unix.IoctlSetTermios(int(port.Fd()), unix.TCSETS, settings)
}

// results are sent to the host.
type results struct {
	mu      sync.Mutex
	encoder *json.Encoder
}

func (r *results) line(l wire.Line) {
	l.UptimeSeconds = uptime().Seconds()
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.encoder.Encode(l) // the port is a file of the host; if it fails the host misses the line
}

// uptime is the guest's own clock, which CPU time is accounted by.
func uptime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // cannot fail
	return time.Duration(now.Nano())
}

// runTest returns false if the test is still running at its time limit.
func runTest(out *results, test test) bool {
	t := &T{name: test.name, out: out, state: wire.Pass}
	out.line(wire.Line{State: wire.Run, Test: test.name})
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.cleanup()
		defer t.recover()
		test.run(t)
	}()
	select {
	case <-done:
		out.line(wire.Line{State: t.state, Test: test.name})
		return true
	case <-time.After(testLimit):
		out.line(wire.Line{State: wire.Fail, Test: test.name, Text: "not done after " + testLimit.String()})
		return false
	}
}

// T reports a test's results, like testing.T.
type T struct {
	name     string
	out      *results
	state    string
	cleanups []func()
}

func (t *T) report(state, text string) {
	t.out.line(wire.Line{State: state, Test: t.name, Text: text})
}

// Logf logs an observation.
func (t *T) Logf(format string, args ...any) { t.report(wire.Log, fmt.Sprintf(format, args...)) }

// Errorf reports a failure; the test continues.
func (t *T) Errorf(format string, args ...any) {
	t.state = wire.Fail
	t.Logf("FAIL: "+format, args...)
}

// Fatalf ends the test.
func (t *T) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// Must ends the test on an error.
func (t *T) Must(err error) {
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// Cleanup runs f at the test's end, the last one first.
func (t *T) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// Send sends the host a file.
func (t *T) Send(name string, data []byte) {
	t.out.line(wire.Line{State: wire.File, Test: t.name, Text: name, Data: data})
}

func (t *T) cleanup() {
	for _, v := range slices.Backward(t.cleanups) {
		v()
	}
}

func (t *T) recover() {
	if r := recover(); r != nil {
		t.Errorf("panic: %v\n%s", r, debug.Stack())
	}
}

// within polls until ok, and reports whether that came in time.
func within(ok func() bool) bool {
	for deadline := uptime() + patience; ; time.Sleep(50 * time.Millisecond) {
		if ok() {
			return true
		}
		if uptime() > deadline {
			return false
		}
	}
}
