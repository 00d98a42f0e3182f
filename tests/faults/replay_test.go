package faults

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"polder/tests/await"
)

// shownText is a terminal's output so far.
type shownText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *shownText) read(master *os.File) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := master.Read(buffer)
		s.mu.Lock()
		s.text.Write(buffer[:n])
		s.mu.Unlock()
		if err != nil {
			return // the other end is closed
		}
	}
}

// since is the output since a mark, and the current mark.
func (s *shownText) since(mark int) (string, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ours.ReplaceAllString(s.text.String()[mark:], ""), s.text.Len()
}

// recording is a recording of minutes with a tick every second and a squeeze at 08:05:00. One pod's name is an escape sequence.
func recording(ticks int) []byte {
	var b bytes.Buffer
	for i := range ticks {
		need, offer := 1000, 8000
		if i >= 300 {
			need, offer = 7000, 2000
		}
		fmt.Fprintf(&b, `{"v":1,"node":"n","time":"2026-11-21T08:%02d:%02dZ","sample":{"intervalSeconds":1,"topology":{"cpus":"0-9"},"pods":[`+
			`{"uid":"a","namespace":"shop","name":"web","qos":"shared","usageMilliCPU":%d},{"uid":"b","name":"\u001b]0;x\u0007","qos":"shared"}]},`+
			`"advice":{"policy":"harvest","reclaimed":{"milliCPU":%d}}}`+"\n", i/60, i%60, need, offer)
	}
	return b.Bytes()
}

// TestReplay plays a recording from its file and from a pipe, with keys typed on the terminal, and checks that the terminal is restored.
func TestReplay(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "day.jsonl")
	if err := os.WriteFile(path, recording(600), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"file", "pipe"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			master, slave := openTerminal(t)
			defer master.Close()
			var log bytes.Buffer
			cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "report"), "--speed", "0.01", "--from", "08:01")
			cmd.Stdout, cmd.Stderr = slave, &log
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1}
			if from == "file" {
				f, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				cmd.Stdin = f
			} else {
				cmd.Stdin = bytes.NewReader(recording(600)) // which is copied into a pipe
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			slave.Close()
			var screen shownText
			done := make(chan struct{})
			go func() { defer close(done); screen.read(master) }()
			mark := 0
			press := func(keys string, want ...string) {
				t.Helper()
				if _, err := master.WriteString(keys); err != nil {
					t.Fatal(err)
				}
				await.Until(t, patient, fmt.Sprintf("%q after %q", want, keys), await.Is(func() bool {
					text, now := screen.since(mark)
					for _, w := range want {
						if !strings.Contains(text, w) {
							return false
						}
					}
					mark = now
					return true
				}))
			}
			press("", "2026-11-21 08:01:00Z", "recording, playing, 0.01×, tick 61 of 600 ")
			press(" ", "stopped")
			press("\x1b[C", "08:01:01Z", "tick 62")
			press("\x1b[D", "08:01:00Z", "tick 61")
			press("\x1b[1;2C", "08:02:00Z")
			press("\x1b[1;2D", "08:01:00Z")
			press("e", "08:04:59Z", "the offer fell from 8.00 to 2.00 cores: shop/web needed 7.00")
			press("e", "No eviction and no squeeze from here on.")
			press("/we", " /we_", `pods 1 of 2`)
			press("\r\x1b", "pods 2 ")
			press("?", "the keys of a recording")
			press("x", "tick 300 of 600")
			press("+", "0.02×")
			press("q")
			if err := cmd.Wait(); err != nil {
				t.Errorf("report: %v: %s", err, clip(log.String(), 2000))
			}
			<-done
			text, _ := screen.since(0)
			if strings.ContainsAny(text, "\x1b\x07") || strings.Contains(text, "STALE") {
				t.Error("the screen has foreign escape sequences, or calls a recording stale")
			}
		})
	}
}
