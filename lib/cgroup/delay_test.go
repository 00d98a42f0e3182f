package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRunDelay(t *testing.T) {
	for _, tt := range []struct {
		text string
		want uint64
		ok   bool
	}{
		{"123 456 7\n", 456, true},
		{"123 0 7\n", 0, true},
		{"0 0 1\n", 0, true},
		{"0 0 0\n", 0, false}, // not counted, or the thread never ran
		{"123 456\n", 0, false},
		{"123 -456 7\n", 0, false},
		{"", 0, false},
		{"18446744073709551615 18446744073709551615 1", 1<<64 - 1, true},
		{"1 18446744073709551616 1", 0, false},
	} {
		if got, ok := RunDelay([]byte(tt.text)); got != tt.want || ok != tt.ok {
			t.Errorf("RunDelay(%q) = %d, %v; want %d, %v", tt.text, got, ok, tt.want, tt.ok)
		}
	}
}

// The threads of descendants count too; one that has ended, and one whose delay the kernel does not count, do not.
func TestRunDelays(t *testing.T) {
	root := t.TempDir()
	write := func(path, content string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("sys/fs/cgroup/cpu,cpuacct/cgroup.procs", "")
	write("sys/fs/cgroup/cpu,cpuacct/a/tasks", "10\n11\n12\n")
	write("sys/fs/cgroup/cpu,cpuacct/a/b/tasks", "20\n")
	for tid, text := range map[int]string{10: "5 100 1", 12: "0 0 0", 20: "5 300 1"} {
		write(fmt.Sprintf("proc/%d/task/%d/schedstat", tid, tid), text+"\n")
	}
	h, err := Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	r := NewReader(h, false)
	got := delays{}
	var w Walk
	done, ok := r.RunDelays("/a", &w, nil, got)
	if !done || !ok || w.Count != 2 {
		t.Errorf("RunDelays: done %v, ok %v, %d threads; want all, 2", done, ok, w.Count)
	}
	if d := cmp.Diff(delays{10: 100, 20: 300}, got); d != "" {
		t.Errorf("delays (-want +got):\n%s", d)
	}
	w = Walk{}
	if _, ok := r.RunDelays("/none", &w, nil, delays{}); ok {
		t.Error("RunDelays of a missing cgroup: ok")
	}
	if _, ok := r.RunDelays("/../a", &w, nil, delays{}); ok {
		t.Error("RunDelays of a path that leads out of the hierarchy: ok")
	}
}

// delays contains the threads' delays, and keeps no file open.
type delays map[uint32]uint64

func (delays) Take(uint32) ThreadFile                       { return 0 }
func (d delays) See(tid uint32, _ ThreadFile, delay uint64) { d[tid] = delay }
