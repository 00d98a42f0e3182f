package faults

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A tool whose terminal is gone stops as it does at SIGTERM, with its state saved; under nohup it goes on.
func TestHangup(t *testing.T) {
	t.Parallel()
	advise := filepath.Join(bin, "advise")
	for _, tt := range []struct {
		name    string
		command []string
		goesOn  bool
	}{
		{"from a terminal", []string{advise}, false},
		{"under nohup", []string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`, advise}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state := filepath.Join(t.TempDir(), "state")
			cmd := exec.Command(tt.command[0], append(tt.command[1:], "--state", state)...)
			var log strings.Builder
			cmd.Stderr = &log
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			out := bufio.NewReader(stdout)
			ticks := 0
			send := func() {
				t.Helper()
				ticks++
				if _, err := fmt.Fprintf(in, `{"v":1,"node":"n%d","time":"2026-01-01T12:00:00Z","sample":{}}`+"\n", ticks); err != nil {
					t.Fatal(err)
				}
				if line, err := out.ReadString('\n'); err != nil || !strings.Contains(line, `"advice"`) {
					t.Fatalf("%q, %v", line, err)
				}
			}
			send() // it handles signals from here on
			if err := cmd.Process.Signal(unix.SIGHUP); err != nil {
				t.Fatal(err)
			}
			if tt.goesOn {
				send()
				in.Close()
			}
			if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
				t.Errorf("at the end %q, %v", rest, err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, &log)
			}
			data, err := os.ReadFile(state)
			if last := fmt.Sprintf(`"n%d"`, ticks); err != nil || !strings.Contains(string(data), last) {
				t.Errorf("the state %q, %v; want the last tick's node %s in it", data, err, last)
			}
		})
	}
}
