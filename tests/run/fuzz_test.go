package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fuzzModule creates a module with one fuzz target and scripts/fuzz, and changes to it. The target fails with the message of its body.
func fuzzModule(t *testing.T, body string) {
	t.Helper()
	script, err := os.ReadFile("../../scripts/fuzz")
	if err != nil {
		t.Fatal(err)
	}
	module(t, map[string]string{
		"scripts/fuzz": string(script),
		"p/a_test.go": "package p\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Args\n\nfunc FuzzIt(f *testing.F) {\n\tf.Add([]byte{})\n" +
			"\tf.Fuzz(func(t *testing.T, b []byte) {\n" + body + "\n\t})\n}\n",
	})
	if err := os.Chmod("scripts/fuzz", 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("git", "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	t.Setenv("FUZZCACHE", t.TempDir())
}

// A new finding of fuzzing fails a run unless FUZZ_FINDS=report: then the last lines have it with its input. A target that fails
// without one is run again then. A failing seed and a target that cannot be built always fail the run. An input that passes when it is
// run by itself is named as not reproducible.
func TestFuzzFinds(t *testing.T) {
	const find, seed, build = "\t\tif len(b) > 0 { t.Fatal(\"too long\") }", "\t\tt.Fatal(\"every input\")", "\t\tundefined()"
	const once = "\t\tif os.Mkdir(\"begun\", 0o755) == nil { t.Fatal(\"the first time\") }"
	const gone = "\t\tif len(b) > 0 && os.Mkdir(\"begun\", 0o755) == nil { t.Fatal(\"the first time\") }"
	for _, tt := range []struct {
		name, body, finds, length string
		want                      bool
		reported                  string // in the last lines
	}{
		{"a find by hand", find, "", "10m", false, ""},
		{"a find in CI", find, "report", "10m", true, "./p FuzzIt, found by fuzzing"},
		{"a seed that fails", seed, "report", "10m", false, "./p FuzzIt failed twice"},
		{"a failure that does not come again, by hand", once, "", "10x", false, ""},
		{"a failure that does not come again, in CI", once, "report", "10x", true, "./p FuzzIt failed without an input"},
		{"a find that passes by itself, by hand", gone, "", "10m", false, ""},
		{"a find that passes by itself, in CI", gone, "report", "10m", true, "./p FuzzIt: not reproducible: "},
		{"a build that breaks", build, "report", "10m", false, ""},
		{"an unknown word", "", "never", "10m", false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fuzzModule(t, tt.body)
			t.Setenv("FUZZ_FINDS", tt.finds)
			var out bytes.Buffer
			fuzz := tier{name: "fuzz", runs: []run{{command: []string{"scripts/fuzz", tt.length}}}}
			if got := runAll(&out, [][]tier{{fuzz}}, options{}); got != tt.want {
				t.Errorf("passed: %v, want %v:\n%s", got, tt.want, out.String())
			}
			_, end, _ := strings.Cut(out.String(), ">> times: ")
			if reported := strings.Contains(end, findPrefix); reported != (tt.reported != "") || !strings.Contains(end, tt.reported) {
				t.Errorf("the last lines lack %q, or report what they should not:\n%s", tt.reported, out.String())
			}
			if tt.reported != "" && !strings.Contains(end, findPrefix+"| >     --- FAIL: ") {
				t.Errorf("the last lines do not say how it failed:\n%s", end)
			}
			inputs, err := filepath.Glob("p/testdata/fuzz/FuzzIt/*")
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range inputs {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(string(text)) {
					if tt.reported != "" && !strings.Contains(end, findPrefix+"| "+line) {
						t.Errorf("the last lines lack the input's %q:\n%s", line, end)
					}
				}
			}
			if (tt.body == find || tt.body == gone) && len(inputs) != 1 {
				t.Errorf("%d inputs are kept; want one", len(inputs))
			}
			if tt.body != gone {
				return
			}
			for _, input := range inputs {
				if want := "run by itself: ./" + input; !strings.Contains(out.String(), want) || strings.Contains(end, "to be repaired") {
					t.Errorf("%q is missing, or the input is reported as one to repair:\n%s", want, out.String())
				}
			}
		})
	}
}

// scripts/fuzz starts nothing with a time or a target that it does not know, and names it.
func TestFuzzArguments(t *testing.T) {
	fuzzModule(t, "\t\tt.Fatal(\"this runs\")")
	for _, tt := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--help"}, 0, "fuzz [TIME [TARGET...]]: every fuzz target"},
		{[]string{"soon"}, 2, "fuzz: TIME 'soon': want a time such as 60s"},
		{[]string{"-1s"}, 2, "fuzz: TIME '-1s': want"},
		{[]string{"1s", "FuzzIts"}, 2, "fuzz: no target FuzzIts: git grep"},
		{[]string{"1s", "FuzzI"}, 2, "fuzz: no target FuzzI: "},
		{[]string{"10x", "FuzzIt"}, 1, "this runs"},
	} {
		out, err := exec.Command("scripts/fuzz", tt.args...).CombinedOutput()
		status := 0
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			status = failed.ExitCode()
		}
		if status != tt.status || !strings.Contains(string(out), tt.want) || tt.status != 1 && strings.Contains(string(out), "this runs") {
			t.Errorf("fuzz %q: status %d; want %d, and %q in:\n%s", tt.args, status, tt.status, tt.want, out)
		}
	}
}
