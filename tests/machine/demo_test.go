// Package machine has the tests that measure the machine: nothing else is to run beside them.
package machine

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"polder/tests/binaries"
	"polder/tests/need"
)

// reclaimedColumn is the table's RECLAIMED of each line, in cores.
func reclaimedColumn(t *testing.T, table string) []float64 {
	t.Helper()
	var values []float64
	column := -1
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) > 0 && fields[0] == "TIME" {
			for i, f := range fields {
				if f == "RECLAIMED" {
					column = i
				}
			}
			continue
		}
		if column < 0 || column >= len(fields) {
			t.Fatalf("no column RECLAIMED in %q of %s", line, table)
		}
		if fields[column] == "-" { // a first reading is not decided on
			continue
		}
		v, err := strconv.ParseFloat(fields[column], 64)
		if err != nil {
			t.Fatalf("RECLAIMED: %v in %q", err, line)
		}
		values = append(values, v)
	}
	return values
}

func demo(t *testing.T, command ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "POLDER_BIN="+bin, "DEMO_SECONDS=12", "DEMO_PACE=0.1")
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("demo: %v: %s", err, &log)
	}
	return out.String(), log.String()
}

// idlePercent is how much of the machine did nothing for a second.
func idlePercent(t *testing.T) float64 {
	t.Helper()
	read := func() (idle, all float64) {
		data, err := os.ReadFile("/proc/stat")
		if err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(string(data), "\n")
		for i, field := range strings.Fields(line)[1:] {
			ticks, err := strconv.ParseFloat(field, 64)
			if err != nil {
				t.Fatal(err)
			}
			if all += ticks; i == 3 || i == 4 { // idle and iowait
				idle += ticks
			}
		}
		return idle, all
	}
	idle, all := read()
	time.Sleep(time.Second)
	idleThen, allThen := read()
	return 100 * (idleThen - idle) / max(allThen-all, 1)
}

// The demo on real cgroups: less is offered when the service gets busy, and nothing is left behind.
func TestDemo(t *testing.T) {
	need.Root(t)
	idle := idlePercent(t)
	out, log := demo(t, "../../scripts/demo")
	values := reclaimedColumn(t, out)
	if len(values) < 2 {
		t.Fatalf("%d lines in 12 s: %s%s", len(values), out, log)
	}
	// A busy machine has the demo begin late and tick seldom: only the order of calm and busy is certain.
	busiest := slices.Index(values, slices.Min(values))
	switch calm := slices.Max(values[:busiest+1]); {
	case idle < 75:
		t.Logf("%.0f%% of the machine are idle: other work leaves nothing to offer, and what is offered says nothing of the demo", idle)
	case values[busiest] > calm-0.25:
		t.Errorf("reclaimed %.2f cores at most before the service is busiest and %.2f then; want clearly less\n%s", calm, values[busiest], out)
	}
	if !strings.Contains(log, "restored") {
		t.Errorf("stderr = %q; want what was put back", log)
	}
	if left, _ := filepath.Glob("/sys/fs/cgroup/*/polder-demo-*"); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	if left := binaries.Running(t, bin, binaries.Tools...); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

// Where cgroups cannot be written the demo says so in one line and plays the recording of a 48-core node.
func TestDemoWithoutCgroups(t *testing.T) {
	need.Mount(t)
	readOnly := `for m in $(awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts) /sys/fs/cgroup; do mount -o remount,bind,ro "$m"; done; exec ../../scripts/demo`
	out, log := demo(t, "unshare", "--mount", "--propagation", "private", "sh", "-ec", readOnly)
	// What batch got is said of two ticks and more.
	says := regexp.MustCompile(`^demo: cgroups cannot be written here \(.*Read-only file system\): .*\n(demo: batch got .*\n)?$`)
	if !says.MatchString(log) {
		t.Errorf("stderr = %q; want one line that says why, and one of what batch got", log)
	}
	// At ten times its pace isolate drops ticks for newer ones, on a busy machine most of them.
	if values := reclaimedColumn(t, out); len(values) == 0 || values[0] < 20 {
		t.Errorf("reclaimed = %v; want ticks of a large node", values)
	}
}
