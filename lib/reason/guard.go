package reason

import (
	"fmt"
	"regexp"
)

// GuardStep is a step of the guard in force: what it takes from batch while services wait.
type GuardStep struct {
	Number       int    // of all steps in force, from 1
	Kind         string // of advice.guardSteps
	OfKind, Most int    // its number among the steps of its kind, and the most of these
	At           string // the time of day
	Because      string // what waited
}

// String returns the reason.
func (s GuardStep) String() string {
	return fmt.Sprintf("guard: step %d: %s taken from batch (%d of %d) at %s, because %s", s.Number, s.Kind, s.OfKind, s.Most, s.At, s.Because)
}

var guardStep = regexp.MustCompile(`^guard: step (\d+): (\w+) taken from batch \((\d+) of (\d+)\) at (\S+), because (.+)$`)

// ParseGuardStep reads a reason.
func ParseGuardStep(text string) (s GuardStep, ok bool) {
	m := guardStep.FindStringSubmatch(text)
	if m == nil {
		return s, false
	}
	return GuardStep{int(number(m[1])), m[2], int(number(m[3])), int(number(m[4])), m[5], m[6]}, true
}
