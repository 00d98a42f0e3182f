package cgroup

import (
	"errors"

	"golang.org/x/sys/unix"
)

// OpenPressure opens a cgroup's pressure file of a resource: "cpu", "memory" or "io". It returns nil if there is none: on version 1, on
// kernels without pressure stall information, and if it was disabled for the cgroup.
func (h *Hierarchy) OpenPressure(resource, cgroup string) (*File, error) {
	return h.openV2(resource, cgroup, resource+".pressure")
}

// openV2 opens a file that only version 2 has. It returns nil if there is none, or if it was disabled for the cgroup.
func (h *Hierarchy) openV2(controller, cgroup, name string) (*File, error) {
	if h.Version(controller) != 2 {
		return nil, nil
	}
	f, err := h.Open(controller, cgroup, name)
	if IsPressureMissing(err) {
		return nil, nil
	}
	return f, err
}

// IsPressureMissing reports whether an error of reading a pressure file means that the file does not exist (any more).
func IsPressureMissing(err error) bool { return IsGone(err) || errors.Is(err, unix.EOPNOTSUPP) }
