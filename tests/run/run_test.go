package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"polder/tests/binaries"
)

// module writes a small module, and changes to it.
func module(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module polder\n\ngo 1.26.0\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range binaries.Tools {
		main := filepath.Join(dir, tool, "main.go")
		if err := os.MkdirAll(filepath.Dir(main), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(main, []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// quiet returns a runner that writes to a buffer.
func quiet(out *bytes.Buffer) *runner {
	return &runner{out: out, begun: time.Now(), lastLine: time.Now(), setUp: map[string]bool{}, env: os.Environ()}
}

// Each way in which a package can end, by the real `go test`.
func TestResults(t *testing.T) {
	const head = "import \"testing\"\n\n"
	module(t, map[string]string{
		"good/a_test.go":  "package good\n" + head + "func TestOne(t *testing.T) { t.Run(\"sub\", func(t *testing.T) {}) }\n",
		"skips/a_test.go": "package skips\n" + head + "func TestRoot(t *testing.T) { t.Skip(\"needs root\") }\nfunc TestToo(t *testing.T) { t.Skip(\"needs root\") }\n",
		"bad/a_test.go":   "package bad\n" + head + "func TestBad(t *testing.T) { t.Error(\"two is not three\") }\n",
		"panics/a_test.go": "package panics\n" + head +
			"func TestPanic(t *testing.T) { panic(\"out of luck\") }\n",
		"broken/a_test.go": "package broken\n" + head + "func TestBroken(t *testing.T) { undefined() }\n",
		"empty/a.go":       "package empty\n",
		"apart/a_test.go":  "package apart\n" + head + "func TestBad(t *testing.T) { t.Error(\"this package is left out\") }\n",
	})
	var out bytes.Buffer
	r := quiet(&out)
	if err := r.goTest(run{packages: []string{"./..."}, except: []string{"./apart/..."}, args: []string{"-count=1"}}); err != nil {
		t.Errorf("goTest: %v", err)
	}
	text, found := out.String(), r.results[0]
	if found.passed != 2 {
		t.Errorf("%d tests passed, want 2:\n%s", found.passed, text)
	}
	failures := map[string]string{}
	for _, f := range found.failed {
		failures[f.key] = strings.Join(f.messages, "\n")
	}
	for key, want := range map[string]string{"bad TestBad": "two is not three", "broken": "", "panics TestPanic": "panic: out of luck"} {
		if got, failed := failures[key]; !failed || !strings.Contains(got, want) {
			t.Errorf("the failure of %s is %q, want %q:\n%s", key, got, want, text)
		}
	}
	if len(failures) != 3 {
		t.Errorf("the tests that failed: %q, want three:\n%s", failures, text)
	}
	if got := fmt.Sprint(maps.Collect(maps.All(found.skipped))); got != "map[needs root:[skips TestRoot skips TestToo]]" {
		t.Errorf("skipped: %s", got)
	}
	if got := found.leftOut(); got != "2: needs root" {
		t.Errorf("left out: %q", got)
	}
	for _, want := range []string{"two is not three", "out of luck", "undefined: undefined", "ok    good"} {
		if !strings.Contains(text, want) {
			t.Errorf("the output has no %q:\n%s", want, text)
		}
	}
	if len(found.output) != 0 || len(found.begun) != 0 {
		t.Errorf("kept: %v, %v", found.output, found.begun)
	}
}

// A failed test, and with -complete a skipped one, fail the run; so does a program's exit status.
func TestVerdict(t *testing.T) {
	test := func(body string) map[string]string {
		return map[string]string{"p/a_test.go": "package p\n\nimport \"testing\"\n\nfunc Test(t *testing.T) { " + body + " }\n"}
	}
	goTest := []run{{packages: []string{"./p"}}}
	tests := []struct {
		name     string
		files    map[string]string
		runs     []run
		complete bool
		want     bool
		output   string // in the output
	}{
		{"passed", test(""), goTest, true, true, "tests: 1 passed, 0 failed, 0 skipped\n"},
		{"a failed test", test("t.Fail()"), goTest, false, false, "tests: 0 passed, 1 failed, 0 skipped\n"},
		{"skipped", test("t.Skip(\"needs root\")"), goTest, false, true, "left out: 1: needs root"},
		{"skipped where all is required", test("t.Skip(\"needs root\")"), goTest, true, false, "tests: 0 passed, 1 failed, 0 skipped\n"},
		{"a program", test(""), []run{{command: []string{"true"}}}, true, true, "tests: 1 passed, 0 failed, 0 skipped\n"},
		{"a program that fails", test(""), []run{{command: []string{"sh", "-c", "echo why; exit 3"}}}, false, false, ">> failed: tier: sh -c echo why; exit 3: exit status 3"},
		{"no such package", test(""), []run{{packages: []string{"./q"}}}, false, false, "tests: 0 passed, 1 failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			module(t, tt.files)
			var out bytes.Buffer
			if got := runAll(&out, [][]tier{{{name: "tier", runs: tt.runs}}}, options{complete: tt.complete}); got != tt.want {
				t.Errorf("passed: %v, want %v", got, tt.want)
			}
			if !strings.Contains(out.String(), tt.output) {
				t.Errorf("the output has no %q:\n%s", tt.output, out.String())
			}
		})
	}
}

// A tier that runs on beside the next stage ends before the verdict, and counts.
func TestAfter(t *testing.T) {
	module(t, map[string]string{})
	waits := tier{name: "waits", after: true, runs: []run{{command: []string{"sh", "-c", "until [ -e made ]; do sleep 0.01; done; exit 3"}}}}
	makes := tier{name: "makes", runs: []run{{command: []string{"touch", "made"}}}}
	var out bytes.Buffer
	if runAll(&out, [][]tier{{waits}, {makes}}, options{}) {
		t.Error("the run passed, but the first tier failed")
	}
	if want := ">> failed: waits: "; !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "tests: 1 passed, 1 failed") {
		t.Errorf("the output has no %q:\n%s", want, out.String())
	}
}

// A failed test is run once more alone: a test of its package, or all of a package that panicked. If it passes then, it fails nothing, and
// is named; a second failure fails the run, as do more failures than chance explains.
func TestAgain(t *testing.T) {
	const head = "package p\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\n"
	once := func(name, how string) string { // fails only at its first run
		return "func " + name + "(t *testing.T) {\n\tif _, err := os.Stat(\"" + name + "\"); err != nil {\n\t\tos.WriteFile(\"" + name +
			"\", nil, 0o644)\n\t\t" + how + "\n\t}\n}\n"
	}
	const passes = "func TestGood(t *testing.T) { t.Run(\"sub\", func(t *testing.T) {}); t.Log(os.Args[0]) }\n"
	tests := []struct {
		name, body string
		want       bool
		outputs    []string
	}{
		{
			"by chance", passes + once("TestOnce", `t.Run("sub", func(t *testing.T) { t.Error("bad luck") })`), true,
			[]string{"tests: 3 passed, 0 failed", ">> failed once, passed when run again, and is to be repaired: p TestOnce/sub\n", "bad luck\n"},
		},
		{"panicked by chance", once("TestOnce", `panic("bad luck")`) + passes, true, []string{"tests: 3 passed, 0 failed", "repaired: p TestOnce\n"}},
		{"fails twice", passes + "func TestOnce(t *testing.T) { t.Error(os.Args[0]) }\n", false, []string{"once more, by itself: p TestOnce", "1 failed"}},
		{
			"four by chance", once("TestA", "t.Fail()") + once("TestB", "t.Fail()") + once("TestC", "t.Fail()") + once("TestD", "t.Fail()"), false,
			[]string{"tests: 0 passed, 4 failed"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			module(t, map[string]string{"p/a_test.go": head + tt.body})
			var out bytes.Buffer
			one := []run{{packages: []string{"./p"}, args: []string{"-count=1"}}}
			if got := runAll(&out, [][]tier{{{name: "tier", runs: one}}}, options{again: true}); got != tt.want {
				t.Errorf("passed: %v, want %v", got, tt.want)
			}
			for _, want := range tt.outputs {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the output has no %q:\n%s", want, out.String())
				}
			}
		})
	}
}

// A set-up script runs once, its output becomes a variable of the tests, and its failure fails the tier.
func TestPrepare(t *testing.T) {
	module(t, map[string]string{
		"p/a_test.go": "package p\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc Test(t *testing.T) {\n" +
			"\tif got := os.Getenv(\"POLDER_THING\"); got != \"/a/thing\" {\n\t\tt.Error(got)\n\t}\n}\n",
	})
	write := func(name, body string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	count := filepath.Join(t.TempDir(), "count")
	good := setup{script: write("good", "echo ran >>"+count+"; echo installing >&2; echo noise; echo /a/thing\n"), variable: "POLDER_THING"}
	one := tier{name: "one", setup: []setup{good}, runs: []run{{packages: []string{"./p"}, args: []string{"-count=1"}}}}
	var out bytes.Buffer
	if !runAll(&out, [][]tier{{one}, {one}}, options{complete: true}) || !strings.Contains(out.String(), "installing") {
		t.Errorf("%s", out.String())
	}
	if data, err := os.ReadFile(count); err != nil || string(data) != "ran\n" {
		t.Errorf("the script ran: %q, %v", data, err)
	}
	out.Reset()
	bad := tier{name: "bad", setup: []setup{{script: write("bad", "echo no network >&2; exit 1\n")}}, runs: one.runs}
	if runAll(&out, [][]tier{{bad}}, options{}) || !strings.Contains(out.String(), "no network") || !strings.Contains(out.String(), "tests: 0 passed, 1 failed") {
		t.Errorf("%s", out.String())
	}
}

// Every tier that the sets and the Makefile name exists, and each package of the project with tests is in a tier of `make test` or
// of `make test-deep`.
func TestTiers(t *testing.T) {
	t.Chdir("../..")
	covered := map[string]bool{}
	for _, one := range tiers {
		for _, s := range one.setup {
			if info, err := os.Stat(s.script); err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("tier %s: %s: %v", one.name, s.script, err)
			}
		}
		if one.name == "quick" {
			continue
		}
		for _, r := range one.runs {
			packages, err := list(r.packages, r.except)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range packages {
				covered[p] = true
			}
		}
	}
	for set := range sets {
		if _, err := choose([]string{set}); err != nil {
			t.Errorf("set %s: %v", set, err)
		}
	}
	all, err := list([]string{"./..."}, nil)
	if err != nil || len(all) < 50 {
		t.Fatalf("%d packages, %v", len(all), err)
	}
	for _, p := range all {
		if !covered[p] {
			t.Errorf("no tier runs %s", p)
		}
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(makefile)) {
		if asked, ok := strings.CutPrefix(line, "\t@$(TIER) "); ok {
			if _, err := choose(strings.Fields(asked)); err != nil {
				t.Errorf("Makefile: %v", err)
			}
		}
	}
}

// Parallel tiers: a failure counts for its own tier only.
func TestSideBySide(t *testing.T) {
	module(t, map[string]string{
		"good/a_test.go": "package good\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) {}\n",
		"bad/a_test.go":  "package bad\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) { t.Error(\"two is not three\") }\n",
	})
	var out bytes.Buffer
	one := func(name string) tier { return tier{name: name, runs: []run{{packages: []string{"./" + name}}}} }
	if runAll(&out, [][]tier{{one("good"), one("bad")}, {one("good")}}, options{complete: true}) {
		t.Error("the run passed")
	}
	for _, want := range []string{"tests: 2 passed, 1 failed, 0 skipped\n", ">> failed: bad TestBad\n    a_test.go:5: two is not three\n", ">> done: good"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output has no %q:\n%s", want, out.String())
		}
	}
	if strings.Count(out.String(), ">> failed") != 1 {
		t.Errorf("more than one failure:\n%s", out.String())
	}
}

// While nothing is printed, the running tests are.
func TestRunning(t *testing.T) { synctest.Test(t, running) }

func running(t *testing.T) {
	r := newResults(func(string, ...any) {})
	for _, e := range []event{
		{Action: "run", Package: "polder/a", Test: "TestOne"},
		{Action: "run", Package: "polder/a", Test: "TestOne/sub"},
		{Action: "run", Package: "polder/b", Test: "TestTwo"},
		{Action: "pass", Package: "polder/b", Test: "TestTwo"},
	} {
		r.take(e)
	}
	time.Sleep(3 * time.Second) // by the bubble's clock
	if got := r.running(); got != "a TestOne (3 s)" {
		t.Errorf("running: %q", got)
	}
}

// TestHasBusyArgs: of any run of any tier.
func TestHasBusyArgs(t *testing.T) {
	with := tier{runs: []run{{}, {busyArgs: []string{"-parallel=1"}}}}
	without := tier{runs: []run{{}}}
	if !hasBusyArgs([][]tier{{without}, {without, with}}) || hasBusyArgs([][]tier{{without}, {{}}}) {
		t.Error("arguments for a busy machine are not found, or found where there are none")
	}
}
