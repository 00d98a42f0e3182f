// Command guest is the first process of a node: it sets up the node's view of the machine, starts containerd and kubelet in it, and
// starts what runs beside them. The harness, package node, is its only caller:
//
//	guest boot DIR          as process 1 of new mount, process and host name namespaces; DIR has node.json
//	guest serve DIR         the same process, once it has its cgroup namespace
//	guest enter DIR PID CMD... runs a command in the node whose first process has this PID,
//	guest become CMD...     which is started as this
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"polder/tests/node/wire"
)

// The process's first thread sets the signal that ends a node with its test, before it executes this program. If another thread
// executed the next program, the kernel would forget the signal: everything runs on the first thread.
func init() { runtime.LockOSThread() }

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(wire.ExitHarness)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("arguments %q: want boot, serve or enter and a directory", args)
	}
	if args[0] == "become" {
		return become(args[1:])
	}
	dir := args[1]
	data, err := os.ReadFile(filepath.Join(dir, wire.ConfigFile))
	if err != nil {
		return err
	}
	var c wire.Config
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("%s: %w", wire.ConfigFile, err)
	}
	switch {
	case args[0] == "boot":
		return boot(dir, c)
	case args[0] == "serve":
		return serve(dir, c)
	case args[0] == "enter" && len(args) > 3:
		return enter(c, args[2], args[3:])
	}
	return fmt.Errorf("arguments %q: want boot, serve or enter", args)
}
