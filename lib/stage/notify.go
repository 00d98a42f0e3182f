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

// notifier reports the tool's state to the service manager that started it, like sd_notify(3): a datagram for each word. It
// is nil, and sends nothing, if $NOTIFY_SOCKET is not set.
type notifier struct {
	socket          int
	to              unix.SockaddrUnix
	watchdogTimeout time.Duration // the manager stops a tool that sends nothing for this long; 0 is never

	isStarted atomic.Bool
	once      sync.Once
}

// newNotifier reads the manager's settings. The socket does not block, because a busy manager must not stop the stream. The next
// WATCHDOG=1 replaces a lost one, and READY=1, for which the manager waits, is repeated.
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
			n.watchdogTimeout = time.Duration(us) * time.Microsecond
		}
	}
	return n, nil
}

// send reports whether the word must be sent again, because the manager's queue, of as few as ten datagrams, is full. Other errors are
// ignored: only the manager's view depends on the word.
func (n *notifier) send(word string) (full bool) {
	to := n.to // Sendto writes to it, and several goroutines send
	err := unix.Sendto(n.socket, []byte(word), unix.MSG_NOSIGNAL, &to)
	return err == unix.EAGAIN || err == unix.ENOBUFS
}

// readyRetry is how long after an attempt that met a full queue READY=1 is sent again.
const readyRetry = 50 * time.Millisecond

// ready notifies the manager that the tool is running, and when ctx ends that it is stopping.
func (n *notifier) ready(ctx context.Context) {
	if n == nil {
		return
	}
	if n.send("READY=1") {
		go func() {
			again := time.NewTicker(readyRetry)
			defer again.Stop()
			for sent := false; !sent; sent = !n.send("READY=1") {
				select {
				case <-ctx.Done():
					return
				case <-again.C:
				}
			}
		}()
	}
	n.isStarted.Store(true)
	context.AfterFunc(ctx, n.stopping)
}

// stopping notifies the manager, once. A tool that was stopped may end before the goroutine that sends the word runs, so it is also sent
// at the tool's end.
func (n *notifier) stopping() {
	if n != nil && n.isStarted.Load() {
		n.once.Do(func() { n.send("STOPPING=1") })
	}
}

// alive notifies the manager's watchdog.
func (n *notifier) alive() {
	if n != nil && n.watchdogTimeout > 0 {
		n.send("WATCHDOG=1")
	}
}

// watchdogTicks returns a channel at whose ticks an idle loop notifies the watchdog, because a tool is healthy although its input is
// silent. Stop ends it.
func (n *notifier) watchdogTicks() (often <-chan time.Time, stop func()) {
	if n == nil || n.watchdogTimeout < 3 {
		return nil, func() {}
	}
	t := time.NewTicker(n.watchdogTimeout / 3)
	return t.C, t.Stop
}

// keepAlive notifies the watchdog until stop is called, because a tool whose write waits for the next stage is healthy. When stop has
// returned nothing more is sent.
func (n *notifier) keepAlive() (stop func()) {
	if n == nil || n.watchdogTimeout < 3 {
		return func() {}
	}
	return repeat(n.watchdogTimeout/3, n.alive)
}

// repeat calls f at an interval until stop is called. When stop has returned f is not called again.
func repeat(interval time.Duration, f func()) (stop func()) {
	often, done, ended := time.NewTicker(interval), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-often.C:
				f()
			case <-done:
				return
			}
		}
	}()
	return func() {
		often.Stop()
		close(done)
		<-ended
	}
}
