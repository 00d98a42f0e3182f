// Package node is a real Kubernetes node on this machine: kubelet, containerd and runc over its cgroup v1 hierarchies, joined
// to a control plane of package controlplane. The node's first process (guest) has its own namespaces for processes, mounts, cgroups
// and its host name: a command run by Enter sees a machine whose /var/lib/kubelet is the kubelet's and whose pods are in
// /kubepods. When that process ends, all of the node ends with it. Root on cgroup v1.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/program"
	"polder/tests/node/wire"
	"polder/tests/stale"
)

// Options are a test's settings. The zero value is a node that is called node-1.
type Options struct {
	Name string
	// CPUManagerPolicy is kubelet's, none by default. ReservedCPUs are those that the static policy never assigns: "0" by default.
	CPUManagerPolicy, ReservedCPUs string
	// Kubelet are further fields of the KubeletConfiguration.
	Kubelet map[string]any
	// Flags are further flags of kubelet.
	Flags []string
	// Images are archives to be imported beside those of package image.
	Images []string
}

// Node is a running node. Its helpers fail the test of its control plane.
type Node struct {
	*controlplane.ControlPlane
	Name string
	// Cgroup is the node's in every hierarchy of the machine; within the node it is the root.
	Cgroup string

	dir     string
	program string // the guest's
	guest   *program.Program
	stopped bool
}

// startLimit allows for a loaded machine; a node is Ready in some 3 s.
const startLimit = 10 * time.Minute

// Start starts a node, waits until it is Ready and open to the scheduler, and ends it with the test. Its object is deleted too: in a
// shared control plane no further pod is bound to it.
func Start(t testing.TB, c *controlplane.ControlPlane, o Options) *Node {
	t.Helper()
	n, err := Open(t, c, o)
	if n != nil {
		t.Cleanup(func() {
			n.check(t)
			if err := n.stop(); err != nil {
				t.Error(err)
			}
			n.API("DELETE", "/api/v1/nodes/"+n.Name, "")
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Open is Start of a node that outlives the test; Stop ends it. A node that did not start is returned with the error.
func Open(t testing.TB, c *controlplane.ControlPlane, o Options) (*Node, error) {
	t.Helper()
	programs := controlplane.Need(t, "kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "runc")
	if os.Getuid() != 0 {
		t.Fatal("a node needs root")
	}
	images, err := Images()
	if err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = "node-1"
	}
	n := &Node{ControlPlane: &controlplane.ControlPlane{TB: t, Plane: c.Plane}, Name: o.Name}
	if err := removeStale(); err != nil {
		return nil, err
	}
	if n.dir, err = os.MkdirTemp("", stale.Name(prefix)); err != nil {
		return nil, err
	}
	n.Cgroup = "/" + filepath.Base(n.dir)
	if n.program, err = Guest("polder/tests/node/guest"); err != nil {
		return nil, err
	}
	o.Images = append(slices.Clone(images), o.Images...)
	return n, n.start(programs, o)
}

// For returns the node with helpers that fail t, for tests that share it.
func (n *Node) For(t testing.TB) *Node {
	t.Helper()
	of := *n
	of.ControlPlane = &controlplane.ControlPlane{TB: t, Plane: n.Plane}
	return &of
}

// check fails the test if the node ended by itself, and logs the ends of its logs if the test failed.
func (n *Node) check(t testing.TB) {
	t.Helper()
	if died := n.died(); died != nil {
		t.Error(died)
	}
	if t.Failed() {
		t.Log(n.Logs(25))
	}
}

func (n *Node) start(programs string, o Options) error {
	if err := makeCgroups(n.Cgroup); err != nil {
		return err
	}
	if err := n.configure(programs, o); err != nil {
		return err
	}
	config, err := json.Marshal(wire.Config{
		Name: n.Name, Programs: programs, Cgroup: n.Cgroup, Kubelet: o.Flags,
		Images: o.Images,
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(n.path(wire.ConfigFile), config, 0o600); err != nil {
		return err
	}
	cmd := exec.Command(n.program, "boot", n.dir)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "GOGC=400"} // garbage collection is rare, because it takes CPU time
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS}
	if n.guest, err = program.Start(n.path("guest.log"), cmd); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), startLimit, fmt.Errorf("after %s", startLimit))
	defer cancel()
	if err := n.guest.Await(ctx, n.ready); err != nil {
		return fmt.Errorf("%w\n%s", err, n.Logs(25))
	}
	n.Untaint(n.Name)
	return nil
}

func (n *Node) path(name string) string { return filepath.Join(n.dir, name) }

// configure writes the configuration of containerd and kubelet.
func (n *Node) configure(programs string, o Options) error {
	kubeconfig, err := n.KubeconfigForUser("system:node:"+n.Name, "system:nodes")
	if err != nil {
		return err
	}
	if err := os.Symlink(kubeconfig, n.path(wire.Kubeconfig)); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	kubelet := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": "0.0.0.0", "port": port, "healthzPort": 0, // the API server reaches it by the node's address
		"cgroupDriver": "cgroupfs", "failCgroupV1": false, "enforceNodeAllocatable": []string{"pods"},
		"containerRuntimeEndpoint": "unix://" + wire.Socket,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true},
			"x509": map[string]any{"clientCAFile": n.CA()},
		},
		"authorization":          map[string]any{"mode": "Webhook"},
		"makeIPTablesUtilChains": false, "failSwapOn": false, "resolvConf": "",
		"volumePluginDir":           "/var/lib/kubelet/plugins-exec",
		"evictionHard":              map[string]any{"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
		"nodeStatusUpdateFrequency": "5s",
	}
	if o.CPUManagerPolicy != "" {
		kubelet["cpuManagerPolicy"] = o.CPUManagerPolicy
		if o.CPUManagerPolicy == "static" && o.ReservedCPUs == "" {
			o.ReservedCPUs = "0"
		}
	}
	if o.ReservedCPUs != "" {
		kubelet["reservedSystemCPUs"] = o.ReservedCPUs
	}
	maps.Copy(kubelet, o.Kubelet)
	data, err := json.MarshalIndent(kubelet, "", "  ")
	if err != nil {
		return err
	}
	for _, sub := range []string{"cni/bin", "cni/conf"} {
		if err := os.MkdirAll(n.path(sub), 0o755); err != nil {
			return err
		}
	}
	for name, file := range map[string]struct {
		text string
		mode os.FileMode
	}{
		wire.KubeletConfig:               {string(data), 0o644},
		wire.ContainerdConfig:            {strings.NewReplacer("$DIR", n.dir, "$PROGRAMS", programs).Replace(containerdConfig), 0o644},
		"cni/conf/10-addresses.conflist": {`{"cniVersion": "1.0.0", "name": "addresses", "plugins": [{"type": "addresses"}]}`, 0o644},
		"cni/bin/addresses":              {addresses, 0o755},
	} {
		if err := os.WriteFile(n.path(name), []byte(file.text), file.mode); err != nil {
			return err
		}
	}
	return nil
}

