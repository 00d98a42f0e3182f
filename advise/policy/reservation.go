package policy

import (
	"fmt"

	"polder/lib/tick"
)

// Reservation is what the Node object reserves for the system: the machine's resources less allocatable.
type Reservation struct {
	MilliCPU    float64 `json:"milliCPU,omitempty"`
	MemoryBytes float64 `json:"memoryBytes,omitempty"`
}

// ReservationOf returns the Node object's reservation of a machine; if the object could not be read, the last one, which is nil if none was
// ever known, and why.
func ReservationOf(s *tick.Sample, milliCPU, memoryBytes float64, last *Reservation) (r *Reservation, why string) {
	switch {
	case !s.IsNodeUnread():
	case last == nil:
		return nil, "the Node object could not be read yet, so what it reserves is unknown"
	default:
		return last, fmt.Sprintf("the Node object could not be read: its last reservation of %.0fm and %.0f bytes still counts",
			Amount(&last.MilliCPU), Amount(&last.MemoryBytes))
	}
	r = &Reservation{}
	if s.Allocatable == nil {
		return r, ""
	}
	if cpu := s.Allocatable.MilliCPU; cpu != nil && *cpu >= 0 {
		r.MilliCPU = max(milliCPU-Bounded(*cpu), 0)
	}
	if memory := s.Allocatable.MemoryBytes; memory != nil {
		r.MemoryBytes = max(memoryBytes-Amount(memory), 0)
	}
	return r, ""
}
