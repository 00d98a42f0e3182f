package main

import (
	"os"
	"time"
)

// wedged and crashing test the harness: a guest that hangs, and one whose kernel panics.
var (
	wedged = suite{
		name: "wedged", doc: "hangs",
		mount: mountV2,
		tests: []test{
			{"before", func(t *T) { t.Logf("all is well") }},
			{"hang", func(*T) { time.Sleep(time.Hour) }},
		},
	}
	crashing = suite{
		name: "crashing", doc: "has the kernel panic",
		mount: mountV2,
		tests: []test{{"panic", func(t *T) { t.Must(os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0)) }}},
	}
)
