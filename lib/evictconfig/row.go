package evictconfig

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"polder/lib/quantity"
)

// Row is one setting of a [Settings] value.
type Row struct {
	// Name is the name of its flag, and its key in the configuration file; Usage is its text in --help.
	Name, Usage string
	// Into points to the value: a *float64, *int, *bool, *time.Duration, *Bytes or *[]string.
	Into any
	// ReplacedBy names another setting with the same purpose. If this one is set, it takes precedence.
	ReplacedBy string
	// Fields are the fields of Katalyst's configuration objects that set it.
	Fields []Field
	value
}

// value is a setting's value, of any type.
type value interface {
	// Show formats the value.
	Show() string
	// Set sets it to a value of its own type, or reports false.
	Set(v any) bool
	copyFrom(value)
	get() any
	check() error
	reset()
}

// Copy copies the value of the same setting of other Settings.
func (r Row) Copy(from Row) { r.copyFrom(from.value) }

func (r Row) replacedBy(name string) Row {
	r.ReplacedBy = name
	return r
}

// typed is a value of one type.
type typed[T any] struct {
	into         *T
	defaultValue T
	bounds       bounds[T]
}

func (t *typed[T]) Show() string     { return fmt.Sprint(*t.into) }
func (t *typed[T]) get() any         { return *t.into }
func (t *typed[T]) copyFrom(v value) { *t.into = *v.(*typed[T]).into }
func (t *typed[T]) reset()           { *t.into = t.defaultValue }

func (t *typed[T]) Set(v any) bool {
	x, ok := v.(T)
	if ok {
		*t.into = x
	}
	return ok
}

func (t *typed[T]) check() error {
	if t.bounds.check == nil {
		return nil
	}
	return t.bounds.check(*t.into)
}

// row creates a setting whose fields are converted by read, unless they have a form of their own; expected describes a field's valid
// values.
func row[T any](
	name string, into *T, defaultValue T, b bounds[T], usage string, fields []Field, expected string, read func(any) (any, error),
) Row {
	for i := range fields {
		if fields[i].Read == nil {
			fields[i].Expected, fields[i].Read = expected, read
		}
	}
	return Row{Name: name, Usage: usage, Into: into, Fields: fields, value: &typed[T]{into, defaultValue, b}}
}

func number(name string, into *float64, defaultValue float64, b bounds[float64], usage string, fields ...Field) Row {
	return row(name, into, defaultValue, b, usage, fields, b.expected, readNumber(b))
}

// hysteresis returns the part of a rule's thresholds by which a value must have moved back before they are no longer met.
func hysteresis(of string, into *float64) Row {
	return number(of+"-hysteresis", into, 0, fraction,
		"once met, the thresholds of "+of+"-* stay met until the value is back by this part of them, 0 to 1")
}

func count(name string, into *int, defaultValue int, b bounds[int], usage string, fields ...Field) Row {
	return row(name, into, defaultValue, b, usage, fields, "a whole number from "+b.expected, readInteger(b))
}

// span returns a time span; its fields are in seconds.
func span(name string, into *time.Duration, defaultValue time.Duration, b bounds[time.Duration], usage string, fields ...Field) Row {
	return row(name, into, defaultValue, b, usage, fields, fmt.Sprintf("seconds, 0 to %d", day), readSeconds(0))
}

// grace returns a grace period. In a field -1 means the pod's own, and so does 0: every pod gets one.
func grace(name string, into *time.Duration, defaultValue time.Duration, usage string, fields ...Field) Row {
	return row(name, into, defaultValue, upToDay, usage, fields, fmt.Sprintf("seconds, -1 to %d; -1 and 0 are the pod's own", day), readSeconds(-1))
}

func onOff(name string, into *bool, defaultValue bool, usage string, fields ...Field) Row {
	return row(name, into, defaultValue, bounds[bool]{}, usage, fields, "true or false", ReadBool)
}

func amount(name string, into *Bytes, usage string, fields ...Field) Row {
	return row(name, into, 0, nonNegativeBytes, usage, fields, "an amount of memory, such as 2Gi", func(v any) (any, error) {
		n, err := quantity.Integer(v)
		return Bytes(n), err
	})
}

// texts returns a list; %s in its usage stands for the default, which flags of this kind do not show.
func texts(name string, into *[]string, defaultValue []string, b bounds[[]string], usage string, fields ...Field) Row {
	usage = strings.Replace(usage, "%s", strings.Join(defaultValue, ","), 1)
	return row(name, into, slices.Clone(defaultValue), b, usage, fields, "", nil)
}

// Bytes is an amount of memory.
type Bytes = quantity.Bytes
