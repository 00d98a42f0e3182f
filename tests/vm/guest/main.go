// Command guest runs in the virtual machines: as /init it mounts the file systems, runs the suites of tests that the
// kernel's command line names in their own process, and powers the machine off. With another first argument it is
// a load: busy threads or used memory.
package main

import (
	"fmt"
	"os"
)

func main() {
	if os.Getpid() == 1 {
		boot()
		return
	}
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want a command: suite, spin, eat, hoard, writes or commits")
	}
	switch args[0] {
	case "suite":
		return runSuites(args[1:])
	case "spin":
		return spin(args[1:])
	case "eat":
		return eat(args[1:])
	case "writes":
		return writes(args[1:])
	case "commits":
		return commits(args[1:])
	case "hoard":
		return hoard(args[1:])
	}
	return fmt.Errorf("unknown command %q", args[0])
}
