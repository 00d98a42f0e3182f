package view

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"polder/lib/tick"
)

// FuzzViews draws arbitrary ticks: no text of theirs moves the cursor, and none begins a line of the metrics.
func FuzzViews(f *testing.F) {
	for _, seed := range []string{
		`"sample":{"topology":{"cpus":"0-7","cores":["0-1"]},"pods":[{"uid":"u","name":"a\n\u001b[2J\u009b","qos":"shared","cgroup":"/x\u0007","usageMilliCPU":1e308}]},"advice":{"policy":"\u001b","pools":[{"name":"share\n","cpus":"0-3"}],"reasons":["\r"]}`,
		`"sample":{"topology":{"cpus":"0-8191"},"memory":{"totalBytes":-1,"freeBytes":1e308},"cpu":{"load1":-1e308}},"advice":{"reclaimed":{"milliCPU":-9223372036854775808}}`,
		`"isolation":{"applied":-1,"unchanged":0,"writes":[{"cgroup":"\u202e","key":"\t"}]},"eviction":{"evictions":[{"state":"\u001b"}],"pressures":[{"rule":"\"} 1\nx","value":1e308}],"taints":[{"key":"\u0000"}]}`,
		`"x":1`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, sections string) {
		line, err := tick.ParseLine([]byte(`{"v":1,"node":"n","time":"2026-01-01T00:00:00Z",` + sections + `}`))
		if err != nil {
			return
		}
		x, err := line.Decode(tick.SectionSample, tick.SectionAdvice, tick.SectionIsolation, tick.SectionEviction)
		if err != nil {
			return
		}
		m, now := model([]*tick.Tick{x, x}, time.Second)
		text := TableLine(x, "") + "\n" + strings.Join(Frame(m, Look{Width: 80, Height: 24}, now), "\n")
		for _, r := range text {
			if r == utf8.RuneError || r < 0x20 && r != '\n' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e {
				t.Fatalf("%q of %s is on the screen", r, sections)
			}
		}
		var metrics Metrics
		metrics.Add(x)
		page, _ := metrics.Page()
		for line := range strings.Lines(page) {
			if !strings.HasPrefix(line, "polder_") && !strings.HasPrefix(line, "# ") || !strings.HasSuffix(line, "\n") {
				t.Fatalf("%s: the metrics have the line %q", sections, line)
			}
		}
	})
}
