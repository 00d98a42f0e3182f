package main

import (
	"fmt"
	"strings"

	"polder/lib/tick"
)

// event is a counter of a cgroup's memory.events.
func event(dir, name string) int {
	for line := range strings.Lines(read(dir + "/memory.events")) {
		var key string
		var n int
		if _, err := fmt.Sscan(line, &key, &n); err == nil && key == name {
			return n
		}
	}
	return -1
}

// current is a cgroup's memory usage, in MiB.
func current(dir string) int {
	var n int
	_, _ = fmt.Sscan(read(dir+"/memory.current"), &n) // 0 if there is none
	return n >> 20
}

// writeMemoryHigh runs a process that wants more than memory.high: it is throttled, not ended, and continues without the limit.
func writeMemoryHigh(t *T) {
	t.group("/write", "cpuset", "cpu", "memory", "pids")
	dir := t.group("/write/a")
	t.clean(t.isolate("", tick.Cgroup{Cgroup: "/write/a", MemoryHighBytes: new(int64(32 << 20))}), 1)
	const wants = 96
	l := t.startLoad(dir, "eat", itoa(wants))
	if !within(func() bool { return event(dir, "high") > 0 }) {
		t.Fatalf("memory.events: %s; want high counted, %d MiB in use", read(dir+"/memory.events"), current(dir))
	}
	free := t.group("/write/free")
	t.startLoad(free, "eat", itoa(wants))
	if !within(func() bool { return current(free) >= wants }) { // in which time the first one would have had all as well
		t.Fatalf("%d MiB in use where there is no limit; want %d", current(free), wants)
	}
	used := current(dir)
	t.Logf("%d of %d MiB in use under memory.high of 32 MiB, %d times over it", used, wants, event(dir, "high"))
	if used >= wants {
		t.Errorf("%d MiB in use; want the process throttled before it has %d", used, wants)
	}
	if killed := event(dir, "oom_kill"); killed != 0 || !l.alive() {
		t.Errorf("%d killed, alive %t; want the process alive", killed, l.alive())
	}
	t.clean(t.isolate("", tick.Cgroup{Cgroup: "/write/a", MemoryHighBytes: new(int64(tick.Unlimited))}), 1)
	if !within(func() bool { return current(dir) >= wants }) {
		t.Errorf("%d MiB in use without the limit; want %d", current(dir), wants)
	}
}

// writeMemoryMax runs a process that wants more than memory.max: it is killed, and the one beside it is not.
func writeMemoryMax(t *T) {
	t.group("/write", "cpuset", "cpu", "memory", "pids")
	dir, beside := t.group("/write/a"), t.group("/write/b")
	t.clean(t.isolate("", tick.Cgroup{Cgroup: "/write/a", MemoryMaxBytes: new(int64(32 << 20))}), 1)
	other := t.startLoad(beside, "eat", "96")
	l := t.startLoad(dir, "eat", "96")
	if !within(func() bool { return !l.alive() && event(dir, "oom_kill") == 1 }) {
		t.Fatalf("alive %t, memory.events: %s; want the process killed", l.alive(), read(dir+"/memory.events"))
	}
	if !within(func() bool { return current(beside) >= 96 }) || !other.alive() || event(beside, "oom_kill") != 0 {
		t.Errorf("beside: alive %t, %d MiB, memory.events: %s; want it untouched", other.alive(), current(beside), read(beside+"/memory.events"))
	}
}

// writeIOWeight reads back what was written where the kernel has the file; where the controller is not delegated,
// isolate reports it.
func writeIOWeight(t *T) {
	t.group("/write", "cpuset", "cpu", "memory", "pids", "io")
	dir := t.group("/write/a")
	before, err := values(v2 + "/write")
	t.Must(err)
	out := t.isolate("--journal /run/journal-io", tick.Cgroup{Cgroup: "/write/a", IOWeight: new(int64(300))})
	if _, offered := before[dir+"/io.weight"]; offered {
		t.clean(out, 1)
		t.expect(dir, "io.weight", "default 300")
		t.restore("io", before)
	} else {
		t.refuses(out, "/write/a", "io.weight")
		t.Logf("this kernel's io controller has no io.weight")
	}

	bare := t.group("/bare", "cpu")
	t.group("/bare/a")
	t.refuses(t.isolate("", tick.Cgroup{Cgroup: "/bare/a", IOWeight: new(int64(300))}), "/bare/a", "io is not enabled in /bare/cgroup.subtree_control")
	t.expect(bare, "cgroup.subtree_control", "cpu")
}
