// Command guest is process 1 of the machine that is a node: it sets up disk, mounts and network, starts itself again as
// the agent, and then waits for orphans. The agent runs shell scripts that the host sends. If the disk has systemd, that is
// process 1, and starts this program as the agent.
package main

import (
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

func main() {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "agent":
		err = serve()
	case len(os.Args) > 1 && os.Args[1] == "network-and-agent": // systemd is process 1
		if err = network(); err == nil {
			err = serve()
		}
	case os.Getpid() != 1:
		err = fmt.Errorf("want process 1, or the argument agent or network-and-agent")
	case exists("/modules"):
		err = enterDisk() // returns on a failure only
	default:
		err = bringUp()
	}
	fmt.Fprintln(os.Stderr, "guest:", err)
	if os.Getpid() == 1 {
		unix.Sync()
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
	os.Exit(1)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// bringUp is process 1 on the disk.
func bringUp() error {
	if err := mountAll(); err != nil {
		return err
	}
	if err := network(); err != nil {
		return err
	}
	agent := exec.Command("/proc/self/exe", "agent")
	agent.Stdout, agent.Stderr = os.Stdout, os.Stderr
	agent.Env = []string{"PATH=/bin:/opt/cni/bin", "HOME=/root"}
	if err := agent.Start(); err != nil {
		return err
	}
	return reap(agent.Process.Pid)
}

// reap waits for the agent's end, and for every orphan meanwhile.
func reap(agent int) error {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("wait: %w", err)
		case pid == agent:
			return fmt.Errorf("the agent ended with status %d, signal %s", status.ExitStatus(), status.Signal())
		}
	}
}
