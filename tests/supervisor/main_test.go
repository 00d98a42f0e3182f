// Package supervisor runs the pipe as users do: under s6, systemd, cron and scripts/colocate.
package supervisor

import (
	"flag"
	"os"
	"testing"

	"polder/tests/binaries"
)

// bin is the directory of the tools. It belongs to this process alone: some tests find processes by the path of their program.
var bin string

var tools = binaries.Tools

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // the tests mostly wait for processes
		panic(err)
	}
	os.Exit(binaries.Main(m, &bin))
}
