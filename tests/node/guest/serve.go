package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"polder/tests/node/wire"
)

// serve runs the node until it is killed.
func serve(dir string, c wire.Config) error {
	if err := view(dir, c); err != nil {
		return err
	}
	go reap()
	program := func(name string) string { return filepath.Join(c.Programs, name) }
	path := c.Programs + ":/usr/sbin:/usr/bin:/sbin:/bin"
	if err := os.Setenv("PATH", path); err != nil {
		return err
	}
	containerd, err := start(filepath.Join(dir, "containerd.log"), program("containerd"), "--config", filepath.Join(dir, wire.ContainerdConfig))
	if err != nil {
		return err
	}
	if err := listening(wire.Socket, containerd); err != nil {
		return err
	}
	imports := make([]<-chan syscall.WaitStatus, len(c.Images))
	for i, image := range c.Images {
		if imports[i], err = start(filepath.Join(dir, "images.log"), program("ctr"), "-a", wire.Socket, "-n", "k8s.io", "images", "import", image); err != nil {
			return err
		}
	}
	for i, done := range imports {
		if status := <-done; status != 0 {
			return fmt.Errorf("import %s: status %d: see images.log", c.Images[i], status)
		}
	}
	flags := append([]string{
		"--config=" + filepath.Join(dir, wire.KubeletConfig), "--kubeconfig=" + filepath.Join(dir, wire.Kubeconfig),
		"--hostname-override=" + c.Name, "--cert-dir=/var/lib/kubelet/pki", "--v=2",
	}, c.Kubelet...)
	for {
		kubelet, err := start(filepath.Join(dir, "kubelet.log"), program("kubelet"), flags...)
		if err != nil {
			return err
		}
		select {
		case status := <-kubelet: // as its supervisor would, because tests kill it
			fmt.Fprintf(os.Stderr, "guest: kubelet ended with status %#x, starting it again\n", status)
			time.Sleep(200 * time.Millisecond)
		case status := <-containerd:
			return fmt.Errorf("containerd ended with status %#x", status)
		}
	}
}

// listening waits for a socket that a program listens on.
func listening(socket string, server <-chan syscall.WaitStatus) error {
	for {
		connection, err := net.Dial("unix", socket)
		if err == nil {
			return connection.Close()
		}
		select {
		case status := <-server:
			return fmt.Errorf("no program listens on %s: its server ended with status %#x", socket, status)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A node's first process inherits all orphans, so it waits for every child, not only for those that it knows.
var children = struct {
	sync.Mutex
	waiting map[int]chan syscall.WaitStatus
}{waiting: map[int]chan syscall.WaitStatus{}}

// start starts a program with its output in a log. Its status comes when it has ended.
func start(log, path string, args ...string) (<-chan syscall.WaitStatus, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	children.Lock() // it may end before its channel exists
	defer children.Unlock()
	process, err := os.StartProcess(path, append([]string{path}, args...), &os.ProcAttr{Files: []*os.File{null, out, out}})
	if err != nil {
		return nil, err
	}
	ended := make(chan syscall.WaitStatus, 1)
	children.waiting[process.Pid] = ended
	return ended, process.Release()
}

func reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil: // no child yet
			time.Sleep(20 * time.Millisecond)
			continue
		}
		children.Lock()
		if ended, ok := children.waiting[pid]; ok {
			delete(children.waiting, pid)
			ended <- status
		}
		children.Unlock()
	}
}
