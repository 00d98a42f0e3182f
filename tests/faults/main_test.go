// Package faults breaks what the tools stand on: processes, files, disks, clocks and lines. It looks at what is left.
package faults

import (
	"os"
	"testing"

	"polder/tests/binaries"
)

// bin is the directory of the tools. It is this process's own: some tests look for processes by the path of their program.
var bin string

func TestMain(m *testing.M) { os.Exit(binaries.Main(m, &bin)) }
