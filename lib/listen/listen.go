// Package listen opens the TCP ports on which a tool responds, with errors that say what to do, and a bound of concurrent
// connections. Clients are not trusted, because a tool needs its descriptors and its memory for the node.
package listen

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// CheckAddr rejects a text that is not HOST:PORT.
func CheckAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return errors.New("want HOST:PORT, such as 127.0.0.1:9471, [::1]:9471, or :9471 for all addresses of the machine")
	}
	return nil
}

// Open listens at addr for at most so many concurrent connections.
func Open(addr string, maximum int) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, explain(err)
	}
	return &limitedListener{Listener: l, free: make(chan struct{}, maximum), closed: make(chan struct{})}, nil
}

// explain adds what to do.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w (another process listens there: each tool needs a port of its own)", err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w (this machine does not have that address)", err)
	case errors.Is(err, syscall.EAFNOSUPPORT):
		return fmt.Errorf("%w (is the unit's RestrictAddressFamilies without AF_INET? docs/metrics.md has a drop-in)", err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w (ports under 1024 are root's)", err)
	}
	return err
}

// limitedListener is a listener with a bound of concurrent connections; the others wait in the kernel.
type limitedListener struct {
	net.Listener
	free   chan struct{}
	closed chan struct{}
	once   sync.Once
}

// Accept implements [net.Listener].
func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &limitedConn{Conn: c, release: sync.OnceFunc(func() { <-l.free })}, nil
}

// Close implements [net.Listener].
func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// limitedConn is a connection that releases its slot when it ends.
type limitedConn struct {
	net.Conn
	release func()
}

// Close implements [net.Conn].
func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
