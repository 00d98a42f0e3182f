package hosttest

import "slices"

// Machines are topologies of real machines, described by the rules of their numbering.
func Machines() []Machine {
	return slices.Concat(dumped, others)
}

// threads is the usual numbering of x86: the first threads of all cores, then the second threads in the same order. Packages
// and nodes are so many consecutive cores, and a package has one L3.
func threads(cores, perPackage, perNode int) func(int) Place {
	return func(cpu int) Place {
		core := cpu % cores
		return Place{Core: core, L2: core, Package: core / perPackage, L3: core / perPackage, Node: core / perNode, Cluster: None}
	}
}

// every lists the CPUs for which a rule is true.
func every(cpus int, holds func(cpu int) bool) []int {
	var ids []int
	for id := range cpus {
		if holds(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// dumped are the machines of which other projects have dumps of /sys (util-linux, hwloc, nri-plugins).
var dumped = []Machine{
	{
		// Two EPYC 7451: one L3 per three cores, two of them in a node; a kernel before 5.3, and a dump without
		// the nodes' lists and memory.
		Name: "amd-epyc7451-2s-8numa-16l3-96cpu", CPUs: 96,
		At: func(cpu int) Place {
			p := threads(48, 24, 6)(cpu)
			p.L3 = p.Core / 3
			return p
		},
		NodeKB: map[int]uint64{0: 0, 1: 0, 2: 0, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0},
		Kernel: Kernel{OldNames: true, NodeMasksOnly: true},
	},
	{
		// Sub-NUMA clustering: the nodes alternately get 3, 2, 2 and 3 cores of a package, and halve its L3.
		Name: "intel-2s-snc-4numa-ht-80cpu", CPUs: 80,
		At: func(cpu int) Place {
			p := threads(40, 20, 20)(cpu)
			second := p.Core%10 == 3 || p.Core%10 == 4 || p.Core%10 > 6
			p.Node = p.Package*2 + map[bool]int{false: 0, true: 1}[second]
			return p
		},
		NodeKB: map[int]uint64{0: 48005604, 1: 49507804, 2: 49540688, 3: 49539172},
	},
	{
		// Persistent memory as nodes 4 and 5; CPUs are assigned to the packages and nodes one by one.
		Name: "intel-2s-6numa-pmem-112cpu", CPUs: 112,
		At: func(cpu int) Place {
			core := cpu % 56
			return Place{Core: core, L2: core, Package: core % 2, L3: core % 2, Node: core % 4, Cluster: None}
		},
		NodeKB: map[int]uint64{0: 32372996, 1: 33023416, 2: 33023424, 3: 33018848, 4: 130023424, 5: 130023424},
	},
	{
		Name: "intel-4s-4numa-ht-144cpu", CPUs: 144, At: threads(72, 18, 18),
		NodeKB: map[int]uint64{0: 196726504, 1: 198172236, 2: 198137748, 3: 198170672},
	},
	{
		// Four cores of two threads, numbered in pairs, and eight of one thread, of which four share an L2.
		Name: "intel-hybrid-smt1+2-16cpu", CPUs: 16,
		At: func(cpu int) Place {
			if cpu < 8 {
				return Place{Core: cpu / 2, L2: cpu / 2, Cluster: cpu / 2}
			}
			return Place{Core: cpu - 4, L2: 4 + (cpu-8)/4, Cluster: 4 + (cpu-8)/4}
		},
		NodeKB: map[int]uint64{0: 40645580},
	},
	{
		// big.LITTLE: two clusters of ten cores, each with an L3, in one package and one node.
		Name: "arm64-gb10-biglittle-20cpu", CPUs: 20,
		At:     func(cpu int) Place { return Place{Core: cpu, L2: cpu, Cluster: cpu / 10, L3: cpu / 10} },
		NodeKB: map[int]uint64{0: 125508468},
	},
	{Name: "intel-desktop-ht-20cpu", CPUs: 20, At: threads(10, 10, 10), NodeKB: map[int]uint64{0: 65621548}},
	{
		// Clusters of four cores without a cache that the kernel reports; the nodes get eight CPUs alternately, two by two.
		Name: "riscv-4numa-64cpu", CPUs: 64,
		At: func(cpu int) Place {
			return Place{Core: cpu, Cluster: cpu / 4, L2: None, L3: None, Node: cpu/32*2 + cpu/8%2}
		},
		NodeKB: map[int]uint64{0: 0, 1: 0, 2: 0, 3: 0},
	},
	{
		// More CPUs possible than present.
		Name: "intel-xeon4108-2s-2numa-ht-32cpu", CPUs: 32, Possible: 112, At: threads(16, 8, 8),
		NodeKB: map[int]uint64{0: 47925628, 1: 49519964},
	},
}

// others are machines without an available dump.
var others = []Machine{
	{
		// A guest on POWER with cores of four threads and an older kernel: each core is listed as a separate package.
		Name: "power-guest-2numa-smt4-32cpu", CPUs: 32,
		At: func(cpu int) Place {
			return Place{Core: cpu / 4, L2: cpu / 4, L3: cpu / 4, Cluster: None, Node: cpu / 16}
		},
		NodeKB: map[int]uint64{0: 16777216, 1: 16777216},
		Kernel: Kernel{NoPackages: OfCores},
	},
	{
		// A partition of PowerVM whose cores have eight threads, four of them online; each node is listed as a package.
		Name: "power-guest-2numa-smt8of4-64cpu", CPUs: 64,
		Offline: every(64, func(cpu int) bool { return cpu%8 >= 4 }),
		At: func(cpu int) Place {
			return Place{Core: cpu / 8, L2: cpu / 8, L3: None, Cluster: None, Node: cpu / 32}
		},
		NodeKB: map[int]uint64{0: 33554432, 1: 33554432},
		Kernel: Kernel{NoPackages: OfNodes},
	},
	{
		// POWER9 with graphics processors' memory: nodes 0 and 8 have the CPUs, 252 to 255 only memory; two cores
		// share an L3.
		Name: "power9-2s-6numa-smt4-160cpu", CPUs: 160,
		At: func(cpu int) Place {
			return Place{Core: cpu / 4, L2: cpu / 8, L3: cpu / 8, Cluster: None, Package: cpu / 80 * 8, Node: cpu / 80 * 8}
		},
		NodeKB: map[int]uint64{0: 267386880, 8: 268435456, 252: 16515072, 253: 16515072, 254: 16515072, 255: 16515072},
	},
	{
		// A core, a first thread (cpu0) and a second thread are offline, but lists still name them.
		Name: "intel-2s-2numa-offline-32cpu", CPUs: 32, At: threads(16, 8, 8), Offline: []int{0, 5, 21, 25},
		NodeKB: map[int]uint64{0: 33554432, 1: 33554432},
		Kernel: Kernel{StaleLists: true},
	},
	{
		// arm64 servers: clusters of four cores, one L3 per node, two nodes per package, and lists that end with a NUL byte.
		Name: "arm64-2s-4numa-clusters-128cpu", CPUs: 128,
		At: func(cpu int) Place {
			return Place{Core: cpu, L2: cpu, Cluster: cpu / 4, L3: cpu / 32, Package: cpu / 64, Node: cpu / 32}
		},
		NodeKB: map[int]uint64{0: 65011712, 1: 66060288, 2: 66060288, 3: 66060288},
		Kernel: Kernel{Ending: "\n\x00"},
	},
	{
		// Memory behind CXL: as many nodes with only memory as nodes with CPUs. The kernel ends lists with a NUL byte.
		Name: "amd-1s-4numa-cxl-32cpu", CPUs: 32,
		At: func(cpu int) Place {
			p := threads(16, 16, 8)(cpu)
			p.L3 = p.Core / 4
			return p
		},
		NodeKB: map[int]uint64{0: 65011712, 1: 66060288, 2: 134217728, 3: 134217728},
		Kernel: Kernel{Ending: "\n\x00"},
	},
	{
		// A small virtual machine: no L3, no NUMA, only masks.
		Name: "guest-2cpu", CPUs: 2,
		At:     func(cpu int) Place { return Place{Core: cpu, L2: cpu, L3: None, Cluster: None, Package: cpu} },
		Kernel: Kernel{MasksOnly: true},
	},
}
