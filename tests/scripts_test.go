package tests

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// A script that measures or installs something starts nothing with --help: it prints what it does.
func TestScriptsHelp(t *testing.T) {
	for _, name := range []string{"bench", "demo", "fresh"} {
		out, err := exec.Command("../scripts/"+name, "--help").CombinedOutput()
		var failed *exec.ExitError
		isDescription := strings.HasPrefix(string(out), name) && !strings.Contains(string(out), "pipefail")
		if !errors.As(err, &failed) || failed.ExitCode() != 2 || !isDescription {
			t.Errorf("%s --help: %v; want its description and status 2:\n%.2000s", name, err, out)
		}
	}
}
