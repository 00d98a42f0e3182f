package cgroup

import (
	"errors"

	"golang.org/x/sys/unix"
)

// OpenPressure opens a cgroup's pressure file of a resource: "cpu", "memory" or "io". It returns nil where there is none: on version 1, on
// kernels without pressure stall information, and where it was switched off for the cgroup.
func (h *Hierarchy) OpenPressure(resource, cgroup string) (*File, error) {
	const version = 2
	if h.Version(resource) != version {
		return nil, nil
	}
	f, err := h.Open(resource, cgroup, resource+".pressure")
	if Gone(err) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	return f, err
}

// NoPressure reports whether an error of reading a pressure file means that there is none, or none any more.
func NoPressure(err error) bool { return Gone(err) || errors.Is(err, unix.EOPNOTSUPP) }
