// Package faults breaks what the tools depend on: processes, files, disks, clocks and lines. It checks the resulting state.
package faults

import (
	"os"
	"testing"

	"polder/tests/binaries"
)

// bin is the directory of the tools. It belongs to this process alone: some tests find processes by the path of their program.
var bin string

func TestMain(m *testing.M) { os.Exit(binaries.Main(m, &bin)) }