// containerdConfig is for runc over cgroupfs. A test's machine may lack CAP_SYS_RESOURCE: containers then keep containerd's
// oom_score_adj where kubelet asks for a lower one.
const containerdConfig = `version = 3
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'registry.local/pause:1'
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['$DIR/cni/bin']
  conf_dir = '$DIR/cni/conf'
  use_internal_loopback = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    SystemdCgroup = false
    BinaryName = '$PROGRAMS/runc'
`

// addresses is a CNI plugin that assigns addresses and makes no network: pods that need one use the host's.
const addresses = `#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}' ;;
ADD)
	n=$(printf '%d' 0x$(echo "$CNI_CONTAINERID" | cut -c 1-4))
	echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"'"$CNI_NETNS"'"}],"ips":[{"address":"10.200.'$((n / 256)).$((n % 256))'/16","interface":0}]}'
	;;
esac
`

// freePort is a port that the kernel gives to no client, on all of the machine's addresses. Control planes have higher ones. It is one of
// many: two nodes that start side by side must not choose the same one.
func freePort() (int, error) {
	for range 1000 {
		port := 12000 + rand.IntN(8000)
		if l, err := net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("find a free port for kubelet: none in 1000 tries")
}

// ready asks the API server.
func (n *Node) ready(context.Context) error {
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	status, answer := n.API("GET", "/api/v1/nodes/"+n.Name, "")
	if status != 200 {
		return fmt.Errorf("node %s: status %d", n.Name, status)
	}
	if err := json.Unmarshal(answer, &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" {
			if condition.Status == "True" {
				return nil
			}
			return fmt.Errorf("node %s is not ready: %s", n.Name, condition.Message)
		}
	}
	return fmt.Errorf("node %s has no condition Ready yet", n.Name)
}

// died returns an error for a node that ended by itself.
func (n *Node) died() error {
	if n.guest == nil {
		return nil
	}
	return n.guest.Died()
}

// Stop ends the node as a power failure does, and removes its remains on the machine.
func (n *Node) Stop() {
	n.Helper()
	if err := n.stop(); err != nil {
		n.Fatal(err)
	}
}

func (n *Node) stop() error {
	if n.stopped {
		return nil
	}
	n.stopped = true
	if n.guest != nil {
		n.guest.Kill()
	}
	return errors.Join(removeCgroups(n.Cgroup), os.RemoveAll(n.dir))
}

// Logs are the last lines of the node's programs' logs.
func (n *Node) Logs(lines int) string {
	var b strings.Builder
	for _, name := range []string{"guest", "containerd", "images", "kubelet"} {
		log := program.Program{Log: n.path(name + ".log")}
		fmt.Fprintf(&b, "--- %s of %s\n%s\n", name, n.Name, log.Tail(lines))
	}
	return b.String()
}
