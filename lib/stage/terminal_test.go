package stage

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A tool that reads a keyboard prints that, because it would otherwise seem to hang; one that reads a pipe prints nothing.
func TestFilterPrintsThatItWaitsForATerminal(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("make a terminal: %v", err)
	}
	defer master.Close()
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	if _, err := master.WriteString("\x04"); err != nil { // Ctrl-D: the end of the input
		t.Fatal(err)
	}
	const waits = "echo: waits for ticks from this terminal"
	h := &harness{in: slave}
	if status := h.run(t, h.echo(filterKind, nil)); status != 0 || strings.Count(h.err.String(), waits) != 1 {
		t.Errorf("on a terminal: status %d, %q; want %q once", status, &h.err, waits)
	}

	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in.Close()
	h = &harness{in: out}
	if status := h.run(t, h.echo(filterKind, nil)); status != 0 || h.err.Len() > 0 {
		t.Errorf("on a pipe: status %d, %q; want nothing", status, &h.err)
	}
}
