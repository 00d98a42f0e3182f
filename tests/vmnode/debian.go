package vmnode

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"polder/tests/vm/qemu"
)

// agentUnit starts the agent as soon as systemd starts anything. The agent's processes are in its cgroup, except containers: they are in
// slices that kubelet and runc request from systemd.
const agentUnit = `[Unit]
Description=The agent of the tests
DefaultDependencies=no
[Service]
ExecStart=/usr/bin/guest ` + agentOfSystemd + `
Environment=PATH=/usr/sbin:/usr/bin:/opt/cni/bin HOME=/root
StandardOutput=append:/dev/console
StandardError=append:/dev/console
OOMPolicy=continue
TasksMax=infinity
KillMode=process
`

// agentOfSystemd is the argument with which the guest's program is the agent, and configures the network first.
const agentOfSystemd = "network-and-agent"

// debianLinks are the links of systemctl enable and systemctl mask: the agent is enabled; slow units that nothing here needs are masked.
var debianLinks = map[string]string{
	"etc/systemd/system/sysinit.target.wants/agent.service":       "../agent.service",
	"etc/systemd/system/default.target":                           "/lib/systemd/system/multi-user.target",
	"etc/systemd/system/multi-user.target.wants/remote-fs.target": "/dev/null",
	"etc/systemd/system/getty.target":                             "/dev/null",
	"etc/systemd/system/timers.target":                            "/dev/null",
	"etc/systemd/system/systemd-logind.service":                   "/dev/null",
	"etc/systemd/system/systemd-udevd.service":                    "/dev/null",
	"etc/systemd/system/systemd-udev-trigger.service":             "/dev/null",
	"etc/systemd/system/systemd-udevd-control.socket":             "/dev/null",
	"etc/systemd/system/systemd-udevd-kernel.socket":              "/dev/null",
}

// debian fills root with a small Debian, which starts the agent.
func debian(ctx context.Context, root string) error {
	archive, err := qemu.Root()
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "tar", "-C", root, "-xf", archive).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w: %s", archive, err, out)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/systemd/system/agent.service"), []byte(agentUnit), 0o644); err != nil {
		return err
	}
	for name, target := range debianLinks {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		if err := os.Symlink(target, path); err != nil {
			return err
		}
	}
	return nil
}

// cgroupParameters select the cgroup version that systemd mounts. Debian's systemd 252 still supports version 1; 258 and later do not.
func (o *Options) cgroupParameters() string {
	if o.Version1 {
		return " systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1"
	}
	return ""
}

// systemdDriver makes kubelet and runc use systemd for their cgroups. Kubelet refuses version 1 unless this setting allows it.
func systemdDriver(root string, version1 bool) error {
	driver := "cgroupDriver: systemd"
	if version1 {
		driver += "\nfailCgroupV1: false"
	}
	for name, change := range map[string][2]string{
		"etc/kubernetes/kubelet.yaml": {"cgroupDriver: cgroupfs", driver},
		"etc/containerd/config.toml":  {"SystemdCgroup = false", "SystemdCgroup = true"},
	} {
		path := filepath.Join(root, name)
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := strings.Replace(string(data), change[0], change[1], 1)
		if text == string(data) {
			return fmt.Errorf("%s has no %q", name, change[0])
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
