package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"polder/tests/binaries"
	"polder/tests/vm/qemu"
)

// These suites run in guests whose process 1 is systemd: in the one Polder is installed by hand, in the other by its .deb.
const (
	SystemdSuite = "systemd"
	PackageSuite = "package"
)

// guestPackage is the path of the .deb in the guest.
const guestPackage = "root/polder.deb"

// suiteUnit starts the suite as soon as systemd starts anything: it polls for what it waits for. Its end powers the machine
// off.
const suiteUnit = `[Unit]
Description=The suite of tests
DefaultDependencies=no
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
ExecStart=/usr/bin/guest suite SUITE
StandardOutput=append:/dev/console
StandardError=append:/dev/console
Environment=PATH=/usr/sbin:/usr/bin
`

// systemdFiles are the settings of the machine, and Polder's: none of the tools', so that the defaults are tested.
var systemdFiles = map[string]string{
	"etc/hostname":   "node-8\n",
	"etc/machine-id": strings.Repeat("08", 16) + "\n",
	// systemd enables cpuset if a unit asks for it; without Kubernetes no other program does.
	"etc/systemd/system/batch.slice": "[Slice]\nAllowedCPUs=0-7\n",
	// A tool that hangs is found soon; one that is slow on a busy host does not count as one that hangs.
	"etc/systemd/system/polder-advise.service.d/test.conf": "[Service]\nWatchdogSec=20s\nTimeoutAbortSec=2s\n",
	"etc/systemd/system/polder-.service.d/slow-host.conf":  "[Service]\nTimeoutStopSec=10min\n",
	"etc/systemd/system/polder.service.d/slow-host.conf":   "[Service]\nTimeoutStopSec=10min\n",
	"etc/systemd/system.conf.d/test.conf": "[Manager]\nDefaultTimeoutStartSec=10min\nDefaultTimeoutStopSec=10min\n" +
		"DefaultDeviceTimeoutSec=10min\n",
}

// systemdLinks are the links of `systemctl enable` and `systemctl mask`.
var systemdLinks = map[string]string{
	"init":                              "/lib/systemd/systemd",
	"etc/systemd/system/default.target": "/lib/systemd/system/multi-user.target",
	"etc/systemd/system/sysinit.target.wants/suite.service":       "../suite.service",
	"etc/systemd/system/getty.target":                             "/dev/null",
	"etc/systemd/system/apt-daily.timer":                          "/dev/null",
	"etc/systemd/system/apt-daily-upgrade.timer":                  "/dev/null",
	"etc/systemd/system/multi-user.target.wants/remote-fs.target": "/dev/null",
}

// systemd is the initramfs of a Debian that runs a suite.
func (l *Lab) systemd(m Machine, suite string) ([]byte, error) {
	packed, err := qemu.Root()
	if err != nil {
		return nil, err
	}
	root, err := os.Open(packed)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	a := qemu.NewArchive()
	m.Override(a)
	if err := a.Tar(root); err != nil {
		return nil, fmt.Errorf("%s: %w", packed, err)
	}
	a.File("usr/bin/guest", 0o755, l.files["bin/guest"])
	a.File("etc/systemd/system/suite.service", 0o644, []byte(strings.Replace(suiteUnit, "SUITE", suite, 1)))
	for name, text := range systemdFiles {
		a.File(name, 0o644, []byte(text))
	}
	for name, target := range systemdLinks {
		a.Link(name, target)
	}
	if suite == PackageSuite {
		data, err := debianPackage()
		if err != nil {
			return nil, err
		}
		a.File(guestPackage, 0o644, data)
		return a.End(), nil
	}
	if err := l.byHand(a); err != nil {
		return nil, err
	}
	return a.End(), nil
}

// byHand installs Polder as one does without a package.
func (l *Lab) byHand(a *qemu.Archive) error {
	for _, tool := range binaries.Tools {
		a.File("usr/local/bin/"+tool, 0o755, l.files["bin/"+tool])
	}
	a.Link("etc/systemd/system/multi-user.target.wants/polder.target", "../polder.target")
	deploy, err := deployment()
	if err != nil {
		return err
	}
	for name, file := range deploy {
		a.File(name, file.perm, file.data)
	}
	return nil
}

// top is the repository.
func top() (string, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "polder").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	return strings.TrimSpace(string(dir)), nil
}

// debianPackage builds the .deb of this machine's architecture, as in a release.
func debianPackage() ([]byte, error) {
	dir, err := os.MkdirTemp("", "polder-dist-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	repository, err := top()
	if err != nil {
		return nil, err
	}
	dist := exec.Command(filepath.Join(repository, "scripts/dist"), "-o", filepath.Join(dir, "dist"), "packages")
	dist.Env = append(os.Environ(), "ARCHES="+runtime.GOARCH, "VERSION=0.1.0-test", "SOURCE_DATE_EPOCH=1700000000", "FORMATS=deb")
	if out, err := dist.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", dist, err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "dist/*.deb"))
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("%s made %q: want one .deb (%w)", dist, found, err)
	}
	return os.ReadFile(found[0])
}

type file struct {
	perm int
	data []byte
}

// deployment is deploy/ at the path to which docs/supervisor.md copies it.
func deployment() (map[string]file, error) {
	repository, err := top()
	if err != nil {
		return nil, err
	}
	deploy := filepath.Join(repository, "deploy")
	out := map[string]file{}
	for _, part := range []string{"s6", "systemd"} {
		err := filepath.WalkDir(filepath.Join(deploy, part), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			info, infoErr := os.Stat(path) // one is a link
			if err = errors.Join(err, infoErr); err != nil {
				return err
			}
			f := file{int(info.Mode().Perm()), data}
			name, _ := filepath.Rel(deploy, path) // it is below
			out["usr/local/lib/polder/"+name] = f
			inside, _ := strings.CutPrefix(name, "systemd/")
			switch {
			case strings.HasPrefix(inside, "sysusers.d/"), strings.HasPrefix(inside, "tmpfiles.d/"):
				out["etc/"+inside] = f
			case part == "systemd":
				out["etc/systemd/system/"+inside] = f
			case name == "s6/polder.env":
				out["etc/polder/polder.env"] = f
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
