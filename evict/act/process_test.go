package act

import (
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
