package cgroup

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"polder/lib/kernfile"
)

// PressureLine is one line of a pressure file: shares of time in percent, and the total in microseconds.
type PressureLine struct {
	Avg10, Avg60, Avg300 float64
	TotalMicroseconds    uint64
}

// Pressure is a cgroup's pressure file (Documentation/accounting/psi.rst); the lines that it does not have are not set.
type Pressure struct {
	Some, Full       PressureLine
	HasSome, HasFull bool
}

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

// NoPressure reports whether an error of reading a pressure file says that there is none (any more).
func NoPressure(err error) bool { return Gone(err) || errors.Is(err, unix.EOPNOTSUPP) }

// Parse parses a pressure file: "some avg10=0.00 avg60=0.00 avg300=0.00 total=0", and the same for full.
func (p *Pressure) Parse(data []byte) error {
	*p = Pressure{}
	for len(data) > 0 {
		var line []byte
		line, data = kernfile.Line(data)
		name, rest := kernfile.Field(line)
		var into *PressureLine
		switch string(name) {
		case "some":
			into, p.HasSome = &p.Some, true
		case "full":
			into, p.HasFull = &p.Full, true
		default:
			continue // of a later kernel
		}
		if !into.parse(rest) {
			*p = Pressure{}
			return fmt.Errorf("line %q: want avg10=, avg60=, avg300= and total=", kernfile.Clip(line))
		}
	}
	if !p.HasSome && !p.HasFull {
		return errors.New("no line some or full")
	}
	return nil
}

func (l *PressureLine) parse(rest []byte) bool {
	var field []byte
	for _, into := range []struct {
		name string
		to   *float64
	}{{"avg10=", &l.Avg10}, {"avg60=", &l.Avg60}, {"avg300=", &l.Avg300}} {
		field, rest = kernfile.Field(rest)
		n := len(into.name)
		if len(field) < n || string(field[:n]) != into.name || !percent(field[n:], into.to) {
			return false
		}
	}
	const total = "total="
	field, _ = kernfile.Field(rest)
	if len(field) < len(total) || string(field[:len(total)]) != total {
		return false
	}
	var ok bool
	l.TotalMicroseconds, ok = kernfile.Uint(field[len(total):])
	return ok
}

// percent reads the kernel's "12.34": whole, a point and two digits, 0 to 100.
func percent(text []byte, into *float64) bool {
	point := len(text) - 3
	if point < 1 || text[point] != '.' {
		return false
	}
	whole, okWhole := kernfile.Uint(text[:point])
	hundredths, okHundredths := kernfile.Uint(text[point+1:])
	if !okWhole || !okHundredths || whole > 100 || whole == 100 && hundredths > 0 {
		return false
	}
	*into = float64(whole*100+hundredths) / 100
	return true
}
