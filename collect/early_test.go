package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/lib/stage"
	"polder/tests/await"
)

// TestNewBatchBringsTheNextTick: batch that starts between two ticks and that no cgroup above it covers has a tick, and with that its
// scheduling class, long before the interval ends. What starts right after that waits for a regular tick.
func TestNewBatchBringsTheNextTick(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/uptime", "1000.00 1.00")
	write("proc/stat", "cpu0 100 0 0 900\n")
	write("sys/devices/system/cpu/online", "0")
	write("sys/fs/cgroup/cgroup.controllers", "cpu memory")
	write("rules.yaml", "rules: [{cgroup: /job*, class: reclaimed}, {cgroup: /*, class: shared}]")
	ctx, cancel := context.WithCancel(t.Context())
	var out, log await.Log
	ended := make(chan int)
	go func() {
		ended <- command().Execute(ctx, stage.Env{
			Args: []string{"collect", "--interval", "1h", "--node", "n1", "--root", root, "--classify", filepath.Join(root, "rules.yaml")},
			In:   bytes.NewReader(nil), Out: &out, Err: &log, Getenv: os.Getenv, Now: time.Now,
		})
	}()
	out.Await(t, time.Minute, "\n", 1)
	write("sys/fs/cgroup/web/cpu.stat", "usage_usec 0\n")
	write("sys/fs/cgroup/job1/cpu.stat", "usage_usec 0\n")
	out.Await(t, time.Minute, "\n", 2)
	ticks := strings.Split(out.String(), "\n")
	if !strings.Contains(ticks[1], `"/job1"`) || !strings.Contains(ticks[1], `"/web"`) {
		t.Errorf("the second tick lacks what was created: %s", ticks[1])
	}
	write("sys/fs/cgroup/job2/cpu.stat", "usage_usec 0\n")
	await.During(t, 2*(minSettle+minSpan), "no second tick in a row is early", func() string {
		return strings.Join(strings.Split(out.String(), "\n")[2:], "")
	})
	cancel()
	if status := <-ended; status != 0 {
		t.Errorf("status %d: %s", status, log.String())
	}
}
