package host

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/cpus"
	"polder/lib/hosttest"
)

// shape is a topology as text, for comparisons.
type shape struct {
	CPUs               string
	Cores, Sockets, L3 []string
	NUMA               []string // "ID: CPUs"
}

func shapeOf(t Topology) shape {
	s := shape{CPUs: t.CPUs.String(), Cores: texts(t.Cores), Sockets: texts(t.Sockets), L3: texts(t.L3)}
	for _, n := range t.NUMANodes {
		s.NUMA = append(s.NUMA, fmt.Sprintf("%d: %s", n.ID, n.CPUs))
	}
	return s
}

func texts(sets []cpus.Set) []string {
	var out []string
	for _, s := range sets {
		out = append(out, s.String())
	}
	return out
}

// tree is a /sys/devices/system to write: path -> content.
type tree map[string]string

func (f tree) cpu(id int, core, socket, l3 string) tree {
	dir := fmt.Sprintf("cpu/cpu%d/", id)
	f[dir+"topology/core_cpus_list"] = core
	f[dir+"topology/package_cpus_list"] = socket
	f[dir+"cache/index0/level"], f[dir+"cache/index0/shared_cpu_list"] = "1", core
	if l3 != "" {
		f[dir+"cache/index3/level"], f[dir+"cache/index3/shared_cpu_list"] = "3", l3
	}
	return f
}

func (f tree) node(id int, list string, kB int) tree {
	dir := fmt.Sprintf("node/node%d/", id)
	f[dir+"cpulist"] = list
	f[dir+"meminfo"] = fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree:        1 kB\n", id, kB, id)
	return f
}

