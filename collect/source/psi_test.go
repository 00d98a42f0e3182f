package source

import (
	"log/slog"
	"strings"
	"testing"

	"polder/tests/await"
)

// What version 1 and a kernel without PSI lack is one warning each, however often the machine is read; a machine with both has none.
func TestWhatTheMachineLacksIsLoggedOnce(t *testing.T) {
	const noPSI, v1 = "level=WARN msg=\"this kernel has no PSI: ", "level=WARN msg=\"this machine has cgroup version 1: "
	const line = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
	for _, tt := range []struct {
		name   string
		make   func(*testing.T) *machine
		hasPSI bool
		want   []string
	}{
		{"version 2", newMachine, true, nil},
		{"version 2 without PSI", newMachine, false, []string{noPSI}},
		{"version 1", newV1, true, []string{v1}},
		{"version 1 without PSI", newV1, false, []string{noPSI, v1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := tt.make(t)
			for _, resource := range []string{"cpu", "memory", "io"} {
				if tt.hasPSI {
					m.write("proc/pressure/"+resource, line)
				}
			}
			m.write(cpuV1+"/a/tasks", "") // cgroups without pressure
			m.cgroup("/b", "1")
			c := m.collector(waitRules)
			var log await.Log
			c.env.Log = slog.New(slog.NewTextHandler(&log, nil))
			for range 3 {
				c.Read(true)
			}
			if got := strings.Count(log.String(), "\n"); got != len(tt.want) {
				t.Errorf("%d lines; want %d:\n%s", got, len(tt.want), &log)
			}
			for _, want := range tt.want {
				if !strings.Contains(log.String(), want) {
					t.Errorf("log %s; want %q", &log, want)
				}
			}
		})
	}
}
