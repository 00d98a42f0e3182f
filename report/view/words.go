package view

import (
	"time"

	"polder/lib/tick"
)

// Cores writes milli-CPU as cores, "-" where it is unknown.
func Cores(milli *float64) string { return cores(milli) }

// Bytes writes an amount of memory with a binary unit, "-" where it is unknown.
func Bytes(v *float64) string { return bytes(v) }

// Span writes a duration with one or two units.
func Span(d time.Duration) string { return span(d) }

// Clean makes text from a tick fit for a terminal.
func Clean(s string) string { return clean(s) }

// Name is a pod's name with its namespace, fit for a terminal.
func Name(namespace, name string) string { return qualified(namespace, name) }

// StateWord is the state of an eviction in words.
func StateWord(state string) string { return stateWord(state) }

// Places shows for the pods of a tick where each may run, how much, and in which scheduling class.
func Places(t *tick.Tick) func(*tick.Pod) string {
	m := &Model{Tick: t}
	limits, sets := m.limits(), m.sets()
	return func(p *tick.Pod) string { return confinement(p, limits, sets) }
}
