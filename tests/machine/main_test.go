package machine

import (
	"os"
	"testing"

	"polder/tests/binaries"
)

// bin is the directory of the tools. It is this process's own: tests look for processes by the path of their program.
var bin string

func TestMain(m *testing.M) { os.Exit(binaries.Main(m, &bin)) }
