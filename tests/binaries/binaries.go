// Package binaries builds the five tools once for all tests: static, with a version of their own, in the checkout's bin/test.
package binaries

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Variable names the directory of tools that are already built. Without it the first test that needs them builds them.
const Variable = "POLDER_BIN"

// Version is what the tools print as theirs.
const Version = "v0.0.0-test"

// Tools are the five tools, in the order of the pipe.
var Tools = []string{"collect", "advise", "isolate", "evict", "report"}

// Subcommands are the tools' subcommands, as a user types them.
var Subcommands = []string{"collect fleet", "evict fleet", "report fleet"}

// Dir is the directory of the tools, as an absolute path. No test may write there: see Link.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Path is the path of one tool.
func Path(t testing.TB, tool string) string {
	t.Helper()
	return filepath.Join(Dir(t), tool)
}

// Find is Dir for TestMain.
var Find = sync.OnceValues(func() (string, error) {
	dir := os.Getenv(Variable)
	if dir == "" {
		return Build()
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for _, tool := range Tools {
		// The stat also makes `go test` run a test again, and not print its cached result, when the tool has changed.
		if info, err := os.Stat(filepath.Join(dir, tool)); err != nil || info.Mode()&0o111 == 0 {
			return "", fmt.Errorf("%s=%s has no program %s: without %[1]s the tests build it", Variable, dir, tool)
		}
	}
	return dir, nil
})

// Build builds the tools into the checkout's bin/test and returns that directory. Tools that are up to date stay
// unchanged, so that tests that ran with them need not run again. Several processes may build at the same time: one waits for the other.
func Build() (string, error) {
	top, err := checkout()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(top, "bin", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", dir, err)
	}
	scratch, err := os.MkdirTemp(filepath.Dir(dir), "test.new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X polder/lib/stage.Version=" + Version, "-o", scratch + "/"}
	for _, tool := range Tools {
		args = append(args, "polder/"+tool)
	}
	build := exec.Command("go", args...)
	build.Dir = top
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // images and virtual machines have no C library
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the tools: %w\n%s", err, out)
	}
	for _, tool := range Tools {
		if err := replace(filepath.Join(scratch, tool), filepath.Join(dir, tool)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// checkout is the directory of the project's go.mod: a test runs in its package's directory.
func checkout() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if data, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && bytes.HasPrefix(data, []byte("module polder\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("build the tools: %s is not in a checkout of the project: set %s", start, Variable)
		}
	}
}

// replace moves a file to a path; an equal file there stays.
func replace(from, to string) error {
	built, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if present, err := os.ReadFile(to); err == nil && bytes.Equal(built, present) {
		return nil
	}
	return os.Rename(from, to)
}

// Link makes links to the tools in a directory, for tests that find processes by the path of their program and must
// not find those of other tests. Where links cannot be made it copies.
func Link(dir string) error {
	source, err := Find()
	if err != nil {
		return err
	}
	for _, tool := range Tools {
		from, to := filepath.Join(source, tool), filepath.Join(dir, tool)
		if os.Link(from, to) == nil {
			continue
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, data, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Main is the TestMain of a package whose tests find processes by the path of their program: *dir is a directory with
// links to the tools, for this process alone.
func Main(m *testing.M, dir *string) int {
	made, err := os.MkdirTemp("", "polder-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(made)
	if err := Link(made); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*dir = made
	return m.Run()
}

// Running are the processes of the named tools of a directory: a directory that Main made.
func Running(t testing.TB, dir string, names ...string) []int {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, link := range links {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if err != nil {
			t.Fatal(err)
		}
		target := Program(pid)
		if filepath.Dir(target) != dir || !slices.Contains(names, filepath.Base(target)) {
			continue
		}
		found = append(found, pid)
	}
	return found
}

// Program is the file that a process runs; empty if the process has ended, and if it is isolate's child, which ends with isolate and
// counts as a part of it. The child has a name of its own once it has executed its program, also when isolate has been killed; before
// that its parent runs the same program.
func Program(pid int) string {
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return ""
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(line) == 0 || bytes.HasPrefix(line, []byte("isolate-resched\x00")) {
		return ""
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	afterName := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the state and the parent, among others
	if err != nil || len(afterName) < 2 {
		return ""
	}
	if parent, _ := os.Readlink("/proc/" + afterName[1] + "/exe"); parent == target {
		return ""
	}
	return target
}
