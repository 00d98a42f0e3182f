package vmnode

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"polder/tests/vmnode/wire"
)

// Egress is the API server's path to kubelet, whose address is QEMU's and has no route on the host: a proxy, which the API
// server uses for each connection into the cluster (its egress selector), on a Unix socket: it supports no
// plain TCP.
type Egress struct {
	config   string
	listener net.Listener

	mu      sync.Mutex
	kubelet string // kubelet's address on the host; empty before the machine is up
}

// NewEgress creates one with its files in dir.
func NewEgress(dir string) (*Egress, error) {
	socket := filepath.Join(dir, "egress.socket")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	e := &Egress{config: filepath.Join(dir, "egress.yaml"), listener: listener}
	config := fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %q}}}
`, socket)
	if err := os.WriteFile(e.config, []byte(config), 0o644); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	go e.serve()
	return e, nil
}

// Flag is the flag of kube-apiserver that makes it use the proxy.
func (e *Egress) Flag() string { return "--egress-selector-config-file=" + e.config }

// Lead directs connections to kubelet to an address of the host.
func (e *Egress) Lead(address string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kubelet = address
}

// Close ends it; open connections stay.
func (e *Egress) Close() error { return e.listener.Close() }

func (e *Egress) serve() {
	for {
		conn, err := e.listener.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer conn.Close()
			_ = e.connect(conn) // the API server reports it
		}()
	}
}

// connect handles one CONNECT.
func (e *Egress) connect(conn net.Conn) error {
	from := bufio.NewReader(conn)
	request, err := http.ReadRequest(from)
	if err != nil {
		return err
	}
	e.mu.Lock()
	kubelet := e.kubelet
	e.mu.Unlock()
	if want := fmt.Sprintf("%s:%d", wire.Address, wire.KubeletPort); request.Method != http.MethodConnect || request.Host != want || kubelet == "" {
		_, err := fmt.Fprintf(conn, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return err
	}
	to, err := net.DialTimeout("tcp", kubelet, time.Minute)
	if err != nil {
		_, err := fmt.Fprintf(conn, "HTTP/1.1 504 Gateway Timeout\r\n\r\n")
		return err
	}
	defer to.Close()
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(to, from) // either side's end ends the other
		to.Close()
	}()
	_, err = io.Copy(conn, to)
	return err
}
