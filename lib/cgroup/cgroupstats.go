package cgroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// cgroupStats asks the kernel how many threads of a cgroup of version 1 run or wait for a CPU (Documentation/accounting/cgroupstats.rst):
// one message over a netlink socket instead of reading a file per thread. It needs no privilege.
type cgroupStats struct {
	socket *os.File // closed by its finalizer
	family uint16
	number uint32 // of the last message
	buf    [4096]byte
}

var errResponse = errors.New("unexpected response")

// openCgroupStats fails if the kernel has no taskstats or a sandbox forbids netlink.
func openCgroupStats() (*cgroupStats, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	c := &cgroupStats{socket: os.NewFile(uintptr(fd), "netlink")}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind a netlink socket: %w", err), c.socket.Close())
	}
	name := []byte("TASKSTATS\x00")
	response, err := c.request(unix.GENL_ID_CTRL, unix.CTRL_CMD_GETFAMILY, unix.CTRL_ATTR_FAMILY_NAME, name, unix.CTRL_ATTR_FAMILY_ID)
	if err == nil && len(response) < 2 {
		err = errResponse
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find the kernel's taskstats: %w", err), c.socket.Close())
	}
	c.family = binary.NativeEndian.Uint16(response)
	return c, nil
}

// runnable returns the number of threads that run or wait for a CPU in the cgroup whose directory has that descriptor, without those of
// its descendants.
func (c *cgroupStats) runnable(directory int) (uint64, error) {
	var fd [4]byte
	binary.NativeEndian.PutUint32(fd[:], uint32(directory))
	response, err := c.request(c.family, unix.CGROUPSTATS_CMD_GET, unix.CGROUPSTATS_CMD_ATTR_FD, fd[:], unix.CGROUPSTATS_TYPE_CGROUP_STATS)
	if err != nil {
		return 0, err
	}
	const running = 8 // after nr_sleeping
	if len(response) < running+8 {
		return 0, errResponse
	}
	return binary.NativeEndian.Uint64(response[running:]), nil
}

// These are the sizes of a message's parts.
const (
	genericHeader = unix.NLMSG_HDRLEN + 4
	attributeHead = 4
)

// request sends a message with one attribute and returns the value of an attribute of the response, which is available as soon as the
// message was sent.
func (c *cgroupStats) request(family uint16, command uint8, attribute uint16, value []byte, attributeType uint16) ([]byte, error) {
	c.number++
	length := genericHeader + attributeHead + len(value)
	b, order := c.buf[:length], binary.NativeEndian
	clear(b)
	order.PutUint32(b, uint32(length))
	order.PutUint16(b[4:], family)
	order.PutUint16(b[6:], unix.NLM_F_REQUEST)
	order.PutUint32(b[8:], c.number)
	b[unix.NLMSG_HDRLEN], b[unix.NLMSG_HDRLEN+1] = command, 1 // the version of either family
	order.PutUint16(b[genericHeader:], uint16(attributeHead+len(value)))
	order.PutUint16(b[genericHeader+2:], attribute)
	copy(b[genericHeader+attributeHead:], value)

	fd := int(c.socket.Fd())
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("send a message: %w", err)
	}
	n, _, err := unix.Recvfrom(fd, c.buf[:], unix.MSG_DONTWAIT)
	if err != nil {
		return nil, fmt.Errorf("receive the response: %w", err)
	}
	return c.parseResponse(c.buf[:n], attributeType)
}

// parseResponse finds an attribute in the kernel's response to the last message.
func (c *cgroupStats) parseResponse(b []byte, attributeType uint16) ([]byte, error) {
	order := binary.NativeEndian
	if len(b) < genericHeader {
		return nil, errResponse
	}
	size := int64(order.Uint32(b))
	if size < genericHeader || size > int64(len(b)) || order.Uint32(b[8:]) != c.number {
		return nil, errResponse
	}
	if order.Uint16(b[4:]) == unix.NLMSG_ERROR {
		if code := -int32(order.Uint32(b[unix.NLMSG_HDRLEN:])); code > 0 {
			return nil, unix.Errno(code)
		}
		return nil, errResponse
	}
	for rest := b[genericHeader:size]; len(rest) >= attributeHead; {
		length := int(order.Uint16(rest))
		if length < attributeHead || length > len(rest) {
			break
		}
		if order.Uint16(rest[2:]) == attributeType {
			return rest[attributeHead:length], nil
		}
		rest = rest[min((length+3)&^3, len(rest)):]
	}
	return nil, errResponse
}

// countByNetlink counts the cgroup's runnable threads by one netlink message. It returns false if that is impossible: on version 2, on a
// copy, in a sandbox, and for a cgroup with descendants, whose threads the kernel does not include.
func (r *Reader) countByNetlink(cgroup string) (uint64, bool) {
	if r.h.root != "/" || r.h.primaryVersion() != 1 {
		return 0, false
	}
	if !r.statsOpened {
		r.statsOpened = true
		r.stats, _ = openCgroupStats() // without it the threads' own files are read
	}
	if r.stats == nil {
		return 0, false
	}
	dir := r.h.Primary() + cgroup
	if hasDirectories(dir) {
		return 0, false
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	n, err := r.stats.runnable(fd)
	if err != nil && !IsGone(err) {
		r.stats = nil
	}
	return n, err == nil
}
