package acttest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/cgroup"
	"polder/tests/await"
	"polder/tests/need"
)

// controllers are those of the hierarchies in which a pod's processes are.
var controllers = []string{"", "freezer"}

// Cgroup creates a cgroup for the test in the primary and the freezer hierarchy, and removes it when the test ends.
func Cgroup(t *testing.T) (*cgroup.Hierarchy, string) {
	t.Helper()
	h := need.Cgroups(t, controllers...)
	path := fmt.Sprintf("/polder-test-%d-%s", os.Getpid(), strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())))
	for _, dir := range dirs(t, h, path) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { Remove(t, h, path) })
	return h, path
}

// Remove removes a cgroup of [Cgroup] as soon as the kernel no longer counts its ended processes.
func Remove(t *testing.T, h *cgroup.Hierarchy, path string) {
	t.Helper()
	for _, dir := range dirs(t, h, path) {
		await.Until(t, time.Minute, "remove "+dir, func() string {
			if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err.Error()
			}
			return ""
		})
	}
}

func dirs(t *testing.T, h *cgroup.Hierarchy, path string) (list []string) {
	t.Helper()
	for _, controller := range controllers {
		dir, _, err := h.Dir(controller, path)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, dir)
	}
	return list
}

// Run runs a shell script in a cgroup of [Cgroup], and waits until it has printed something. When the test ends, it thaws the cgroup and
// kills the script with its children.
func Run(t *testing.T, h *cgroup.Hierarchy, path, script string) *exec.Cmd {
	t.Helper()
	var enter strings.Builder
	for _, dir := range dirs(t, h, path) {
		fmt.Fprintf(&enter, "echo $$ > %s; ", filepath.Join(dir, "cgroup.procs"))
	}
	cmd := exec.Command("sh", "-c", enter.String()+script)
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		file, thawed := "freezer.state", "THAWED"
		if h.Version("freezer") == 2 {
			file, thawed = "cgroup.freeze", "0"
		}
		_ = h.WriteFile("freezer", path, file, thawed)
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // its session: the test's own child, not yet waited for
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatalf("start %q: %v", script, err)
	}
	return cmd
}

// IgnoreSIGTERM is a script for [Run] that ignores SIGTERM, and so do its children.
const IgnoreSIGTERM = `trap '' TERM; sleep 1000 & sleep 1000 & echo ready; while :; do sleep 0.05; done`
