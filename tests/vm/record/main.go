// Command record makes the recording that the demonstration plays where cgroups cannot be written: collect's output on
// a node of 48 CPUs, two services and two batch jobs, in a virtual machine. scripts/setup-vm installs its prerequisites.
//
//	go run ./tests/vm/record scripts/demo-48cpu.jsonl.gz
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"polder/tests/vm"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: record FILE.jsonl.gz")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := record(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		stop()
		os.Exit(1)
	}
}

func record(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "polder-record-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	lab, err := vm.Open(ctx, dir)
	if err != nil {
		return err
	}
	machine := vm.Guide
	machine.MemoryMiB = 32 << 10 // a usual node's memory; the host provides only what is used
	// Many emulated CPUs share few real ones, and lose timer ticks then. The node's CPU time is right only if the kernel
	// takes it from its clock instead of counting timer ticks.
	machine.Parameters = "nohz_full=1-47"
	report, err := lab.Run(ctx, machine, "record48")
	if err != nil {
		return fmt.Errorf("%w\n%s\n%s", err, report, report.Tail())
	}
	fmt.Fprint(os.Stderr, report)
	data, err := report.File("recording")
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
