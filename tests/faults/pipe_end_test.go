package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"polder/tests/await"
	"polder/tests/binaries"
	"polder/tests/group"
	"polder/tests/need"
)

// plainPipe starts commands that are joined by pipes and nothing else, and returns them by their names.
func plainPipe(t *testing.T, commands ...[]string) map[string]*exec.Cmd {
	t.Helper()
	running := map[string]*exec.Cmd{}
	var in *os.File
	for i, args := range commands {
		path := args[0]
		if slices.Contains(binaries.Tools, path) {
			path = filepath.Join(bin, path)
		}
		c := exec.Command(path, args[1:]...)
		if in != nil {
			c.Stdin = in
		}
		var next, out *os.File
		if i < len(commands)-1 {
			var err error
			if next, out, err = os.Pipe(); err != nil {
				t.Fatal(err)
			}
			c.Stdout = out
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill() })
		if in != nil {
			in.Close()
		}
		if out != nil {
			out.Close()
		}
		in, running[args[0]] = next, c
	}
	return running
}

// In a plain pipe a neighbour's end also ends isolate, and the fallback of the last advice applies then; a signal to isolate, and
// --at-end keep, leave the current values.
func TestPlainPipeEndsInTheFallback(t *testing.T) {
	need.Program(t, "jq", "jq")
	top := group.New(t, nil, "pipe-end")
	for i, tt := range []struct {
		dies   string
		signal syscall.Signal
		flags  string
		falls  bool
	}{
		{"collect", syscall.SIGKILL, "", true},
		{"collect", syscall.SIGTERM, "", true}, // whatever ends it, no advice comes any more
		{"advise", syscall.SIGKILL, "", true},
		{"report", syscall.SIGKILL, "", true},
		{"isolate", syscall.SIGTERM, "", false},
		{"collect", syscall.SIGKILL, "--at-end keep", false},
		{"collect", syscall.SIGKILL, "--stale-after 0s", false},
	} {
		t.Run(strings.TrimSpace(fmt.Sprintf("%s %s %s", tt.dies, tt.signal, tt.flags)), func(t *testing.T) {
			batch := group.New(t, top, fmt.Sprintf("batch%d", i))
			// The advice's amounts are constants, so that they are the same on every machine.
			advice := fmt.Sprintf(`.advice = {"policy":"by hand","cgroups":[{"cgroup":%q,"cpuMaxMilliCPU":900}],"fallback":[{"cgroup":%q,"cpuMaxMilliCPU":100}]}`, batch.Name, batch.Name)
			isolate := append([]string{"isolate", "--max-age", "1h", "--journal", filepath.Join(t.TempDir(), "journal")}, strings.Fields(tt.flags)...)
			pipe := plainPipe(t, []string{"collect", "--interval", "100ms"}, []string{"advise"}, []string{"jq", "-c", "--unbuffered", advice}, isolate,
				[]string{"report", "--to", "prometheus", "--metrics-file", filepath.Join(t.TempDir(), "metrics")})
			quota := func() string { // its first word: cpu.max has the period too
				return strings.Fields(batch.Read("cpu.max", "cpu.cfs_quota_us") + " none")[0]
			}
			await.Until(t, patient, "the advice is in force", func() string {
				if got := quota(); got != "90000" {
					return "the quota is " + got
				}
				return ""
			})
			if err := pipe[tt.dies].Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			_ = pipe["isolate"].Wait() // the test waits for its end
			want := "90000"
			if tt.falls {
				want = "10000"
			}
			if got := quota(); got != want {
				t.Errorf("the quota is %s; want %s", got, want)
			}
		})
	}
}
