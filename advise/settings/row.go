package settings

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"polder/advise/class"
	"polder/advise/guard"
	"polder/lib/choice"
	"polder/lib/config"
	"polder/lib/cpus"
	"polder/lib/quantity"
)

// Row is one setting of a [Settings] value.
type Row struct {
	// Name is the name of its flag, and its key in the configuration file; Usage is its text in --help.
	Name, Usage string
	// Default is the text of --help: the value, unless the default depends on the machine or on the policy.
	Default string
	// Format describes the valid values, with their unit; Words lists them all if they can be listed.
	Format string
	Words  []string
	// Policy is the only policy that has it; empty if all have it.
	Policy string
	// Katalyst names the field of AdminQoSConfiguration that sets it if no flag and no file does; Koordinator names that project's equivalent.
	Katalyst, Koordinator string

	Value
}

// Value is a setting's value of any type.
type Value interface {
	// Set reads it, and rejects a value that is out of bounds.
	Set(text string) error
	String() string
	UnmarshalYAML(*config.Node) error
	copyFrom(Value)
}

// Copy copies the value of the same setting from other Settings.
func (r Row) Copy(from Row) { r.copyFrom(from.Value) }

// withDefaultText returns a row with another text for its default.
func (r Row) withDefaultText(text string) Row {
	r.Default = text
	return r
}

// typed is a value of one type, read and formatted as text.
type typed[T any] struct {
	into *T
	read func(string) (T, error)
	show func(T) string
}

func (t *typed[T]) Set(text string) error {
	v, err := t.read(text)
	if err == nil {
		*t.into = v
	}
	return err
}

// String returns nothing for the zero typed, which package flag creates.
func (t *typed[T]) String() string {
	if t.into == nil {
		return ""
	}
	return t.show(*t.into)
}

func (t *typed[T]) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, t.Set) }

func (t *typed[T]) copyFrom(v Value) { *t.into = *v.(*typed[T]).into }

func row[T any](name string, into *T, format string, read func(string) (T, error), show func(T) string, usage string) Row {
	v := &typed[T]{into, read, show}
	return Row{Name: name, Usage: usage, Default: v.String(), Format: format, Value: v}
}

func unchanged(text string) string { return text }

// oneOf is a setting whose value is one of some words.
func oneOf(name string, into *string, words []string, usage string) Row {
	r := row(name, into, strings.Join(words, ", "), func(text string) (string, error) {
		return text, choice.Check(text, words)
	}, unchanged, usage)
	r.Words = words
	return r
}

// onOff is a setting that is on or off.
func onOff(name string, into *bool, usage string) Row {
	r := row(name, into, strings.Join(guard.Modes, ", "), func(text string) (bool, error) {
		return text == guard.On, choice.Check(text, guard.Modes)
	}, func(isOn bool) string {
		if isOn {
			return guard.On
		}
		return guard.Off
	}, usage)
	r.Words = guard.Modes
	return r
}

func cpuList(name string, into *string, usage string) Row {
	return row(name, into, "a list of CPUs, such as 0-1,24", func(text string) (string, error) {
		set, err := cpus.Parse(text)
		return set.String(), err
	}, unchanged, usage)
}

func milliCPU(name string, into *int64, usage string) Row {
	return row(name, into, "cores (4, 0.5) or milli-CPU (500m)", func(text string) (int64, error) {
		var m config.MilliCPU
		err := m.Set(text)
		return int64(m), err
	}, func(v int64) string { return config.MilliCPU(v).String() }, usage)
}

func bytes(name string, into *int64, usage string) Row {
	return row(name, into, "bytes, or a number with Ki, Mi, Gi or Ti", func(text string) (int64, error) {
		var b quantity.Bytes
		err := b.Set(text)
		return int64(b), err
	}, func(v int64) string { return quantity.Bytes(v).String() }, usage)
}

func duration(name string, into *time.Duration, usage string) Row {
	r := row(name, into, "a time span, such as 30s or 5m", func(text string) (time.Duration, error) {
		var d config.Duration
		err := d.Set(text)
		return time.Duration(d), err
	}, time.Duration.String, usage)
	if short, ok := strings.CutSuffix(r.Default, "m0s"); ok {
		r.Default = short + "m"
	}
	return r
}

func whole(name string, into *int, usage string) Row {
	return row(name, into, "a whole number from 1", func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("%q is not a whole number from 1", text)
		}
		return n, nil
	}, strconv.Itoa, usage)
}

// factor is a factor of weights; the kernel's largest cpu.weight is 100 times the default one.
func factor(name string, into *int, usage string) Row {
	const maximum = 100
	return row(name, into, "a whole number from 1 to 100", func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maximum {
			return 0, fmt.Errorf("%q is not a whole number from 1 to %d", text, maximum)
		}
		return n, nil
	}, strconv.Itoa, usage)
}

// resched is an interval at which isolate wakes its threads; [class.ReschedOnSmallMachines] has no text.
func resched(name string, into *time.Duration, usage string) Row {
	const minimum, maximum = 200 * time.Microsecond, 10 * time.Millisecond
	format := fmt.Sprintf("a time span from %s to %s, or 0s", minimum, maximum)
	return row(name, into, format, func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil || d != 0 && (d < minimum || d > maximum) {
			return 0, fmt.Errorf("%q: want %s", text, format)
		}
		return d, nil
	}, func(d time.Duration) string {
		if d == class.ReschedOnSmallMachines {
			return ""
		}
		return d.String()
	}, usage)
}

func number(name string, into *float64, usage string) Row {
	const maximum = 1e6
	return row(name, into, "a number from 0 to 1000000", func(text string) (float64, error) {
		f, err := numberWithin(text, maximum)
		if err != nil {
			return 0, fmt.Errorf("%q is not a number from 0 to 1000000", text)
		}
		return f, nil
	}, formatNumber, usage)
}

// part is a part of a whole, written as a percentage.
func part(name string, into *float64, usage string) Row {
	const format = "a percentage from 0% to 100%"
	return row(name, into, format, func(text string) (float64, error) {
		digits, isPercent := strings.CutSuffix(text, "%")
		f, err := numberWithin(digits, 100)
		if err != nil || !isPercent {
			return 0, fmt.Errorf("%q: want %s", text, format)
		}
		return f / 100, nil
	}, func(v float64) string { return formatNumber(100*v) + "%" }, usage)
}

// permille is a number of thousandths of the time.
func permille(name string, into *float64, usage string) Row {
	const maximum, format = 100_000, "thousandths of the time, above 0 and up to 100000"
	return row(name, into, format, func(text string) (float64, error) {
		f, err := numberWithin(text, maximum)
		if err != nil || f == 0 {
			return 0, fmt.Errorf("%q: want %s (a hundred threads that wait all the time)", text, format)
		}
		return f, nil
	}, formatNumber, usage)
}

var errBounds = errors.New("out of bounds")

// numberWithin reads a number from 0 to maximum. It rejects NaN, because each comparison with it is false.
func numberWithin(text string, maximum float64) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err == nil && !(f >= 0 && f <= maximum) {
		err = errBounds
	}
	return math.Abs(f), err // a 0 may have a sign
}

func formatNumber(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
