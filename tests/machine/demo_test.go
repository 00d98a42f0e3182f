// Package machine has the tests that measure the machine: nothing else is to run beside them.
package machine

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"polder/tests/binaries"
	"polder/tests/need"
	"polder/tests/pages"
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
		if fields[column] == "-" { // nothing is decided at a first reading
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

// buildLoad compiles the demo's service, which is also its client.
func buildLoad(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "load")
	if out, err := exec.Command("go", "build", "-o", path, "../colocation/load").CombinedOutput(); err != nil {
		t.Fatalf("build the demo's service: %v\n%s", err, out)
	}
	return path
}

func demo(t *testing.T, command ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "POLDER_BIN="+bin, "DEMO_LOAD="+buildLoad(t), "DEMO_SECONDS=4", "DEMO_TICKS=12", "DEMO_PACE=0.1")
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("demo: %v: %s", err, &log)
	}
	return out.String(), log.String()
}

// onPage returns the command of a page that is run in the checkout and begins with this text, as it is typed there.
func onPage(t *testing.T, begins string) string {
	t.Helper()
	blocks, err := pages.Marked("checkout")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		for _, x := range b.Examples {
			if strings.HasPrefix(x.Command, begins) {
				return "cd ../.. && " + x.Command
			}
		}
	}
	t.Fatalf("no page has a command that begins with %q", begins)
	return ""
}

// The commands of docs that are run in the checkout run as they are written. TestDemo covers the demo's.
func TestCheckoutPages(t *testing.T) {
	blocks, err := pages.Marked("checkout")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, b := range blocks {
		for _, x := range b.Examples {
			if strings.HasPrefix(x.Command, "make demo") {
				continue
			}
			if out, err := exec.Command("bash", "-c", onPage(t, x.Command)).CombinedOutput(); err != nil {
				t.Errorf("%s:%d: %s: %v\n%s", b.Page, x.Line, x.Command, err, out)
			}
			ran++
		}
	}
	if ran != 1 {
		t.Errorf("%d commands ran; want one: is it still found?", ran)
	}
	for _, tool := range binaries.Tools {
		if out, err := exec.Command("../../bin/"+tool, "--version").CombinedOutput(); err != nil {
			t.Errorf("bin/%s --version: %v\n%s", tool, err, out)
		}
	}
}

// TestDemo runs README's own command on real cgroups: its table has the service's latency and batch's usage in each of the three parts, the
// values come from real work, and nothing is left behind. How large they are is measured by bench-colocation on a quiet machine.
func TestDemo(t *testing.T) {
	need.Root(t)
	out, log := demo(t, "bash", "-c", onPage(t, "make demo"))
	out = out[max(0, strings.Index(out, "TIME ")):] // make prints what it builds
	_, table, _ := strings.Cut(out, "machine busy\n")
	row := regexp.MustCompile(`^(alone|unmanaged|with Polder) +([0-9.]+) +([0-9.]+) +([0-9.]+) +([0-9]+) %$`)
	batch := map[string]float64{}
	for line := range strings.Lines(table) {
		m := row.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue
		}
		var values []float64
		for _, field := range m[2:] {
			v, err := strconv.ParseFloat(field, 64)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, v)
		}
		batch[m[1]] = values[2]
		if p50, p99, busy := values[0], values[1], values[3]; p50 <= 0 || p99 < p50 || busy <= 0 || busy > 105 { // the kernel counts in steps of 10 ms
			t.Errorf("%q: want a p50 and a p99 that are not less, and how busy the machine was", line)
		}
	}
	// If other work takes all of the machine, the idle class leaves nothing for batch, and the demo reports it.
	others := strings.Contains(out, "this machine had other work to do as well")
	if len(batch) != 3 || batch["alone"] != 0 || batch["unmanaged"] <= 0 || batch["with Polder"] <= 0 && !others {
		t.Errorf("batch CPUs %v; want none alone, and some in both other parts\n%s%s", batch, out, log)
	}
	const restored = "everything was restored: the cgroups of the service and the batch job are as they were"
	if !strings.HasSuffix(strings.TrimSpace(table), restored) {
		t.Errorf("the last line of %s does not report that everything was restored", out)
	}
	if !strings.Contains(log, "restored ") {
		t.Errorf("stderr = %q; want what was restored", log)
	}
	if reclaimed := reclaimedColumn(t, out[:strings.Index(out, "\n\n")+1]); len(reclaimed) == 0 {
		t.Errorf("no tick has an offer: %s", out)
	}
	for _, where := range []string{"/sys/fs/cgroup/*/polder-demo-*", "/sys/fs/cgroup/polder-demo-*"} { // versions 1 and 2
		if left, _ := filepath.Glob(where); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	}
	if left := binaries.Running(t, bin, binaries.Tools...); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

// Where cgroups cannot be written the demo prints the reason in one line and plays the recording of a 48-core node.
func TestDemoWithoutCgroups(t *testing.T) {
	need.Mount(t)
	readOnly := `for m in $(awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts) /sys/fs/cgroup; do mount -o remount,bind,ro "$m"; done; exec ../../scripts/demo`
	// Once the demo has removed its directory, another user creates one of the same name, with a link to a file of root's.
	attack, tmp, victim := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "victim")
	rm := `#!/bin/sh
/bin/rm "$@"
for last; do :; done
[ ! -e "$VICTIM.linked" ] && case $last in "$TMPDIR"/demo.*)
	mkdir -p "$last/sys/fs/cgroup/cpuset" && ln -s "$VICTIM" "$last/sys/fs/cgroup/cpuset/cpuset.cpus" && echo "$last" >"$VICTIM.linked" ;;
esac
`
	if err := os.WriteFile(filepath.Join(attack, "rm"), []byte(rm), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(victim, []byte("root's\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, log := demo(t, "env", "PATH="+attack+":"+os.Getenv("PATH"), "TMPDIR="+tmp, "VICTIM="+victim,
		"unshare", "--mount", "--propagation", "private", "sh", "-ec", readOnly)
	linked, err := os.ReadFile(victim + ".linked")
	if err != nil {
		t.Fatalf("the demo removed no directory: %v", err)
	}
	if data, err := os.ReadFile(victim); err != nil || string(data) != "root's\n" {
		t.Errorf("the demo wrote through another user's link: %q (%v)", data, err)
	}
	if left, err := filepath.Glob(tmp + "/*"); err != nil || len(left) != 1 || left[0]+"\n" != string(linked) {
		t.Errorf("the demo left %q (%v); want only the other user's %q", left, err, linked)
	}
	// The demo reports batch's usage from two ticks on.
	want := regexp.MustCompile(`^demo: cgroups cannot be written here \(.*Read-only file system\): .*\n(demo: batch got .*\n)?$`)
	if !want.MatchString(log) {
		t.Errorf("stderr = %q; want one line with the reason, and one with batch's usage", log)
	}
	// At ten times its pace isolate drops ticks for newer ones, on a busy machine most of them.
	if values := reclaimedColumn(t, out); len(values) == 0 || values[0] < 20 {
		t.Errorf("reclaimed = %v; want ticks of a large node", values)
	}
}
