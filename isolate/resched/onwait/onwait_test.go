package onwait

import (
	"testing"

	"polder/tests/need"
)

// This machine's kernel accepts the program, and runs it until the process ends.
func TestWatch(t *testing.T) {
	need.BPF(t)
	w, err := New([]int{0})
	if err != nil {
		t.Fatal(err)
	}
	if w.Events(0) == nil || w.Events(1) != nil {
		t.Errorf("events of the CPUs 0 and 1: %v, %v", w.Events(0), w.Events(1))
	}
	if err := w.Attach(); err != nil {
		t.Fatal(err)
	}
}
