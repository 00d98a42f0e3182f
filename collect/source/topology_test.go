package source

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/collect/host"
	"polder/lib/hosttest"
	"polder/lib/tick"
)

func treeOf(t *testing.T, m hosttest.Machine) *host.Host {
	t.Helper()
	root := t.TempDir()
	if err := m.Write(root); err != nil {
		t.Fatal(err)
	}
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A machine's topology is in the tick, without an error, however its kernel writes it.
func TestTopologyOfRealMachines(t *testing.T) {
	for _, m := range hosttest.Machines() {
		if m.CPUs > 32 {
			continue // collect/host reads the larger ones
		}
		t.Run(m.Name, func(t *testing.T) {
			env := &Env{Host: treeOf(t, m)}
			round := &Round{Sample: &tick.Sample{}}
			if err := Topology.New(env).Read(round); err != nil {
				t.Error(err)
			}
			a := m.Answer()
			want := &tick.Topology{CPUs: a.CPUs, Cores: a.Cores, Sockets: a.Packages, L3: a.L3}
			for _, n := range a.Nodes {
				want.NUMANodes = append(want.NUMANodes, tick.TopologyNUMA{ID: n.ID, CPUs: n.CPUs, MemoryBytes: new(float64(n.MemoryBytes))})
			}
			if diff := cmp.Diff(want, round.Sample.Topology); diff != "" {
				t.Errorf("topology (-want +got):\n%s", diff)
			}
			if err := NUMA.New(env).Read(round); err != nil {
				t.Error(err)
			}
			if got := len(round.Sample.NUMANodes); got != len(a.Nodes) {
				t.Errorf("%d NUMA nodes; want %d", got, len(a.Nodes))
			}
		})
	}
}

// NUMA nodes whose memory cannot be read are one error, and not one a node.
func TestNUMAErrorsAreBounded(t *testing.T) {
	for _, m := range hosttest.Machines() {
		if m.Name != "riscv-4numa-64cpu" { // it has no node's memory
			continue
		}
		env := &Env{Host: treeOf(t, m)}
		round := &Round{Sample: &tick.Sample{}}
		if err := Topology.New(env).Read(round); err != nil {
			t.Fatal(err)
		}
		err := NUMA.New(env).Read(round)
		if text := fmt.Sprint(err); !strings.HasPrefix(text, "read memory of NUMA node 0: ") || !strings.HasSuffix(text, " (and 3 more NUMA nodes)") {
			t.Errorf("memory of the NUMA nodes: %v; want the error of the first node, and how many more", err)
		}
		if got := len(round.Sample.NUMANodes); got != 4 {
			t.Errorf("%d NUMA nodes; want all 4, without their memory", got)
		}
		return
	}
	t.Fatal("no such machine")
}
