package stage

import (
	"net"
	"path/filepath"
	"testing"
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
