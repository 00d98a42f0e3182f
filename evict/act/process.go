package act

import (
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/runc/libcontainer/system"
	"golang.org/x/sys/unix"

	"polder/lib/cgroup"
)

// process is a PID with its start time: the PID alone may belong to another process by the time a signal is sent.
type process struct {
	pid   int
	start uint64
}

// Target is the chosen cgroup. A later one of the same name has another inode, and is not the target.
type Target struct {
	Path  string
	Inode uint64 // 0 if unknown
}

// InodeOf returns the inode of a cgroup for a [Target]; 0 if it cannot be read.
func InodeOf(h *cgroup.Hierarchy, action, path string) uint64 {
	controller := ""
	if action == FreezePods {
		controller = freezer
	}
	inode, err := h.InodeIn(controller, path)
	if err != nil {
		return 0
	}
	return inode
}

// isReplaced reports whether another cgroup has that name now.
func (c Target) isReplaced(h *cgroup.Hierarchy, controller string) bool {
	if c.Inode == 0 {
		return false
	}
	inode, err := h.InodeIn(controller, c.Path)
	return err == nil && inode != c.Inode
}

// listProcesses returns the living processes of a cgroup and its descendants; none if the cgroup was removed or replaced. A PID counts if
// it is in the cgroup both before and after its start time was read, so that the start time belongs to the cgroup's process and not
// to a later process with the same PID.
func listProcesses(h *cgroup.Hierarchy, c Target) ([]process, error) {
	path := c.Path
	before, err := h.PIDs("", path)
	if cgroup.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the processes of %s: %w", path, err)
	}
	if err := checkProtectedProcesses(path, before); err != nil {
		return nil, err
	}
	var found []process
	for _, pid := range before {
		stat, err := system.Stat(pid)
		if err != nil || stat.State == system.Zombie || stat.State == system.Dead {
			continue // it has ended; if only /proc could not be read, it is still in the cgroup and gets the signal later
		}
		found = append(found, process{pid, stat.StartTime})
	}
	after, err := h.PIDs("", path)
	if cgroup.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the processes of %s: %w", path, err)
	}
	if c.isReplaced(h, "") { // checked last: the kernel never reuses an inode, so the lists belong to the target
		return nil, nil
	}
	return slices.DeleteFunc(found, func(p process) bool { return !slices.Contains(after, p.pid) }), nil
}

// signal sends sig through a pidfd, which never refers to another process.
func (p process) signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // the latter on newer kernels
		// A thread: threaded cgroups list those. Its process is in an ancestor cgroup of the same pod, and gets the signal there.
		return nil
	case errors.Is(err, unix.ENOSYS): // Linux before 5.3
		if !p.stillExists() {
			return nil
		}
		return p.wrapError(sig, unix.Kill(p.pid, sig))
	case err != nil:
		return p.wrapError(sig, err)
	}
	defer unix.Close(fd)
	if !p.stillExists() { // checked while the pidfd is open: only the listed process can get the signal
		return nil
	}
	return p.wrapError(sig, unix.PidfdSendSignal(fd, sig, nil, 0))
}

func (p process) stillExists() bool {
	stat, err := system.Stat(p.pid)
	return err == nil && stat.StartTime == p.start
}

func (p process) wrapError(sig unix.Signal, err error) error {
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return fmt.Errorf("send %s to process %d: %w", unix.SignalName(sig), p.pid, err)
}

// signalAll sends a signal to each process, and returns how many got it or had already ended.
func signalAll(processes []process, sig unix.Signal) (sent int, err error) {
	var errs []error
	for _, p := range processes {
		if err := p.signal(sig); err != nil {
			errs = append(errs, err)
		} else {
			sent++
		}
	}
	return sent, errors.Join(errs...)
}
