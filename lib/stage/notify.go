package stage

import (
	"context"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// notifier tells the service manager that started the tool how it is, as sd_notify(3) does: a datagram for each word. It
// is nil where nobody asked for it ($NOTIFY_SOCKET), and then silent.
type notifier struct {
	socket int
	to     unix.SockaddrUnix
	within time.Duration // the manager ends a tool that sends nothing for so long; 0: it does not

	begun atomic.Bool
	once  sync.Once
}

// newNotifier reads the manager's wishes. The socket does not block: a manager that is busy is not to stop the stream. The next WATCHDOG=1
// makes up for one that was lost, and READY=1, for which the manager waits, is repeated.
func newNotifier(getenv func(string) string) (*notifier, error) {
	address := getenv("NOTIFY_SOCKET")
	if address == "" {
		return nil, nil
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	n := &notifier{socket: socket, to: unix.SockaddrUnix{Name: address}} // a leading @ is the abstract namespace here, too
	if pid := getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if us, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64); err == nil && us > 0 {
			n.within = time.Duration(us) * time.Microsecond
		}
	}
	return n, nil
}

// send reports whether the word must be sent again: the manager's queue, of as few as ten datagrams, is full. Of other errors nothing depends
// on the word but the manager's view.
func (n *notifier) send(word string) (full bool) {
	to := n.to // Sendto writes to it, and several goroutines send
	err := unix.Sendto(n.socket, []byte(word), unix.MSG_NOSIGNAL, &to)
	return err == unix.EAGAIN || err == unix.ENOBUFS
}

// readyAgain is how long after an attempt that met a full queue READY=1 is sent again.
const readyAgain = 50 * time.Millisecond

// ready notifies the manager that the tool is at work, and when ctx ends that it is stopping.
func (n *notifier) ready(ctx context.Context) {
	if n == nil {
		return
	}
	if n.send("READY=1") {
		go func() {
			for again := time.Tick(readyAgain); ; {
				select {
				case <-ctx.Done():
					return
				case <-again:
				}
				if !n.send("READY=1") {
					return
				}
			}
		}()
	}
	n.begun.Store(true)
	context.AfterFunc(ctx, n.stopping)
}

// stopping notifies the manager, once. A tool that was asked to stop may be at its end before the word's own goroutine runs: it sends it
// then, too.
func (n *notifier) stopping() {
	if n != nil && n.begun.Load() {
		n.once.Do(func() { n.send("STOPPING=1") })
	}
}

// alive feeds the manager's watchdog.
func (n *notifier) alive() {
	if n != nil && n.within > 0 {
		n.send("WATCHDOG=1")
	}
}

// idle is a channel on which a loop that has nothing to do is to feed the watchdog: a tool is not ill because the one
// before it is silent. Stop ends it.
func (n *notifier) idle() (often <-chan time.Time, stop func()) {
	if n == nil || n.within < 3 {
		return nil, func() {}
	}
	t := time.NewTicker(n.within / 3)
	return t.C, t.Stop
}
