package vmnode

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"polder/tests/cluster/controlplane"
	"polder/tests/vmnode/wire"
)

// Flatten returns a kubeconfig for use in the guest: with all files in it, and the host's loopback under its
// address there.
func Flatten(c *controlplane.ControlPlane, path string) []byte {
	c.Helper()
	text := c.Kubectl("--kubeconfig", path, "config", "view", "--flatten", "--raw")
	server := "server: " + c.Server()
	if !strings.Contains(text, server) {
		c.Fatalf("no %q in %s", server, text)
	}
	there := strings.Replace(server, "127.0.0.1", wire.Host, 1) + "\n    tls-server-name: localhost"
	return []byte(strings.Replace(text, server, there, 1) + "\n")
}

// StartVMNode starts a node in a virtual machine and joins it to the control plane, which must have been started with the
// egress' flag. The node ends with the test.
func StartVMNode(t testing.TB, c *controlplane.ControlPlane, e *Egress, o Options) *Node {
	t.Helper()
	o.Programs = controlplane.Need(t, programs...)
	path, err := c.KubeconfigForUser("system:node:"+wire.Node, "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	o.Kubeconfig = Flatten(c, path)
	if o.CA, err = os.ReadFile(c.CA()); err != nil {
		t.Fatal(err)
	}
	if o.Log == nil {
		o.Log = t.Logf
	}
	// A guest with many CPUs has the host to itself as long as it runs: see qemu.Machine.Turn.
	done, err := o.Machine.Turn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	dir := t.TempDir()
	n, err := Start(t.Context(), dir, o)
	if err != nil {
		t.Fatal(fmt.Errorf("start a node in a virtual machine: %w", err))
	}
	t.Cleanup(n.Stop)
	e.Lead(n.KubeletAddress)
	return n
}
