package faults

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"polder/lib/tick"
	"polder/lib/tick/ticktest"
)

// anyStatus is for a tool that may end with 0 or with 1.
const anyStatus = -1

// runTool runs a tool on input to its end. It fails the test if the tool crashed, ended with another status, or wrote
// an invalid tick; it returns the output without its last newline, and the log.
func runTool(t *testing.T, status int, input []byte, args ...string) (out []byte, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, args[0]), args[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	checkLog(t, args[0], stderr.String())
	if got := cmd.ProcessState.ExitCode(); got != status && (status != anyStatus || got < 0 || got > 1) {
		t.Errorf("%v: exit status %d; want %d: %s", args, got, status, clip(stderr.String(), 2000))
	}
	if args[0] != "report" {
		for i, line := range bytes.Split(bytes.TrimSuffix(stdout.Bytes(), []byte("\n")), []byte("\n")) {
			if stdout.Len() == 0 {
				break
			}
			if _, err := tick.ParseLine(line); err != nil {
				t.Errorf("%v: output line %d: %v: %s", args, i+1, err, clip(string(line), 500))
			}
			if args[0] == "collect" {
				if err := ticktest.Validate(line); err != nil {
					t.Errorf("%v: output line %d breaks the schema: %v: %s", args, i+1, err, clip(string(line), 500))
				}
			}
		}
	}
	return bytes.TrimSuffix(stdout.Bytes(), []byte("\n")), strings.TrimSpace(stderr.String())
}
