package colocation

import (
	"fmt"
	"strconv"
	"testing"

	"polder/tests/group"
	"polder/tests/need"
)

// belowKubepods is a service in a hierarchy as kubelet makes it, without a kubelet, so that the weights are the only difference.
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

// ways are the weights and classes that are compared, each put back at its end.
func (h *hierarchy) ways() []way {
	weight := func(factor int) func(b *testing.B) {
		return func(b *testing.B) { h.kubepods.Write(b, "cpu.shares", strconv.Itoa(factor*kubepodsShares)) }
	}
	idle := func(g *group.Group) func(b *testing.B) { return func(b *testing.B) { g.Write(b, "cpu.idle", "1") } }
	with := func(changes ...func(b *testing.B)) func(*testing.B, *measurement) func() {
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
	return []way{
		{"as kubelet has it", with()},
		{"cpu.idle on the pod", with(idle(h.batch))},
		{"cpu.idle on the tier", with(idle(h.besteffort))},
		{"kubepods' weight x 4", with(weight(4))},
		{"kubepods' weight x 8", with(weight(8))},
		{"kubepods' weight x 16", with(weight(16))},
		{"kubepods' weight x 16, cpu.idle on the tier", with(weight(16), idle(h.besteffort))},
	}
}

// BenchmarkHierarchy shows what a service below kubepods pays for batch below kubepods, while other programs of the machine work
// outside: here a server with requests of its own, for kubelet, the container runtime and the like.
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
	answers(b, client, "http", "127.0.0.1:"+port)

	m := &measurement{
		outside: &measurement{client: client, protocol: "http", service: system, address: "127.0.0.1:" + port},
		client:  client, protocol: belowKubepods.protocol, service: h.service, batch: h.batch, polder: group.New(b, nil, "none"),
	}
	own := freePort(b)
	m.address = "127.0.0.1:" + own
	belowKubepods.start(b, h.service, b.TempDir(), own)
	answers(b, client, m.protocol, m.address)
	table := newTable()
	for range 3 {
		m.cells(b, []cell{{&belowKubepods, 30, &jobs[0]}}, h.ways(), table)
	}
	fmt.Print(table.markdown())
	fmt.Printf("\np99 of a server outside kubepods with %d requests a second, in ms, medians and in brackets the least and the most:\n\n", outsideRate)
	for _, r := range table.rows {
		p99, least, most := r.of(func(x result) float64 { return x.Outside })
		fmt.Printf("| %s | %.2f (%.2f-%.2f) |\n", r.way, p99, least, most)
	}
}
