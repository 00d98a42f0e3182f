package machine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"polder/tests/await"
	"polder/tests/binaries"
	"polder/tests/group"
	"polder/tests/need"
)

// isolate's child process, whose threads wake CPUs, is in the root cgroup wherever isolate is, and ends when isolate is killed.
func TestReschedIsInRootCgroup(t *testing.T) {
	if !need.Cgroups(t, "cpu").IsMachineRoot("cpu") {
		t.Skip("needs the root of the machine's cgroups")
	}
	outside, dir := group.New(t, nil, "resched"), t.TempDir()
	isolate := binaries.Path(t, "isolate")
	const line = `{"v":1,"node":"n1","time":"2023-01-03T16:18:00Z","advice":{"policy":"by hand","reschedIntervalSeconds":0.001}}`
	outside.Run(t, fmt.Sprintf("{ echo '%s'; exec sleep 1000; } | %s --node n1 --max-age 0 >%[3]s/out 2>%[3]s/log", line, isolate, dir))
	log := func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "log")) // it may not exist yet
		return string(text)
	}
	var parent, child int
	await.Until(t, patient, "the child process is in the root cgroup", func() string {
		parent, child = 0, 0
		for _, text := range outside.PIDs(t) {
			if pid, err := strconv.Atoi(text); err == nil && binaries.Program(pid) == isolate {
				parent = pid
			}
		}
		child = childOf(parent)
		if cgroup := cpuCgroup(child); cgroup != "/" {
			return fmt.Sprintf("isolate %d, its child %d in %q: %s", parent, child, cgroup, log())
		}
		return ""
	})
	if cgroup := cpuCgroup(parent); cgroup != outside.Name {
		t.Errorf("isolate itself is in %s, want %s", cgroup, outside.Name)
	}
	if err := syscall.Kill(parent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await.Until(t, patient, "the child has ended", func() string {
		if name := commandOf(child); name == "isolate-resched" {
			return "it still runs"
		}
		return ""
	})
}

// childOf is the first process whose parent is pid and that has the child's name; 0 if there is none.
func childOf(parent int) int {
	if parent == 0 {
		return 0
	}
	statuses, _ := filepath.Glob("/proc/[0-9]*/status") // the pattern is valid
	for _, status := range statuses {
		text, _ := os.ReadFile(status) // it may have ended
		if !bytes.Contains(text, fmt.Appendf(nil, "\nPPid:\t%d\n", parent)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(status))); err == nil && commandOf(pid) == "isolate-resched" {
			return pid
		}
	}
	return 0
}

// commandOf is the first word of a process' command line; empty if it has ended.
func commandOf(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	name, _, _ := bytes.Cut(line, []byte{0})
	return string(name)
}

// cpuCgroup is a process' cgroup in the hierarchy with the cpu controller; empty if the process has ended.
func cpuCgroup(pid int) string {
	lines, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	unified := ""
	for line := range strings.Lines(string(lines)) {
		switch fields := strings.SplitN(strings.TrimSpace(line), ":", 3); {
		case len(fields) < 3:
		case slices.Contains(strings.Split(fields[1], ","), "cpu"):
			return fields[2]
		case fields[1] == "":
			unified = fields[2]
		}
	}
	return unified
}
