// Package wire is the protocol between a node's harness and its first process.
package wire

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ConfigFile is the Config's name in the node's directory.
const ConfigFile = "node.json"

// ExitHarness is the exit code if the harness itself failed.
const ExitHarness = 125

// Config is a node's configuration, for its first process.
type Config struct {
	// Name is the node's name and host name.
	Name string
	// Programs is the directory of containerd, ctr, runc and kubelet.
	Programs string
	// Cgroup is the node's own in every hierarchy, its root within.
	Cgroup string
	// Images are archives to be imported.
	Images []string
	// Kubelet are the flags beside those that name files in the node's directory.
	Kubelet []string
}

// Files in the node's directory.
const (
	ContainerdConfig = "containerd.toml"
	KubeletConfig    = "kubelet.json"
	Kubeconfig       = "kubeconfig"
)

// Socket is containerd's, within the node.
const Socket = "/run/containerd/containerd.sock"

// Hierarchy is a mounted cgroup hierarchy.
type Hierarchy struct {
	// Mount is its path, Type cgroup or cgroup2, Options what distinguishes it: cpu, or name=systemd.
	Mount, Type, Options string
}

// Hierarchies are those under /sys/fs/cgroup.
func Hierarchies() ([]Hierarchy, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []Hierarchy
	for line := range strings.Lines(string(data)) {
		before, after, ok := strings.Cut(line, " - ")
		fields, super := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(super) < 3 || !strings.HasPrefix(super[0], "cgroup") || !strings.HasPrefix(fields[4], "/sys/fs/cgroup/") {
			continue
		}
		h := Hierarchy{Mount: fields[4], Type: super[0]}
		if h.Type == "cgroup" {
			var kept []string
			for option := range strings.SplitSeq(super[2], ",") {
				if option != "rw" && option != "ro" && option != "xattr" && !strings.HasPrefix(option, "release_agent=") {
					kept = append(kept, option)
				}
			}
			h.Options = strings.Join(kept, ",")
		}
		found = append(found, h)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no cgroup hierarchy under /sys/fs/cgroup: is this cgroup v1?")
	}
	return found, nil
}

// Join moves this process into the cgroup of every hierarchy.
func Join(hierarchies []Hierarchy, cgroup string) error {
	for _, h := range hierarchies {
		if err := os.WriteFile(filepath.Join(h.Mount, cgroup, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("join %s in %s: %w", cgroup, h.Mount, err)
		}
	}
	return nil
}
