package faults

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a terminal of 120 columns.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("make a terminal: %v", err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120})
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// ours are the escape sequences with which report draws: colours, the cursor, clearing, and modes.
var ours = regexp.MustCompile("\x1b\\[\\??[0-9;]*[A-Za-z]")

// TestHostileScreen draws the whole corpus on a real terminal, which receives only report's own sequences.
func TestHostileScreen(t *testing.T) {
	t.Parallel()
	master, slave := openTerminal(t)
	defer master.Close()
	var in bytes.Buffer
	for _, h := range hostileLines() {
		in.Write(fillIn(h.line, "n"))
	}
	var log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "report"), "--to", "tty")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, slave, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	screen, _ := io.ReadAll(master) // ends with EIO when the other end is closed
	if err := cmd.Wait(); err != nil {
		t.Errorf("report: %v: %s", err, clip(log.String(), 2000))
	}
	checkLog(t, "report", log.String())
	if len(screen) < 1000 {
		t.Errorf("the screen has %d bytes; want pictures", len(screen))
	}
	for _, r := range string(ours.ReplaceAll(screen, nil)) {
		if r < 0x20 && r != '\n' && r != '\r' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x202e {
			t.Fatalf("the screen gets %U", r)
		}
	}
	if title := []byte("title"); bytes.Contains(screen, append([]byte("\x1b]0;"), title...)) {
		t.Error("a pod's name sets the terminal's title")
	}
}
