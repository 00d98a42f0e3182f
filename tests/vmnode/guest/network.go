package main

import (
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"polder/tests/vmnode/wire"
)

// network makes the guest a host of QEMU's user network.
func network() error {
	if err := unix.Sethostname([]byte(wire.Node)); err != nil {
		return fmt.Errorf("set the host's name: %w", err)
	}
	if err := os.WriteFile("/etc/hosts", []byte("127.0.0.1 localhost\n"+wire.Address+" "+wire.Node+"\n"), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"addr", "add", wire.Address + "/24", "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		{"route", "add", "default", "via", wire.Host},
	} {
		if out, err := exec.Command("/bin/ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	return nil
}
