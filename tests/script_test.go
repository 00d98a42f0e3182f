// Package tests runs the real binaries: scripts in script/*.txtar, and the project's import rules in arch_test.go.
package tests

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"polder/tests/binaries"
)

var update = flag.Bool("update", false, "write what the tools print into the scripts' golden files")

// tools are the binaries that the scripts call by name.
var tools = binaries.Tools

// allCommands are the tools and their subcommands, each of which has its own help, manual and completion.
var allCommands = slices.Concat(tools, binaries.Subcommands)

// command runs one of them.
func command(name string, args ...string) *exec.Cmd {
	words := strings.Fields(name)
	return exec.Command(filepath.Join(bin, words[0]), append(words[1:], args...)...)
}

// id is a command's name in one word, as its page has it.
func id(name string) string { return strings.ReplaceAll(name, " ", "-") }

// bin is the directory of the tools.
var bin string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := binaries.Find()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	bin = dir
	os.Exit(m.Run())
}

// TestScript runs script/*.txtar; go test -update rewrites their golden files. The scripts find the tools in $PATH and
// in $TOOLS, and the repository in $REPO.
func TestScript(t *testing.T) {
	repo, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			e.Setenv("REPO", repo)
			e.Setenv("TOOLS", bin)
			e.Setenv("TZ", "UTC")
			return nil
		},
	})
}
