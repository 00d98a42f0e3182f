package host

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"polder/lib/kernfile"
	"polder/lib/tick"
)

// Pressure is a pressure file of the machine or of a cgroup (Documentation/accounting/psi.rst) as a tick has it, with the memory of its
// lines: a copy points into the original. Lines that the file does not have are nil.
type Pressure struct {
	tick.Pressure
	some, full tick.PressureLine
}

// Forget removes all lines.
func (p *Pressure) Forget() { p.Some, p.Full = nil, nil }

// IsKnown reports whether there is any line.
func (p *Pressure) IsKnown() bool { return p.Some != nil || p.Full != nil }

// ErrNoPressure is wrapped where the kernel has no pressure stall information: older than 4.20, built without it, or
// started with psi=0.
var ErrNoPressure = errors.New("no pressure stall information (kernel older than 4.20, or psi=0)")

// ReadPressure reads /proc/pressure/RESOURCE ("cpu", "memory").
func (h *Host) ReadPressure(resource string, into *Pressure) error {
	path := "proc/pressure/" + resource
	data, err := h.read(path)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("read %s pressure: %w", resource, ErrNoPressure)
	case err != nil:
		return fmt.Errorf("read %s pressure: %w", resource, err)
	}
	if err := into.Parse(data); err != nil {
		return fmt.Errorf("read %s: %w", h.Path(path), err)
	}
	return nil
}

// Parse parses a pressure file: "some avg10=0.00 avg60=0.00 avg300=0.00 total=0", and the same for full.
func (p *Pressure) Parse(data []byte) error {
	p.Forget()
	for len(data) > 0 {
		var line []byte
		line, data = kernfile.Line(data)
		name, rest := kernfile.Field(line)
		var into *tick.PressureLine
		switch string(name) {
		case "some":
			p.Some, into = &p.some, &p.some
		case "full":
			p.Full, into = &p.full, &p.full
		default:
			continue // of a later kernel
		}
		if !parsePressureLine(rest, into) {
			p.Forget()
			return fmt.Errorf("line %q: want avg10=, avg60=, avg300= and total=", kernfile.Clip(line))
		}
	}
	if !p.IsKnown() {
		return errors.New("no line some or full")
	}
	return nil
}

func parsePressureLine(rest []byte, l *tick.PressureLine) bool {
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
	microseconds, ok := kernfile.Uint(field[len(total):])
	l.TotalMicroseconds = float64(microseconds)
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
