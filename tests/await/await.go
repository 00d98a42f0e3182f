// Package await is the only way for tests to wait: for a state, never for a time.
package await

import (
	"testing"
	"time"
)

// pause is the time between two polls of a state. After a longer poll, such as by a program, it is as long as that poll, within
// bounds: the awaited work may need the CPU.
const (
	pause     = 10 * time.Millisecond
	longPause = time.Second
)

// Until waits until lacks returns "": nothing is missing any more. After limit it fails the test with what was missing last. A
// limit is how long a busy machine may take, not how long the state usually takes: choose it generously.
func Until(t testing.TB, limit time.Duration, what string, lacks func() string) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; {
		begun := time.Now()
		missing := lacks()
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s: %s", limit, what, missing)
		}
		time.Sleep(min(max(pause, time.Since(begun)), longPause))
	}
}

// Is makes Until's function of a condition that has no details to report.
func Is(condition func() bool) func() string {
	return func() string {
		if condition() {
			return ""
		}
		return "it is not so yet"
	}
}

// During polls for span whether something is wrong, and fails the test with it. It is for what must not change during a time
// that another program measures, such as a hold-down; where an event can show that something did not happen, wait for that event.
func During(t testing.TB, span time.Duration, what string, wrong func() string) {
	t.Helper()
	for end := time.Now().Add(span); ; time.Sleep(pause) {
		if found := wrong(); found != "" {
			t.Fatalf("%s: %s", what, found)
		}
		if time.Now().After(end) {
			return
		}
	}
}
