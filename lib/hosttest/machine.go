// Package hosttest creates /sys trees of machines for tests, with the correct answers beside them. A machine is
// described by rules (the core, package, cache and NUMA node of each CPU); the tree and the answer are both derived from
// the rules, and neither by the tested code: this package imports no other one of the project.
package hosttest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// None means that a CPU belongs to no cache, cluster or NUMA node of a kind.
const None = -1

// Place is a CPU's position. CPUs with the same number in a field share that core, package, cache or node; a number is
// unique in the whole machine, and Node is the NUMA node's ID.
type Place struct {
	Core, Package, Cluster, L2, L3, Node int
}

// Machine is a machine's topology, and how its kernel writes it into /sys.
type Machine struct {
	Name string
	// CPUs is the number of present CPUs, with the IDs from 0 on. Possible is at least as large.
	CPUs, Possible int
	Offline        []int
	At             func(cpu int) Place
	// NodeKB has the memory of each NUMA node by ID, in KiB; 0 if the tree has no meminfo of the node. A node that no
	// CPU names has only memory. Nil means a kernel without NUMA.
	NodeKB map[int]uint64
	Kernel Kernel
}

// Kernel describes how a kernel writes /sys.
type Kernel struct {
	// Ending is the end of every CPU list and mask, "\n" if it is empty.
	Ending string
	// OldNames means a kernel before 5.3, which has only thread_siblings and core_siblings.
	OldNames bool
	// MasksOnly omits all lists; NodeMasksOnly omits those of the NUMA nodes.
	MasksOnly, NodeMasksOnly bool
	// StaleLists means that the topology's lists contain offline CPUs.
	StaleLists bool
	// NoPackages means a kernel that knows no packages: physical_package_id is -1.
	NoPackages PackageLists
}

// PackageLists is the content of the package lists if the kernel knows no packages.
type PackageLists int

const (
	// Known means a kernel that knows the packages.
	Known PackageLists = iota
	// OfCores are lists that contain only the core, as on POWER before Linux 5.13.
	OfCores
	// OfNodes are lists that contain the NUMA node's CPUs, as on POWER since.
	OfNodes
)

// Answer is what a reader must find: lists in the kernel's format of online CPUs, each sorted by its lowest CPU.
type Answer struct {
	CPUs                string
	Cores, Packages, L3 []string
	Nodes               []Node
}

// Node is a NUMA node; CPUs is empty for a node with only memory, and MemoryBytes is 0 if the memory is unknown.
type Node struct {
	ID          int
	CPUs        string
	MemoryBytes uint64
}

// Answer returns the correct answer.
func (m Machine) Answer() Answer {
	online := m.online()
	a := Answer{CPUs: list(online)}
	a.Cores = lists(m.groups(online, func(p Place) int { return p.Core }))
	a.L3 = lists(m.groups(online, func(p Place) int { return p.L3 }))
	a.Packages = lists(m.groups(online, func(p Place) int { return p.Package }))
	if m.Kernel.NoPackages != Known {
		a.Packages = []string{a.CPUs}
	}
	for _, id := range m.nodes() {
		a.Nodes = append(a.Nodes, Node{ID: id, CPUs: list(m.node(online, id)), MemoryBytes: m.NodeKB[id] * 1024})
	}
	return a
}

func (m Machine) online() []int {
	var ids []int
	for id := range m.CPUs {
		if !slices.Contains(m.Offline, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (m Machine) nodes() []int { return slices.Sorted(maps.Keys(m.NodeKB)) }

// node returns which of some CPUs belong to a NUMA node.
func (m Machine) node(cpus []int, id int) []int {
	return m.sharing(cpus, id, func(p Place) int { return p.Node })
}

// sharing returns which of some CPUs have a number in a field of their place.
func (m Machine) sharing(cpus []int, number int, field func(Place) int) []int {
	var ids []int
	for _, id := range cpus {
		if field(m.At(id)) == number {
			ids = append(ids, id)
		}
	}
	return ids
}

// groups returns the CPUs that share a number in a field of their place, in the order of their lowest CPU.
func (m Machine) groups(cpus []int, field func(Place) int) [][]int {
	var groups [][]int
	seen := map[int]bool{None: true}
	for _, id := range cpus {
		if number := field(m.At(id)); !seen[number] {
			seen[number] = true
			groups = append(groups, m.sharing(cpus, number, field))
		}
	}
	return groups
}

func lists(groups [][]int) []string {
	var out []string
	for _, g := range groups {
		out = append(out, list(g))
	}
	return out
}

// list writes ascending ids in the kernel's list format.
func list(ids []int) string {
	var parts []string
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		part := strconv.Itoa(ids[i])
		if j > i {
			part += "-" + strconv.Itoa(ids[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}
