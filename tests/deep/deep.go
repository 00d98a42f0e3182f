// Package deep selects how long the tests run: `make test` shows that a feature works, `make test-deep` looks for what
// happens one time in a thousand.
package deep

import "os"

// Variable is set to 1 for the long form of the tests.
const Variable = "POLDER_DEEP"

// Wanted reports whether tests run in their long form.
func Wanted() bool { return os.Getenv(Variable) == "1" }

// Or returns long in the long form of the tests, and short otherwise: a number of rounds, a time.
func Or[T any](short, long T) T {
	if Wanted() {
		return long
	}
	return short
}
