package stage

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/tests/await"
)

// While a write into a FIFO waits for a next stage that hangs, the heartbeat is touched. Otherwise it would stop when the FIFO is full, the
// next stage would never be far behind it, and no check would find which of the two hangs.
func TestHeartbeatWhileAWriteWaits(t *testing.T) {
	interval := heartbeatInterval
	t.Cleanup(func() { heartbeatInterval = interval })
	heartbeatInterval = time.Millisecond
	dir := t.TempDir()
	beat, fifo := filepath.Join(dir, "beat"), filepath.Join(dir, "fifo")
	more := `{"pad":"` + strings.Repeat("x", 2*pipeBytes) + `",` // more than the FIFO holds
	h := &harness{}
	done := make(chan int)
	go func() {
		done <- h.echo(filterKind, nil).Execute(t.Context(), Env{
			Args: []string{"echo", "--heartbeat", beat, "--output", "fifo:" + fifo},
			In:   strings.NewReader(more + line("a", 0)[1:] + "\n"), Out: io.Discard, Err: &h.err, Getenv: os.Getenv, Now: time.Now,
		})
	}()
	touched := func() time.Time {
		info, err := os.Stat(beat)
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	await.Until(t, time.Minute, "the heartbeat is touched", await.Is(func() bool { return !touched().IsZero() }))
	for range 3 {
		previous := touched()
		await.Until(t, time.Minute, "the heartbeat is touched while the write waits", await.Is(func() bool { return touched().After(previous) }))
	}
	next, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	read := make(chan error)
	go func() {
		_, err := io.Copy(io.Discard, next)
		read <- err
	}()
	if status := <-done; status != 0 {
		t.Errorf("exit status %d: %s", status, &h.err)
	}
	if err := <-read; err != nil {
		t.Error(err)
	}
	last := touched()
	await.During(t, 50*time.Millisecond, "the tool has ended", func() string {
		if touched().After(last) {
			return "the heartbeat is touched"
		}
		return ""
	})
}