// host writes the tree to a directory.
func (f tree) host(t *testing.T) *Host {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, content := range f {
		path = filepath.Join(root, "sys/devices/system", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestTopology(t *testing.T) {
	smt4 := tree{"cpu/online": "0-15"}
	for id := range 16 {
		core, socket := id/4*4, id/8*8
		smt4.cpu(id, fmt.Sprintf("%d-%d", core, core+3), fmt.Sprintf("%d-%d", socket, socket+7), fmt.Sprintf("%d-%d", core, core+3))
	}
	smt4.node(0, "0-7", 1000).node(8, "8-15", 1000)

	hybrid := tree{"cpu/online": "0-11"}
	for id := range 12 {
		core := fmt.Sprintf("%d-%d", id/2*2, id/2*2+1)
		if id >= 8 {
			core = fmt.Sprint(id)
		}
		hybrid.cpu(id, core, "0-11", "0-11")
	}
	hybrid.node(0, "0-11", 1000)

	old := tree{"cpu/online": "0-3"} // names of kernels before 5.3
	for id := range 4 {
		dir := fmt.Sprintf("cpu/cpu%d/topology/", id)
		old[dir+"thread_siblings_list"] = fmt.Sprintf("%d,%d", id%2, id%2+2)
		old[dir+"core_siblings_list"] = "0-3"
	}

	ids := tree{"cpu/online": "0-3"}
	for id := range 4 {
		ids[fmt.Sprintf("cpu/cpu%d/topology/physical_package_id", id)] = fmt.Sprint(id % 2)
	}

	partial := tree{"cpu/cpu0/topology/core_id": "0", "cpu/cpu1/online": "1", "cpu/cpu2/online": "0", "cpu/cpu10/online": "1", "cpu/cpufreq/x": ""}

	masks := tree{"cpu/online": "0-3", "node/node0/cpumap": "00000000,0000000f"}
	for id := range 4 {
		dir := fmt.Sprintf("cpu/cpu%d/", id)
		masks[dir+"topology/thread_siblings"] = fmt.Sprintf("%08x", 5<<(id%2))
		masks[dir+"cache/index0/level"], masks[dir+"cache/index0/shared_cpu_map"] = "3", "f"
	}

	tests := []struct {
		name string
		tree tree
		want shape
	}{
		{"masks alone", masks, shape{CPUs: "0-3", Cores: []string{"0,2", "1,3"}, L3: []string{"0-3"}, NUMA: []string{"0: 0-3"}}},
		{"SMT4, two sockets, node ids with a gap", smt4, shape{
			CPUs:  "0-15",
			Cores: []string{"0-3", "4-7", "8-11", "12-15"}, Sockets: []string{"0-7", "8-15"}, L3: []string{"0-3", "4-7", "8-11", "12-15"},
			NUMA: []string{"0: 0-7", "8: 8-15"},
		}},
		{"hybrid: cores of two threads and of one", hybrid, shape{
			CPUs:  "0-11",
			Cores: []string{"0-1", "2-3", "4-5", "6-7", "8", "9", "10", "11"}, Sockets: []string{"0-11"}, L3: []string{"0-11"},
			NUMA: []string{"0: 0-11"},
		}},
		{
			"cpu0 and a sibling offline, lists that still name them",
			tree{"cpu/online": "1-2,4-7"}.
				cpu(1, "1,5", "0-7", "0-7").cpu(2, "2,6", "0-7", "0-7").cpu(4, "0,4", "0-7", "0-7").
				cpu(5, "1,5", "0-7", "0-7").cpu(6, "2,6", "0-7", "0-7").cpu(7, "3,7", "0-7", "0-7").node(0, "0-7", 1000),
			shape{
				CPUs:  "1-2,4-7",
				Cores: []string{"1,5", "2,6", "4", "7"}, Sockets: []string{"1-2,4-7"}, L3: []string{"1-2,4-7"},
				NUMA: []string{"0: 1-2,4-7"},
			},
		},
		{
			"nodes of memory alone, sorted as numbers",
			tree{"cpu/online": "0-1"}.cpu(0, "0", "0-1", "").cpu(1, "1", "0-1", "").node(0, "0-1", 1000).node(2, "", 5000).node(10, "", 5000),
			shape{CPUs: "0-1", Cores: []string{"0", "1"}, Sockets: []string{"0-1"}, NUMA: []string{"0: 0-1", "2: ", "10: "}},
		},
		{"no L3, no NUMA, old names", old, shape{CPUs: "0-3", Cores: []string{"0,2", "1,3"}, Sockets: []string{"0-3"}}},
		{"sockets by id", ids, shape{CPUs: "0-3", Cores: []string{"0", "1", "2", "3"}, Sockets: []string{"0,2", "1,3"}}},
		{"no list of online CPUs", partial, shape{CPUs: "0-1,10", Cores: []string{"0", "1", "10"}}},
		{
			"lists that contradict themselves",
			tree{"cpu/online": "0-2"}.cpu(0, "0-1", "0-2", "").cpu(1, "1-2", "0-2", "").cpu(2, "1-2", "rubbish", ""),
			shape{CPUs: "0-2", Cores: []string{"0-1", "2"}, Sockets: []string{"0-2"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.tree.host(t).Topology()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, shapeOf(got)); diff != "" {
				t.Errorf("Topology() (-want +got):\n%s", diff)
			}
			for _, n := range got.NUMANodes {
				if n.MemoryBytes == nil && tt.name != "masks alone" {
					t.Errorf("node %d has no memory", n.ID)
				}
			}
		})
	}
}

func TestTopologyUnreadable(t *testing.T) {
	for _, tt := range []struct {
		name string
		tree tree
		want string
	}{
		{"nothing", tree{}, "no such file"},
		{"rubbish", tree{"cpu/online": "0-x"}, "is not a CPU id"},
		{"empty", tree{"cpu/online": ""}, "no CPU is online"},
	} {
		if _, err := tt.tree.host(t).Topology(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Topology() = %v; want %q", tt.name, err, tt.want)
		}
	}
}

// An error names the CPU whose files cannot be read; everything else is there, and its siblings' sets contain it.
func TestTopologyPartlyUnreadable(t *testing.T) {
	four := func() tree {
		return tree{"cpu/online": "0-3"}.cpu(0, "0,2", "0-3", "0-3").cpu(1, "1,3", "0-3", "0-3").cpu(2, "0,2", "0-3", "0-3").cpu(3, "1,3", "0-3", "0-3").node(0, "0-3", 1000)
	}
	whole := shape{CPUs: "0-3", Cores: []string{"0,2", "1,3"}, Sockets: []string{"0-3"}, L3: []string{"0-3"}, NUMA: []string{"0: 0-3"}}
	single := whole
	single.Cores = []string{"0", "1,3", "2"}
	for _, tt := range []struct {
		name    string
		bad     []string // files that hold rubbish
		gone    []string
		want    shape
		message string
	}{
		{"a core's first thread", []string{"cpu/cpu0/topology/core_cpus_list"}, nil, whole, "read the core of CPU 0: core_cpus_list: CPU list \"rubbish\""},
		{"all of a core", []string{"cpu/cpu0/topology/core_cpus_list", "cpu/cpu2/topology/core_cpus_list"}, nil, single, "read the core of CPU 0,2: core_cpus_list"},
		{"a core's files gone", nil, []string{"cpu/cpu0/topology/core_cpus_list", "cpu/cpu2/topology/core_cpus_list"}, single, "read the core of CPU 0,2: file does not exist"},
		{"a file gone", nil, []string{"cpu/cpu0/topology/core_cpus_list"}, whole, "read the core of CPU 0: file does not exist"},
		{"a cache", []string{"cpu/cpu0/cache/index3/shared_cpu_list"}, nil, whole, "read the L3 cache of CPU 0: shared_cpu_list"},
		{"a socket", []string{"cpu/cpu0/topology/package_cpus_list"}, nil, whole, "read the socket of CPU 0: package_cpus_list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			machine := four()
			for _, name := range tt.bad {
				if _, ok := machine[name]; !ok {
					t.Fatalf("the tree has no %s: %v", name, slices.Sorted(maps.Keys(machine)))
				}
				machine[name] = "rubbish"
			}
			for _, name := range tt.gone {
				delete(machine, name)
			}
			got, err := machine.host(t).Topology()
			if err == nil || !strings.Contains(err.Error(), tt.message) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Topology() = %v; want %q", err, tt.message)
			}
			if diff := cmp.Diff(tt.want, shapeOf(got)); diff != "" {
				t.Errorf("Topology() (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever the kernel writes, one kind of file is one short error, and not one a CPU.
func TestTopologyErrorsAreBounded(t *testing.T) {
	rubbish := func(id int, name string) string {
		return fmt.Sprintf("%s of %d: %s", name, id, strings.Repeat("x", 5000))
	}
	for _, tt := range []struct {
		name    string
		content func(id int, name string) string
	}{
		{"all the same", func(int, string) string { return "rubbish" }},
		{"each different", rubbish},
	} {
		t.Run(tt.name, func(t *testing.T) {
			machine := tree{"cpu/online": "0-127"}
			for id := range 128 {
				for _, name := range []string{"topology/core_cpus_list", "topology/package_cpus_list", "cache/index3/shared_cpu_list"} {
					machine[fmt.Sprintf("cpu/cpu%d/%s", id, name)] = tt.content(id, name)
				}
				machine[fmt.Sprintf("cpu/cpu%d/cache/index3/level", id)] = "3"
			}
			for id := range 16 {
				machine[fmt.Sprintf("node/node%d/cpulist", id)] = tt.content(id, "cpulist")
				machine[fmt.Sprintf("node/node%d/meminfo", id)] = tt.content(id, "meminfo")
			}
			got, err := machine.host(t).Topology()
			if err == nil || len(got.Cores) != 128 {
				t.Fatalf("Topology() = %d cores, %v; want each CPU as a core, and an error", len(got.Cores), err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != 5 {
				t.Errorf("%d errors; want one each of cores, sockets, caches, nodes' CPUs and nodes' memory:\n%s", len(lines), err)
			}
			for i, line := range lines {
				part := "CPU 0-127: "
				if i > 2 {
					part = "node 0-15: "
				}
				if !strings.Contains(line, part) || len(line) > 400 {
					t.Errorf("topology: %d bytes of an error: %s; want a short one that names %s", len(line), line, part)
				}
			}
		})
	}
}

// Shapes of real machines, as each kind of kernel writes them.
func TestTopologyRealMachines(t *testing.T) {
	kernels := []struct {
		name   string
		change func(*hosttest.Kernel)
	}{
		{"own kernel", func(*hosttest.Kernel) {}},
		{"lists end in NUL", func(k *hosttest.Kernel) { k.Ending = "\n\x00" }},
		{"names before 5.3", func(k *hosttest.Kernel) { k.OldNames = true }},
		{"masks alone", func(k *hosttest.Kernel) { k.MasksOnly = true }},
		{"masks alone that end in NUL", func(k *hosttest.Kernel) { k.MasksOnly, k.Ending = true, "\n\x00" }},
		{"offline CPUs in lists", func(k *hosttest.Kernel) { k.StaleLists = true }},
		{"packages unknown, lists of cores", func(k *hosttest.Kernel) { k.NoPackages = hosttest.OfCores }},
		{"packages unknown, lists of nodes", func(k *hosttest.Kernel) { k.NoPackages = hosttest.OfNodes }},
	}
	for _, m := range hosttest.Machines() {
		if testing.Short() && m.CPUs > 32 {
			continue // writing the tree takes a second
		}
		of := kernels
		if m.CPUs > 20 {
			of = kernels[:1] // the kernel's ways do not depend on the size, and large trees take seconds
		}
		for _, k := range of {
			t.Run(m.Name+"/"+k.name, func(t *testing.T) {
				m := m
				k.change(&m.Kernel)
				got, err := machine(t, m).Topology()
				if err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(m.Answer(), answerOf(got)); diff != "" {
					t.Errorf("Topology() (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// machine makes a machine's /sys real.
func machine(t *testing.T, m hosttest.Machine) *Host {
	t.Helper()
	root := t.TempDir()
	if err := m.Write(root); err != nil {
		t.Fatal(err)
	}
	h, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func answerOf(t Topology) hosttest.Answer {
	a := hosttest.Answer{CPUs: t.CPUs.String(), Cores: texts(t.Cores), Packages: texts(t.Sockets), L3: texts(t.L3)}
	for _, n := range t.NUMANodes {
		node := hosttest.Node{ID: n.ID, CPUs: n.CPUs.String()}
		if n.MemoryBytes != nil {
			node.MemoryBytes = *n.MemoryBytes
		}
		a.Nodes = append(a.Nodes, node)
	}
	return a
}
