package main

import (
	"slices"
	"strings"

	"polder/lib/tick"
)

// writeBurst moves a pod's quotas and bursts up and down together: the kernel accepts no burst over the quota and no quota under
// the burst, so every step must be in order.
func writeBurst(t *T) {
	t.group("/write", "cpuset", "cpu", "memory", "pids")
	pod := t.group("/write/pod", "cpuset", "cpu", "memory", "pids")
	dir := t.group("/write/pod/c")
	before, err := values(v2 + "/write")
	t.Must(err)
	const flags = "--journal /run/journal-burst"
	for _, step := range []struct {
		podQuota, podBurst, quota, burst int64
		writes                           int
		pod, c                           string // the quota and the burst after the step
	}{
		{1000, 10000, 1000, 10000, 4, "100000 100000", "100000 100000"},
		{1000, 10000, 1000, 10000, 0, "100000 100000", "100000 100000"},
		{1200, 10000, 1200, 10000, 4, "120000 120000", "120000 120000"},
		{500, 10000, 400, 300, 4, "50000 50000", "40000 30000"},
		{2000, 0, 2000, 500, 4, "200000 0", "200000 50000"},
		{tick.Unlimited, 0, tick.Unlimited, 0, 3, "max 0", "max 0"},
		{200, 5000, 100, 100, 4, "20000 20000", "10000 10000"},
	} {
		t.clean(t.isolate(flags,
			tick.Cgroup{Cgroup: "/write/pod/c", CPUMaxMilliCPU: &step.quota, CPUBurstMilliCPU: &step.burst},
			tick.Cgroup{Cgroup: "/write/pod", CPUMaxMilliCPU: &step.podQuota, CPUBurstMilliCPU: &step.podBurst}), step.writes)
		for at, want := range map[string]string{pod: step.pod, dir: step.c} {
			quota, burst, _ := strings.Cut(want, " ")
			t.expect(at, "cpu.max", quota+" 100000", "cpu.max.burst", burst)
		}
	}
	// A quota falls below a burst that the advice does not name.
	t.clean(t.isolate(flags, tick.Cgroup{Cgroup: "/write/pod", CPUMaxMilliCPU: new(int64(150))}), 2)
	t.expect(pod, "cpu.max", "15000 100000", "cpu.max.burst", "15000")
	t.restore("burst", before)
}

// writeProtection gives a tree its protection of memory, removes most of it again, and reports once what the kernel has no file for.
func writeProtection(t *T) {
	t.group("/write", "cpuset", "cpu", "memory", "pids")
	pod := t.group("/write/pod", "cpuset", "cpu", "memory", "pids")
	dir := t.group("/write/pod/c")
	before, err := values(v2 + "/write")
	t.Must(err)
	const flags = "--journal /run/journal-protection"
	mi := func(n int64) *int64 { n <<= 20; return &n }
	on := new(true)
	out := t.isolate(flags,
		tick.Cgroup{Cgroup: "/write/pod/c", MemoryMinBytes: mi(48), MemoryLowBytes: mi(64), MemoryHighBytes: mi(256), MemoryOOMGroup: on},
		tick.Cgroup{Cgroup: "/write/pod", MemoryMinBytes: mi(48), MemoryLowBytes: mi(64), MemoryOOMGroup: on, MemoryWmarkRatioPercent: new(int64(95))},
		tick.Cgroup{Cgroup: "/write", MemoryMinBytes: mi(48), MemoryLowBytes: mi(64)})
	t.refuses(out, "/write/pod", "this kernel has no memory.wmark_ratio; not written")
	if out.Applied != 9 || len(out.Errors) != 1 || !slices.Equal(out.Unavailable, []string{"memoryWmarkRatioPercent"}) {
		t.Errorf("%d values written, unavailable %q, errors %v; want 9, the ratio and one", out.Applied, out.Unavailable, out.Errors)
	}
	place := func(key, cgroup string) int {
		return slices.IndexFunc(out.Writes, func(w tick.Write) bool { return w.Key == key && w.Cgroup == cgroup })
	}
	if top, mid, low := place("memoryMinBytes", "/write"), place("memoryMinBytes", "/write/pod"), place("memoryMinBytes", "/write/pod/c"); top > mid || mid > low || top < 0 {
		t.Errorf("memory.min rose in the places %d, %d, %d; want from the top down", top, mid, low)
	}
	for _, at := range []string{pod, dir} {
		t.expect(at, "memory.min", itoa(48<<20), "memory.low", itoa(64<<20), "memory.oom.group", "1")
	}
	t.expect(dir, "memory.high", itoa(256<<20))
	out = t.isolate(flags, tick.Cgroup{Cgroup: "/write", MemoryMinBytes: mi(0)}, tick.Cgroup{Cgroup: "/write/pod", MemoryMinBytes: mi(0)}, tick.Cgroup{Cgroup: "/write/pod/c", MemoryMinBytes: mi(0)})
	t.clean(out, 3)
	if top, low := place("memoryMinBytes", "/write"), place("memoryMinBytes", "/write/pod/c"); low > top || low < 0 {
		t.Errorf("memory.min fell in the places %d and %d; want from the bottom up", top, low)
	}
	t.restore("protection", before)
}
