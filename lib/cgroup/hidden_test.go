package cgroup_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"polder/lib/cgroup"
	"polder/tests/group"
	"polder/tests/need"
)

// Cgroup version 1 lists no task of another PID namespace: there the pids controller says whether an empty list means an empty cgroup.
func TestEmptyListInAnotherPIDNamespace(t *testing.T) {
	const nested, initial = "pid:[4026532178]", "pid:[4026531836]"
	withPids := map[string]string{"a/pids.current": "7\n", "a/b/pids.current": "5\n", "a/c/pids.current": "0\n", "a/d/pids.current": "2\n"}
	for name, tt := range map[string]struct {
		namespace string
		pids      map[string]string
		hidden    int
		a, b      bool
	}{
		"nested": {nested, withPids, 5, false, true},
		"nested, one unknown": {
			nested, map[string]string{"a/pids.current": "8\n", "a/b/pids.current": "8\n", "a/c/pids.current": "garbage\n"}, 9, false, true,
		},
		"nested, no counters": {nested, nil, 3, true, true},
		"initial":             {initial, withPids, 0, false, false},
		"a copy without it":   {"", withPids, 0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range map[string]string{
				"cpuacct/cgroup.procs": "", "pids/cgroup.procs": "", "cpuacct/a/cpuacct.usage": "1\n",
				"cpuacct/a/tasks": "", "cpuacct/a/b/tasks": "", "cpuacct/a/c/tasks": "", "cpuacct/a/d/tasks": "11\n",
			} {
				write(t, filepath.Join(root, "sys/fs/cgroup", path), text)
			}
			for path, text := range tt.pids {
				write(t, filepath.Join(root, "sys/fs/cgroup/pids", path), text)
			}
			write(t, filepath.Join(root, "proc/11/task/11/stat"), "11 (x) R 0\n")
			if tt.namespace != "" {
				if err := os.MkdirAll(filepath.Join(root, "proc/self/ns"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(tt.namespace, filepath.Join(root, "proc/self/ns/pid")); err != nil {
					t.Fatal(err)
				}
			}
			h, err := cgroup.Detect(root)
			if err != nil {
				t.Fatal(err)
			}
			if hidden, err := h.Threads("/a", nil, func(uint64) {}); err != nil || hidden != tt.hidden {
				t.Errorf("%d hidden threads, %v; want %d", hidden, err, tt.hidden)
			}
			if a, b := h.MayHideTasks("", "/a"), h.MayHideTasks("cpuacct", "/a/b"); a != tt.a || b != tt.b {
				t.Errorf("/a may hide tasks: %v, /a/b: %v; want %v, %v", a, b, tt.a, tt.b)
			}
			r := cgroup.NewReader(h, false)
			g, err := r.Open("/a")
			if err == nil {
				err = g.Read(1)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			if isKnown := g.Values.Has&cgroup.HasThreads != 0; isKnown != !tt.a {
				t.Errorf("%d threads, known: %v; want that they are unknown only without a counter", g.Values.Threads, isKnown)
			}
			var w cgroup.Walk
			if done, ok := r.Runnable("/a", &w, nil); !done || !ok || w.Count != 1 || w.Hidden != (tt.hidden > 0) {
				t.Errorf("runnable: %+v, %v, %v; want 1, and hidden threads where there are %d", w, done, ok, tt.hidden)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The kernel's own lists are empty for a process in another PID namespace, and the threads are counted as hidden.
func TestThreadsOfAnotherPIDNamespace(t *testing.T) {
	const variable = "POLDER_TEST_CGROUP"
	if name := os.Getenv(variable); name != "" { // in that namespace
		h, err := cgroup.Detect("/")
		if err != nil {
			t.Fatal(err)
		}
		r := cgroup.NewReader(h, false)
		r.WithoutMessages()
		for c, want := range map[string]int{name: 1, name + "/asleep": 1, name + "/empty": 0} {
			hidden, err := h.Threads(c, nil, func(tid uint64) { t.Errorf("%s: thread %d is visible", c, tid) })
			if err != nil || hidden != want {
				t.Errorf("%s: %d hidden threads, %v; want %d", c, hidden, err, want)
			}
			var w cgroup.Walk
			if done, ok := r.Runnable(c, &w, nil); !done || !ok || w.Hidden != (want > 0) {
				t.Errorf("%s: %+v, %v, %v", c, w, done, ok)
			}
		}
		return
	}
	need.CgroupsV1(t, "cpuacct", "pids")
	need.Mount(t)
	above := group.New(t, nil, "namespaces")
	asleep := group.New(t, above, "asleep")
	group.New(t, above, "empty")
	asleep.Sleep(t)
	cmd := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+above.Name)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}
