// Package pressure parses the kernel's pressure files, the machine's and those of cgroups (Documentation/accounting/psi.rst).
package pressure

import (
	"errors"
	"fmt"

	"polder/lib/kernfile"
	"polder/lib/tick"
)

// File is what a pressure file says, as a sample has it, with the memory that the lines are in: it must not be copied. The zero value says
// nothing.
type File struct {
	pressure   tick.Pressure
	some, full tick.PressureLine
}

// Value is the part of a sample, nil where the file says nothing. It changes with the next [File.Parse].
func (f *File) Value() *tick.Pressure {
	if f.pressure.Some == nil && f.pressure.Full == nil {
		return nil
	}
	return &f.pressure
}

// Parse parses a file: "some avg10=0.00 avg60=0.00 avg300=0.00 total=0", and the same for full. Where it cannot be parsed it says nothing.
func (f *File) Parse(data []byte) error {
	f.pressure = tick.Pressure{}
	for len(data) > 0 {
		var line []byte
		line, data = kernfile.Line(data)
		name, rest := kernfile.Field(line)
		var into *tick.PressureLine
		switch string(name) {
		case "some":
			into, f.pressure.Some = &f.some, &f.some
		case "full":
			into, f.pressure.Full = &f.full, &f.full
		default:
			continue // of a later kernel
		}
		if !parseLine(rest, into) {
			f.pressure = tick.Pressure{}
			return fmt.Errorf("line %q: want avg10=, avg60=, avg300= and total=", kernfile.Clip(line))
		}
	}
	if f.Value() == nil {
		return errors.New("no line some or full")
	}
	return nil
}

// Forget has the file say nothing.
func (f *File) Forget() { f.pressure = tick.Pressure{} }

func parseLine(rest []byte, l *tick.PressureLine) bool {
	*l = tick.PressureLine{}
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
