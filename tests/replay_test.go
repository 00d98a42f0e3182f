package tests

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/tests/await"
	"polder/tests/binaries"
)

// A keyboard is a terminal on which a recording is played, and the keys that are pressed there.
type keyboard struct {
	*os.File
	mu    sync.Mutex
	drawn []byte
}

// startOnTerminal runs a command on a terminal of 120 columns and 40 lines, which is its controlling terminal.
func startOnTerminal(t *testing.T, cmd *exec.Cmd) *keyboard {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("make a terminal: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	cmd.Stdout = slave
	cmd.ExtraFiles = []*os.File{slave}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k := &keyboard{File: master}
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, err := master.Read(buffer)
			k.mu.Lock()
			k.drawn = append(k.drawn, buffer[:n]...)
			k.mu.Unlock()
			if err != nil {
				return // the command has ended
			}
		}
	}()
	return k
}

// sequence is an escape sequence with which report draws.
var sequence = regexp.MustCompile("\x1b\\[\\??[0-9;]*[A-Za-z]")

// screen is the newest complete screen, as text.
func (k *keyboard) screen() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	drawn := k.drawn
	end := bytes.LastIndex(drawn, []byte("\x1b[?2026l"))
	if end < 0 {
		return ""
	}
	begin := bytes.LastIndex(drawn[:end], []byte("\x1b[?2026h"))
	return sequence.ReplaceAllString(string(drawn[begin:end]), "")
}

// press presses keys and waits until the screen has all of the texts, and none of those that begin with a "!".
func (k *keyboard) press(t *testing.T, keys string, texts ...string) {
	t.Helper()
	if _, err := k.WriteString(keys); err != nil {
		t.Fatal(err)
	}
	await.Until(t, 3*time.Minute, fmt.Sprintf("the screen after %q", keys), func() string {
		screen := k.screen()
		for _, text := range texts {
			if not, is := strings.CutPrefix(text, "!"); is == strings.Contains(screen, not) {
				return fmt.Sprintf("want %q:\n%s", text, screen)
			}
		}
		return ""
	})
	if screen := k.screen(); strings.Contains(screen, "STALE") {
		t.Errorf("after %q a recording is called stale:\n%s", keys, screen)
	}
}

// A recording is played on a terminal with its own clock and keys: space, arrows, those with shift, e, /, ? and q.
func TestReplayKeys(t *testing.T) {
	t.Parallel()
	samples, err := exec.Command("gzip", "-dc", "../scripts/demo-48cpu.jsonl.gz").Output()
	if err != nil {
		t.Fatal(err)
	}
	day := filepath.Join(t.TempDir(), "day.jsonl")
	if err := os.WriteFile(day, pipe(t, pipe(t, samples, "advise"), "evict", "--dry-run"), 0o644); err != nil {
		t.Fatal(err)
	}
	var times []string
	for _, m := range regexp.MustCompile(`(?m)^\{"v":1,"node":"node-48","time":"[^T]*T([0-9:]{8})`).FindAllSubmatch(samples, -1) {
		times = append(times, string(m[1])+"Z")
	}
	at := slices.IndexFunc(times, func(s string) bool { return s >= "08:46:10" })
	if at < 1 || at+1 >= len(times) {
		t.Fatalf("the recording's times are %v", times)
	}

	var log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binaries.Path(t, "report"), "--speed", "0.01", "--from", "08:46:10", "--input", day)
	cmd.Env = append(os.Environ(), "TERM=xterm", "LANG=C.UTF-8", "NO_COLOR=1")
	cmd.Stderr = &log
	k := startOnTerminal(t, cmd)
	defer func() {
		if t.Failed() {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()         // it was killed
			t.Log(log.String())
		}
	}()
	k.press(t, "", times[at], "recording", "0.01×", "batch/spark-1", "shop/web")
	k.press(t, " ", times[at], "stopped")
	k.press(t, " ", times[at], "!stopped")
	k.press(t, "+", "0.02×")
	k.press(t, "-", "0.01×")
	k.press(t, "\x1b[C", times[at+1], "stopped")
	k.press(t, "\x1b[D", times[at])
	k.press(t, "\x1b[1;2D", times[0])
	k.press(t, "\x1b[1;2C", times[len(times)-1], "the end")
	k.press(t, "<", times[0])
	k.press(t, "e", "fell from", "!"+times[0])
	k.press(t, "<", times[0], "!fell from")
	k.press(t, "/spark-2", "/spark-2_", "batch/spark-2", "!shop/web")
	k.press(t, "\r", "!/spark-2_", "pods 1 of 4 with \"spark-2\"")
	k.press(t, "\x1b", "pods 4", "shop/web")
	k.press(t, "?", "shift-left, shift-right", "the next eviction or squeeze", "!shop/web")
	k.press(t, "x", "shop/web", "!shift-left")
	if _, err := k.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after q: %v: %s", err, log.String())
	}
	if log.Len() > 0 {
		t.Errorf("report logs %q; want nothing", log.String())
	}
}
