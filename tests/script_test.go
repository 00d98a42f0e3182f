// Package tests runs the real binaries: scripts in script/*.txtar, and the rules of the house in arch_test.go.
package tests

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "write what the tools print into the scripts' golden files")

// tools are the binaries that the scripts call by name.
var tools = []string{"collect", "advise", "isolate", "evict", "report"}

// bin is where TestMain builds the tools.
var bin string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "polder-bin-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		bin = dir
		for _, tool := range tools {
			if _, err := os.Stat(filepath.Join("..", tool, "main.go")); err != nil {
				continue // while the tools are being made
			}
			build := exec.Command("go", "build", "-ldflags", "-X polder/lib/stage.Version=v0.0.0-test", "-o", filepath.Join(dir, tool), "polder/"+tool)
			build.Stderr = os.Stderr
			if err := build.Run(); err != nil {
				println("build", tool, err.Error())
				return 1
			}
		}
		return m.Run()
	}())
}

// TestScript runs script/*.txtar; go test -update rewrites their golden files. The scripts find the tools in $PATH and
// the repository in $REPO.
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
			e.Setenv("TZ", "UTC")
			return nil
		},
	})
}
