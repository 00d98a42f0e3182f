package act

import (
	"os"
	"runtime"
	"testing"

	"github.com/opencontainers/runc/libcontainer/system"
	"golang.org/x/sys/unix"
)

// Threaded cgroups list threads; signals go to processes, and a thread in the list is no failure.
func TestAThreadIsNotSignalled(t *testing.T) {
	tids, done := make(chan int), make(chan struct{})
	defer close(done)
	for range 2 { // one of them may be the process's first thread
		go func() {
			runtime.LockOSThread()
			tids <- unix.Gettid()
			<-done
		}()
	}
	for range 2 {
		tid := <-tids
		if tid == unix.Getpid() {
			continue
		}
		stat, err := system.Stat(tid)
		if err != nil {
			t.Fatal(err)
		}
		if err := (process{tid, stat.StartTime}).signal(unix.SIGTERM); err != nil {
			t.Errorf("signal to thread %d: %v", tid, err)
		}
	}
}

// It is known how many processes got a signal although another did not.
func TestSignalsThatWereSent(t *testing.T) {
	ended := process{pid: os.Getpid(), start: 1} // another process has the PID now: nothing is left to signal
	stat, err := system.Stat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	self := process{pid: os.Getpid(), start: stat.StartTime}
	const none, noSignal = unix.Signal(0), unix.Signal(1000)
	for _, tt := range []struct {
		sig  unix.Signal
		list []process
		sent int
		fail bool
	}{
		{none, []process{self, ended}, 2, false},
		{noSignal, []process{self, ended}, 1, true},
		{noSignal, []process{self}, 0, true},
		{none, nil, 0, false},
	} {
		if sent, err := signalAll(tt.list, tt.sig); sent != tt.sent || (err != nil) != tt.fail {
			t.Errorf("signal %d to %v: %d sent, %v; want %d sent", tt.sig, tt.list, sent, err, tt.sent)
		}
	}
}
