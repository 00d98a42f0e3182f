// Package need skips tests that this machine cannot run, each with a short reason that is the same in all tests.
// Where nothing may be missing, the caller counts the skipped tests.
package need

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"polder/lib/cgroup"
)

// Root skips a test that needs root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// Program skips a test that needs a program, and names the Debian package that has it.
func Program(t testing.TB, program, debianPackage string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("needs %s (Debian package %s)", program, debianPackage)
	}
}

// Cgroups skips a test that needs its own cgroups with the named controllers, of either version. "" is the hierarchy in which
// processes are found.
func Cgroups(t testing.TB, controllers ...string) *cgroup.Hierarchy {
	t.Helper()
	return cgroups(t, "needs a writable cgroup", 0, controllers)
}

// RootCgroup skips a test that needs the machine's root cgroup of a controller, and its own cgroups there.
func RootCgroup(t testing.TB, controller string) *cgroup.Hierarchy {
	t.Helper()
	h := Cgroups(t, controller)
	if !h.IsMachineRoot(controller) { // in a container, for example
		t.Skipf("needs the machine's root cgroup with the controller %s", controller)
	}
	return h
}

// BPF skips a test that needs a BPF program in the kernel: its types, and CAP_BPF and CAP_PERFMON.
func BPF(t testing.TB) {
	t.Helper()
	Root(t)
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		t.Skip("needs a kernel that describes its types (CONFIG_DEBUG_INFO_BTF)")
	}
	capabilities(t, 1<<unix.CAP_BPF|1<<unix.CAP_PERFMON, "CAP_BPF and CAP_PERFMON")
}

// Nice skips a test that changes how other threads are scheduled: it needs CAP_SYS_NICE, which root in a container may lack.
func Nice(t testing.TB) {
	t.Helper()
	capabilities(t, 1<<unix.CAP_SYS_NICE, "CAP_SYS_NICE")
}

// capabilities skips a test that needs all capabilities of a mask, which have these names.
func capabilities(t testing.TB, needed uint64, names string) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nCapEff:\t")
	text, _, _ := strings.Cut(rest, "\n")
	effective, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	if effective&needed != needed {
		t.Skip("needs " + names)
	}
}

// Unified skips a test that needs cgroups of version 2, also beside version 1, and returns where they are mounted.
func Unified(t testing.TB) string {
	t.Helper()
	Root(t)
	h, err := cgroup.Detect("/")
	if err != nil || h.Unified() == "" {
		t.Skip("needs a mount of cgroup version 2")
	}
	return h.Unified()
}

// CgroupsV1 skips a test that needs its own cgroups in the named controllers' hierarchies of version 1.
func CgroupsV1(t testing.TB, controllers ...string) *cgroup.Hierarchy {
	t.Helper()
	return cgroups(t, "needs a writable cgroup v1", 1, controllers)
}

func cgroups(t testing.TB, need string, version int, controllers []string) *cgroup.Hierarchy {
	t.Helper()
	Root(t)
	h, err := cgroup.Detect("/")
	if err != nil {
		t.Skipf("%s: %v", need, err)
	}
	for _, controller := range controllers {
		if v := h.Version(controller); controller != "" && (v == 0 || version != 0 && v != version) {
			t.Skipf("%s with the controller %s", need, controller)
		}
		if err := writable(h, controller); err != nil {
			t.Skipf("%s with the controller %s: %v", need, controller, err)
		}
	}
	return h
}

// writable makes a cgroup and removes it.
func writable(h *cgroup.Hierarchy, controller string) error {
	top, _, err := h.Dir(controller, "/")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(top, fmt.Sprintf("polder-probe-%d-", os.Getpid()))
	if err != nil {
		return err
	}
	return os.Remove(filepath.Clean(dir))
}

// Mount skips a test that needs to mount file systems, which root cannot everywhere: not in a container without that capability, and
// not in a chroot whose root directory is no mount point, from where mounts cannot be kept from the rest of the machine.
func Mount(t testing.TB) {
	t.Helper()
	Root(t)
	if out, err := exec.Command("unshare", "--mount", "--propagation", "private", "mount", "-t", "tmpfs", "none", "/mnt").CombinedOutput(); err != nil {
		t.Skipf("needs mounts of its own: %s", strings.TrimSpace(string(out)))
	}
}
