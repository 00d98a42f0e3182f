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

// enter runs a command in the namespaces of the node's first process and in the node's cgroups, hands signals on to it, and
// exits as it does. It dies with this process.
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
	// Of this thread alone, which starts the command, and which is kept: its end would be the command's.
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
	alive, held, err := os.Pipe() // it has an end for as long as this process lives
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

// aliveFD is the descriptor of the pipe by which become sees that the process that entered lives.
const aliveFD = 3

// become asks to die with the process that entered, and becomes the command. (What os/exec has for that looks for a parent in the
// same process namespace. A parent of another one is process 0, as is who adopts its children.)
func become(command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the wish is the thread's
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("ask for a signal at the parent's death: %w", err)
	}
	poll := []unix.PollFd{{Fd: aliveFD, Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, 0); n != 0 || err != nil { // it died before it was asked
		return fmt.Errorf("the process that entered the node is gone: %x, %w", poll[0].Revents, err)
	}
	if err := unix.Close(aliveFD); err != nil {
		return err
	}
	return fmt.Errorf("start %s: %w", path, syscall.Exec(path, command, os.Environ()))
}
