package cgroup

import "golang.org/x/sys/unix"

// WriteNonBlocking writes a file as a limit of memory is written.
func WriteNonBlocking(dir, name, value string) error {
	return writeFile(dir, name, value, unix.O_NONBLOCK)
}

// WriteFlags returns the flags beside O_WRONLY for writing a file.
func WriteFlags(version int, name string) int { return writeFlags(version, name) }

// WithoutMessages makes the Reader read the threads' states from their files.
func (r *Reader) WithoutMessages() { r.statsOpened = true }

// States counts a cgroup's runnable threads by a message.
func (r *Reader) States(cgroup string) (uint64, bool) { return r.countByNetlink(cgroup) }

// Answer finds an attribute in a response to message 0.
func Answer(b []byte, wanted uint16) ([]byte, error) {
	return new(cgroupStats).parseResponse(b, wanted)
}

// ReadThreadFile reads the delay of a thread through its open file.
func (r *Reader) ReadThreadFile(tid uint32, f ThreadFile) (uint64, bool) {
	delay, _, ok := r.runDelay(tid, f)
	return delay, ok
}
