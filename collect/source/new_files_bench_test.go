package source

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"polder/collect/host"
	"polder/lib/cgroup"
	"polder/lib/tick"
)

// benchKind is one of a pod's own files: how often collect reads it, in seconds, on which version it is, and how.
type benchKind struct {
	name    string
	version int
	every   float64
	files   []string
	read    func(t *tree, n *node, seconds float64)
}

var benchKinds = []benchKind{
	{"blkio", 1, ioEvery, []string{"io blkio.throttle.io_service_bytes_recursive", "io blkio.throttle.io_serviced_recursive"}, (*tree).readIO},
	{"io.stat", 2, ioEvery, []string{"io io.stat"}, (*tree).readIO},
	{"io.pressure", 2, stallsEvery, []string{"io io.pressure"}, func(t *tree, n *node, seconds float64) {
		if err := n.stalls.io.read(seconds, t.stallsBuf[:]); err != nil {
			t.errs = append(t.errs, err)
		}
	}},
	{"memory.events", 2, ioEvery, []string{"memory memory.events"}, func(t *tree, n *node, seconds float64) { t.readEvents(n.events, seconds, ioEvery) }},
	{"memory", 1, ioEvery, []string{"memory memory.usage_in_bytes", "memory memory.stat"}, readOwnMemory},
	{"memory", 2, ioEvery, []string{"memory memory.current", "memory memory.stat"}, readOwnMemory},
}

// readOwnMemory reads both files; while a pod's memory does not change, collect reads memory.stat less often.
func readOwnMemory(t *tree, n *node, seconds float64) { t.readMemory(n.memory, seconds) }

// BenchmarkNewFiles measures the CPU time that a pod's files of disks and memory cost, each time that they are read, against
// the floor: the same files read with open descriptors, without parsing, alternately. us/pod-second is the cost in a second,
// because no file is read in each. On version 1 these are the files of blkio; `go test -run '^$' -bench NewFiles ./tests/vm` runs it in a
// guest with version 2.
func BenchmarkNewFiles(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("not root")
	}
	h, err := cgroup.Detect("/")
	if err != nil {
		b.Skip(err)
	}
	t := &tree{h: h, env: &Env{}}
	nodes := benchPods(b, t)
	seconds := 0.0
	for i := range benchKinds {
		k := &benchKinds[i]
		if h.Version("io") != k.version {
			continue
		}
		b.Run(k.name, func(b *testing.B) {
			files := benchOpen(b, h, nodes, k.files)
			buf := make([]byte, 4096)
			var whole, floor time.Duration
			for b.Loop() {
				seconds += 2 * k.every
				at := cpuTime(b)
				for _, n := range nodes {
					k.read(t, n, seconds)
				}
				middle := cpuTime(b)
				for _, f := range files {
					if _, err := f.Read(buf); err != nil {
						b.Fatal(err)
					}
				}
				whole, floor = whole+middle-at, floor+cpuTime(b)-middle
			}
			if len(t.errs) > 0 {
				b.Fatal(t.errs[0])
			}
			each := float64(whole.Microseconds()) / float64(b.N*len(nodes))
			b.ReportMetric(each, "us/pod")
			b.ReportMetric(float64(floor.Microseconds())/float64(b.N*len(nodes)), "floor-us/pod")
			b.ReportMetric(float64(whole)/float64(floor), "ratio")
			b.ReportMetric(each/k.every, "us/pod-second")
		})
	}
	b.Run("diskstats", benchDisks)
}

// benchPods are cgroups as the collector has them, with their files open.
func benchPods(b *testing.B, t *tree) (nodes []*node) {
	b.Helper()
	const pods = 500
	base := fmt.Sprintf("/polder-bench-files-%d", os.Getpid())
	dir, version, err := t.h.Dir("io", base)
	if err != nil {
		b.Skip(err)
	}
	memory, memoryVersion, err := t.h.Dir("memory", base)
	if err != nil {
		b.Skip(err)
	}
	dirs := []string{dir}
	if memoryVersion == 1 {
		dirs = append(dirs, memory)
	}
	for i := -1; i < pods; i++ {
		path, name := base, ""
		if i >= 0 {
			name = fmt.Sprintf("pod%04d", i)
			path = filepath.Join(base, name)
		}
		for _, dir := range dirs {
			at := filepath.Join(dir, name)
			if err := os.Mkdir(at, 0o755); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = os.Remove(at) })
		}
		if i < 0 {
			if version == 2 {
				if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+io +memory"), 0); err != nil {
					b.Fatal(err)
				}
			}
			continue
		}
		n := &node{path: path, stalls: newStalls(), io: &podIO{}, events: &events{}, memory: &podMemory{}}
		t.openStalls(n)
		t.openIO(n)
		t.openEvents(n.events, n.path)
		t.openMemory(n.memory, n.path)
		b.Cleanup(func() {
			n.stalls.close()
			n.io.close()
			n.events.close()
			n.memory.close()
		})
		nodes = append(nodes, n)
	}
	if len(t.errs) > 0 {
		b.Fatal(t.errs[0])
	}
	return nodes
}

// benchOpen holds files of all the cgroups open, each named by its controller and its name.
func benchOpen(b *testing.B, h *cgroup.Hierarchy, nodes []*node, names []string) (files []*cgroup.File) {
	b.Helper()
	for _, n := range nodes {
		for _, name := range names {
			var controller, file string
			if _, err := fmt.Sscan(name, &controller, &file); err != nil {
				b.Fatal(err)
			}
			f, err := h.Open(controller, n.path, file)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = f.Close() })
			files = append(files, f)
		}
	}
	return files
}

// benchDisks is the same for the machine's disks, which are read in each round.
func benchDisks(b *testing.B) {
	m, err := host.New("/")
	if err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	env := &Env{Host: m, Log: log, Now: time.Now}
	r, c := Disks.New(env), &clock{host: m, now: time.Now, log: log}
	file, err := os.Open("/proc/diskstats")
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	buf := make([]byte, 64<<10)
	round := Round{Sample: &tick.Sample{}, Clock: c, Rescan: true}
	var whole, floor time.Duration
	for b.Loop() {
		at := cpuTime(b)
		c.startRound()
		if err := r.Read(&round); err != nil {
			b.Fatal(err)
		}
		round.Rescan = false
		middle := cpuTime(b)
		if _, err := file.ReadAt(buf, 0); err != nil && err != io.EOF {
			b.Fatal(err)
		}
		whole, floor = whole+middle-at, floor+cpuTime(b)-middle
	}
	b.ReportMetric(float64(whole.Microseconds())/float64(b.N), "us/machine")
	b.ReportMetric(float64(floor.Microseconds())/float64(b.N), "floor-us/machine")
	b.ReportMetric(float64(whole)/float64(floor), "ratio")
	b.ReportMetric(float64(len(round.Sample.Disks)), "disks")
}
