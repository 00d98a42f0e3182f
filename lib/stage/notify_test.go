package stage

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A manager whose queue is full for a while gets READY=1 nevertheless, because it would stop a tool that never sends it.
func TestReadyReachesABusyManager(t *testing.T) {
	address := filepath.Join(t.TempDir(), "notify")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	n, err := newNotifier(func(name string) string { return map[string]string{"NOTIFY_SOCKET": address}[name] })
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(n.socket)
	full := false
	for range 100000 { // the kernel's limit is some tens or hundreds (net.unix.max_dgram_qlen)
		if full = n.send("other"); full {
			break
		}
	}
	if !full {
		t.Fatal("the manager's queue does not get full")
	}
	n.ready(t.Context())
	if err := listener.SetReadDeadline(time.Now().Add(time.Minute)); err != nil { // for a READY=1 that never comes
		t.Fatal(err)
	}
	word := make([]byte, 64)
	for {
		size, err := listener.Read(word)
		if err != nil {
			t.Fatal(err)
		}
		switch string(word[:size]) {
		case "other":
		case "READY=1":
			return
		default:
			t.Fatalf("the manager gets %q", word[:size])
		}
	}
}

// A tool whose next stage is down waits in a write for as long as that lasts, and feeds the watchdog meanwhile: the manager would kill it.
func TestWatchdogIsFedWhileAWriteWaits(t *testing.T) {
	address := filepath.Join(t.TempDir(), "notify")
	manager, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(manager)
	if err := unix.Bind(manager, &unix.SockaddrUnix{Name: address}); err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "60000000"}
	fed := func() (count int) {
		word := make([]byte, 64)
		for {
			size, _, err := unix.Recvfrom(manager, word, 0)
			if err == unix.EAGAIN {
				return count
			}
			if err != nil {
				t.Error(err)
				return count
			}
			if string(word[:size]) == "WATCHDOG=1" {
				count++
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		next, out := io.Pipe()
		h := &harness{}
		done := make(chan int)
		go func() {
			done <- h.echo(filterKind, nil).Execute(t.Context(), Env{
				Args: []string{"echo"}, In: strings.NewReader(line("a", 0) + "\n" + line("b", 0) + "\n"), Out: out, Err: &h.err,
				Getenv: func(name string) string { return environment[name] }, Now: func() time.Time { return now },
			})
		}()
		synctest.Wait() // the write waits
		fed()
		for minute := range 10 {
			time.Sleep(time.Minute)
			synctest.Wait()
			if fed() == 0 {
				t.Errorf("the watchdog got nothing in minute %d of the write", minute+1)
			}
		}
		written := make(chan int)
		go func() {
			text, err := io.ReadAll(next)
			if err != nil {
				t.Error(err)
			}
			written <- bytes.Count(text, []byte{'\n'})
		}()
		if status := <-done; status != 0 {
			t.Errorf("exit status %d: %s", status, &h.err)
		}
		out.Close()
		if got := <-written; got != 2 {
			t.Errorf("the next stage gets %d ticks; want both", got)
		}
		fed()
		time.Sleep(10 * time.Minute)
		if got := fed(); got > 0 {
			t.Errorf("the watchdog is fed %d times after the tool's end", got)
		}
	})
}
