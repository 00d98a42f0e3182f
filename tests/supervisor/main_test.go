// Package supervisor runs the pipe as users do: under s6, systemd, cron and scripts/colocate.
package supervisor

import (
	"flag"
	"os"
	"testing"

	"polder/tests/binaries"
)

// bin is the directory of the tools. It is this process's own: some tests look for processes by the path of their program.
var bin string

var tools = binaries.Tools

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // the tests wait for processes most of the time
		panic(err)
	}
	os.Exit(binaries.Main(m, &bin))
}
