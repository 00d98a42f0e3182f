package cgroup

import (
	"errors"
	"testing"
)

// Only a hierarchy for any names accepts control characters, and neither accepts a path that leads elsewhere.
func TestPathsAreChecked(t *testing.T) {
	h, base := copyOfV2(t)
	put(t, base+"/a\x01/cpu.weight", "100\n")
	put(t, base+"/a\xff/cpu.weight", "100\n")
	for path, accepts := range map[string][2]bool{
		"/a\xff": {true, true}, "/a\x01": {false, true}, "/a\n": {}, "/a\x00": {}, "a": {}, "/../a": {}, "/a/": {}, "/a/..": {}, "": {},
	} {
		for i, h := range []*Hierarchy{h, h.WithAnyNames()} {
			_, readErr := h.ReadFile("cpu", path, "cpu.weight")
			_, _, dirErr := h.Dir("cpu", path)
			writeErr := h.WriteFile("cpu", path, "cpu.weight", "100")
			for _, err := range []error{readErr, dirErr, writeErr} {
				if isRefused := errors.Is(err, ErrPath); isRefused == accepts[i] || err != nil && !isRefused {
					t.Errorf("%q with any names %v: %v; want it accepted: %v", path, i == 1, err, accepts[i])
				}
			}
		}
	}
}

func TestShownPath(t *testing.T) {
	for path, want := range map[string]string{
		"/a": "/a", "/naïve 日本": "/naïve 日本", "/a\x1b[2J": `"/a\x1b[2J"`, "/a\xff": `"/a\xff"`,
		"/a\u0085": `"/a\u0085"`, "/a\u202eb": `"/a\u202eb"`,
	} {
		if got := ShownPath(path); got != want {
			t.Errorf("ShownPath(%q) = %s, want %s", path, got, want)
		}
	}
}
