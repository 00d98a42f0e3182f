package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"polder/lib/tick"
)

// An error that lasts is logged once, although its numbers change with every tick; another one, or one that comes back, is logged.
func TestLastingErrorIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var l logger
	for _, step := range []struct {
		text   string
		logged bool
	}{
		{"the cgroup has 900 bytes that the kernel cannot drop", true},
		{"the cgroup has 1000 bytes that the kernel cannot drop", false},
		{"the cgroup has 1000 bytes that the kernel cannot drop", false},
		{"device or resource busy", true},
		{"", false},
		{"device or resource busy", true},
	} {
		out.Reset()
		var list []tick.IsolationError
		if step.text != "" {
			list = append(list, tick.IsolationError{Cgroup: "/a", Key: "memoryMaxBytes", Error: step.text})
		}
		l.logNew(log, list)
		if isLogged := strings.Contains(out.String(), "not as advised"); isLogged != step.logged {
			t.Errorf("%q: logged %q, want it logged: %v", step.text, out.String(), step.logged)
		}
	}
	out.Reset()
	l.logNew(log, []tick.IsolationError{{Cgroup: "/b", Key: "memoryMaxBytes", Error: "device or resource busy"}})
	if !strings.Contains(out.String(), "cgroup=/b") {
		t.Errorf("the same error of another cgroup: logged %q", out.String())
	}
}
