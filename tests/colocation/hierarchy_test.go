package colocation

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"polder/tests/group"
	"polder/tests/need"
)

// belowKubepods is a service in a hierarchy like kubelet's, without a kubelet, so that the weights are the only difference.
var belowKubepods = service{"nginx below kubepods", "http", startNginx}

// Weights as kubelet sets them on a machine of two CPUs (cpu.shares of cgroup v1).
const (
	kubepodsShares   = 2048
	burstableShares  = 512 // the service's request of 500 milli-CPU
	besteffortShares = 2
)

// hierarchy is kubepods with a service's pod and a batch pod.
type hierarchy struct{ kubepods, besteffort, service, batch *group.Group }

func newHierarchy(b *testing.B) *hierarchy {
	b.Helper()
	below := func(parent *group.Group, name string, shares int) *group.Group {
		g := group.New(b, parent, name)
		g.Write(b, "cpu.shares", strconv.Itoa(shares))
		return g
	}
	h := &hierarchy{kubepods: below(nil, "kubepods", kubepodsShares)}
	h.service = below(below(h.kubepods, "burstable", burstableShares), "web", burstableShares)
	h.besteffort = below(h.kubepods, "besteffort", besteffortShares)
	h.batch = below(h.besteffort, "job", besteffortShares)
	return h
}

// methods are the weights and classes that are compared, each reverted at its end.
func (h *hierarchy) methods() []method {
	weight := func(factor int) func(b *testing.B) {
		return func(b *testing.B) { h.kubepods.Write(b, "cpu.shares", strconv.Itoa(factor*kubepodsShares)) }
	}
	idle := func(g *group.Group) func(b *testing.B) { return func(b *testing.B) { g.Write(b, "cpu.idle", "1") } }
	changing := func(changes ...func(b *testing.B)) func(*testing.B, *measurement) func() {
		return func(b *testing.B, _ *measurement) func() {
			b.Helper()
			for _, change := range changes {
				change(b)
			}
			return func() {
				h.kubepods.Write(b, "cpu.shares", strconv.Itoa(kubepodsShares))
				for _, g := range []*group.Group{h.besteffort, h.batch} {
					g.Write(b, "cpu.idle", "0")
					g.Write(b, "cpu.shares", strconv.Itoa(besteffortShares))
				}
			}
		}
	}
	return []method{
		{"unchanged from kubelet", changing()},
		{"cpu.idle on the pod", changing(idle(h.batch))},
		{"cpu.idle on the tier", changing(idle(h.besteffort))},
		{"kubepods' weight x 4", changing(weight(4))},
		{"kubepods' weight x 8", changing(weight(8))},
		{"kubepods' weight x 16", changing(weight(16))},
		{"kubepods' weight x 16, cpu.idle on the tier", changing(weight(16), idle(h.besteffort))},
	}
}

// BenchmarkHierarchy shows the cost for a service below kubepods of batch below kubepods, while other programs of the machine work
// outside: here a server with its own requests, in place of kubelet, the container runtime and the like.
func BenchmarkHierarchy(b *testing.B) {
	need.Root(b)
	need.CgroupsV1(b, "cpu", "cpuacct")
	need.Program(b, "nginx", "nginx-light")
	need.Program(b, "stress-ng", "stress-ng")
	client := build(b)
	h := newHierarchy(b)
	system := group.New(b, nil, "system")
	port := freePort(b)
	system.Run(b, fmt.Sprintf("exec %s -serve 127.0.0.1:%s", client, port))
	awaitService(b, client, "http", "127.0.0.1:"+port)

	m := &measurement{
		outside: &measurement{client: client, protocol: "http", service: system, address: "127.0.0.1:" + port},
		client:  client, protocol: belowKubepods.protocol, service: h.service, batch: h.batch, polder: group.New(b, nil, "none"),
	}
	servicePort := freePort(b)
	m.address = "127.0.0.1:" + servicePort
	belowKubepods.start(b, h.service, b.TempDir(), servicePort)
	awaitService(b, client, m.protocol, m.address)
	table, rates := newTable(), rates{}
	for range 3 {
		m.cells(b, []cell{{&belowKubepods, 30, &jobs[0]}}, h.methods(), table, rates)
	}
	fmt.Print(table.markdown())
	fmt.Printf("\np99 of a server outside kubepods with %d requests a second, in ms, medians with minimum and maximum in brackets:\n\n", outsideRate)
	for _, r := range table.rows {
		p99, lowest, highest := r.stats(func(x result) float64 { return x.Outside })
		fmt.Printf("| %s | %.2f (%.2f-%.2f) |\n", r.method, p99, lowest, highest)
	}
}

// BenchmarkKernelThreads shows what a service below kubepods waits for if it uses the disk in each request: the kernel's own threads
// (kworker, ksoftirqd, jbd2), which are kubepods' siblings at the top. Only their priority is changed.
func BenchmarkKernelThreads(b *testing.B) {
	need.Root(b)
	need.CgroupsV1(b, "cpu", "cpuacct")
	need.Program(b, "redis-server", "redis-server")
	need.Program(b, "stress-ng", "stress-ng")
	h := newHierarchy(b)
	s := services[2]
	s.name += ", below kubepods"
	m := &measurement{client: build(b), protocol: s.protocol, service: h.service, batch: h.batch, polder: group.New(b, nil, "none")}
	port := freePort(b)
	m.address = "127.0.0.1:" + port
	s.start(b, h.service, b.TempDir(), port)
	awaitService(b, m.client, m.protocol, m.address)
	all := h.methods()
	methods := []method{all[0], all[2], {"cpu.idle on the tier, the kernel's threads at nice -20", func(b *testing.B, m *measurement) func() {
		b.Helper()
		end, revert := all[2].start(b, m), raiseKernelThreads(b)
		return func() { end(); revert() }
	}}}
	table, rates := newTable(), rates{}
	for range 3 {
		m.cells(b, []cell{{&s, 20, &jobs[0]}}, methods, table, rates)
	}
	fmt.Print(table.markdown())
}

// raiseKernelThreads gives the kernel's threads the highest priority of the normal class; the function that it returns reverts each one's.
func raiseKernelThreads(b *testing.B) (revert func()) {
	b.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	before := map[int]int{}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		nice, err := strconv.Atoi(fields[16])
		const kthreadd = "2"
		if err != nil || fields[1] != kthreadd || nice < 0 {
			continue
		}
		if unix.Setpriority(unix.PRIO_PROCESS, pid, -20) == nil {
			before[pid] = nice
		}
	}
	return func() {
		for pid, nice := range before {
			_ = unix.Setpriority(unix.PRIO_PROCESS, pid, nice) // a thread that has ended needs none
		}
	}
}
