package vmnode

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"polder/tests/vmnode/wire"
)

// The proxy connects to kubelet and nowhere else.
func TestEgress(t *testing.T) {
	e, err := NewEgress(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	config, err := os.ReadFile(strings.TrimPrefix(e.Flag(), "--egress-selector-config-file="))
	if err != nil || !strings.Contains(string(config), e.listener.Addr().String()) {
		t.Fatalf("the configuration is %s (%v)", config, err)
	}
	kubelet, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kubelet.Close() })
	go func() {
		for {
			conn, err := kubelet.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(conn, conn) // an echo
			conn.Close()
		}
	}()
	address := fmt.Sprintf("%s:%d", wire.Address, wire.KubeletPort)
	e.ask(t, address, http.StatusBadGateway) // there is no node yet
	e.Lead(kubelet.Addr().String())
	e.ask(t, "10.96.0.1:443", http.StatusBadGateway)
	if got := e.ask(t, address, http.StatusOK); got != "hello" {
		t.Errorf("through the proxy came %q", got)
	}
	kubelet.Close()
	e.ask(t, address, http.StatusGatewayTimeout)
}

// ask makes the proxy connect, and returns the response to a hello.
func (e *Egress) ask(t *testing.T, address string, status int) string {
	t.Helper()
	conn, err := net.Dial("unix", e.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\nhello", address, address)
	from := bufio.NewReader(conn)
	response, err := http.ReadResponse(from, &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != status {
		t.Errorf("CONNECT %s: status %d, want %d", address, response.StatusCode, status)
	}
	if response.StatusCode != http.StatusOK {
		return ""
	}
	text := make([]byte, len("hello"))
	if _, err := io.ReadFull(from, text); err != nil {
		t.Error(err)
	}
	return string(text)
}
