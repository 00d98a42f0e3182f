package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"polder/tests/node/wire"
)

// enter runs a command in the namespaces of the node's first process and in the node's cgroups, forwards signals to it, and
// exits with its status. It ends with this process.
func enter(c wire.Config, pid string, command []string) error {
	hierarchies, err := wire.Hierarchies()
	if err != nil {
		return err
	}
	if err := wire.Join(hierarchies, c.Cgroup); err != nil {
		return err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2)
	// This thread alone changes namespaces and starts the command; it is kept, because its end would end the command.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread that shares its root cannot change its mounts
		return fmt.Errorf("unshare the root: %w", err)
	}
	var opened []*os.File
	for _, namespace := range []string{"cgroup", "uts", "pid", "mnt"} {
		file, err := os.Open(filepath.Join("/proc", pid, "ns", namespace))
		if err != nil {
			return fmt.Errorf("enter the node: %w", err)
		}
		defer file.Close()
		opened = append(opened, file)
	}
	directory, err := os.Getwd()
	if err != nil {
		return err
	}
	for _, file := range opened {
		if err := unix.Setns(int(file.Fd()), 0); err != nil {
			return fmt.Errorf("enter %s: %w", file.Name(), err)
		}
	}
	alive, held, err := os.Pipe() // its other end is open as long as this process lives
	if err != nil {
		return err
	}
	defer held.Close()
	cmd := exec.Command(os.Args[0], append([]string{"become"}, command...)...)
	cmd.ExtraFiles = []*os.File{alive} // as aliveFD
	cmd.Dir = directory                // entering mounts leads to their root
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		for received := range signals {
			_ = cmd.Process.Signal(received) // it may have ended
		}
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	status := exit.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		os.Exit(128 + int(status.Signal()))
	}
	os.Exit(status.ExitStatus())
	return nil
}

// aliveFD is the descriptor of the pipe by which become checks that the process that entered lives.
const aliveFD = 3

// become sets the death signal of the process that entered, and executes the command. (os/exec checks the parent in the
// same process namespace instead. A parent of another one is process 0, and so is a later reaper.)
func become(command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the death signal belongs to the thread
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("ask for a signal at the parent's death: %w", err)
	}
	poll := []unix.PollFd{{Fd: aliveFD, Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, 0); n != 0 || err != nil { // it ended before the signal was set
		return fmt.Errorf("the process that entered the node is gone: %x, %w", poll[0].Revents, err)
	}
	if err := unix.Close(aliveFD); err != nil {
		return err
	}
	return fmt.Errorf("start %s: %w", path, syscall.Exec(path, command, os.Environ()))
}
