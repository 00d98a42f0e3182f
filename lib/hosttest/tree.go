package hosttest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Write writes the machine's /sys/devices/system below a root directory, and a /proc with only the memory.
func (m Machine) Write(root string) error {
	isCreated := map[string]bool{}
	for path, text := range m.files() {
		path = filepath.Join(root, path)
		if dir := filepath.Dir(path); !isCreated[dir] {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			isCreated[dir] = true
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tree contains the files by path.
type tree map[string]string

func (t tree) number(path string, n int) { t[path] = strconv.Itoa(n) + "\n" }

// list writes a list of CPUs or nodes without a mask beside it.
func (m Machine) list(t tree, name string, ids []int) { t[name] = list(ids) + m.ending() }

// set writes a set of CPUs as the kernel does: under one name as a list, under another as a mask.
func (m Machine) set(t tree, listName, maskName string, ids []int) {
	if !m.Kernel.MasksOnly {
		m.list(t, listName, ids)
	}
	t[maskName] = mask(ids, m.possible()) + m.ending()
}

func (m Machine) ending() string {
	if m.Kernel.Ending == "" {
		return "\n"
	}
	return m.Kernel.Ending
}

func (m Machine) possible() int { return max(m.Possible, m.CPUs) }

// mask writes a bit mask of so many bits in words of 32, the highest first and as short as its bits are.
func mask(ids []int, bits int) string {
	words := make([]uint32, (bits+31)/32)
	for _, id := range ids {
		words[id/32] |= 1 << (id % 32)
	}
	texts := make([]string, len(words))
	for i, word := range words {
		digits := 8
		if i == len(words)-1 && bits%32 != 0 {
			digits = (bits%32 + 3) / 4
		}
		texts[len(words)-1-i] = fmt.Sprintf("%0*x", digits, word)
	}
	return strings.Join(texts, ",")
}

func (m Machine) files() tree {
	const cpu = "sys/devices/system/cpu/"
	t := tree{}
	all := make([]int, m.possible())
	for id := range all {
		all[id] = id
	}
	online := m.online()
	m.list(t, cpu+"online", online)
	m.list(t, cpu+"present", all[:m.CPUs])
	m.list(t, cpu+"possible", all)
	m.list(t, cpu+"offline", slices.DeleteFunc(slices.Clone(all), func(id int) bool { return slices.Contains(online, id) }))
	for _, id := range all[:m.CPUs] {
		m.cpu(t, fmt.Sprintf("%scpu%d/", cpu, id), id)
	}
	m.numa(t)
	var total uint64
	for _, kB := range m.NodeKB {
		total += kB
	}
	total = max(total, 1<<20)
	t["proc/meminfo"] = fmt.Sprintf("MemTotal:       %d kB\nMemFree:        %d kB\nMemAvailable:   %d kB\n", total, total/2, total/2)
	return t
}

// cpu writes a CPU's directory; that of an offline CPU contains nothing else.
func (m Machine) cpu(t tree, dir string, id int) {
	if slices.Contains(m.Offline, id) {
		t.number(dir+"online", 0)
		return
	}
	if id > 0 || slices.Contains(m.Offline, 0) { // x86 has no such file if cpu0 cannot be taken offline
		t.number(dir+"online", 1)
	}
	named := m.online()
	if m.Kernel.StaleLists {
		named = nil
		for id := range m.CPUs {
			named = append(named, id)
		}
	}
	m.topology(t, dir+"topology/", id, named)
	m.caches(t, dir+"cache/", id, named)
}

func (m Machine) topology(t tree, dir string, id int, named []int) {
	at := m.At(id)
	core := m.sharing(named, at.Core, func(p Place) int { return p.Core })
	pkg, pkgID := m.sharing(named, at.Package, func(p Place) int { return p.Package }), at.Package
	switch m.Kernel.NoPackages {
	case OfCores:
		pkg, pkgID = core, -1
	case OfNodes:
		pkg, pkgID = m.node(named, at.Node), -1
	case Known:
	}
	t.number(dir+"core_id", at.Core)
	t.number(dir+"physical_package_id", pkgID)
	m.set(t, dir+"thread_siblings_list", dir+"thread_siblings", core)
	m.set(t, dir+"core_siblings_list", dir+"core_siblings", pkg)
	if m.Kernel.OldNames {
		return
	}
	m.set(t, dir+"core_cpus_list", dir+"core_cpus", core)
	m.set(t, dir+"package_cpus_list", dir+"package_cpus", pkg)
	if at.Cluster != None {
		t.number(dir+"cluster_id", at.Cluster)
		m.set(t, dir+"cluster_cpus_list", dir+"cluster_cpus", m.sharing(named, at.Cluster, func(p Place) int { return p.Cluster }))
	}
}

func (m Machine) caches(t tree, dir string, id int, named []int) {
	at, index := m.At(id), 0
	cache := func(level int, kind string, number int, field func(Place) int) {
		if number == None {
			return
		}
		d := fmt.Sprintf("%sindex%d/", dir, index)
		index++
		t.number(d+"level", level)
		t[d+"type"] = kind + "\n"
		m.set(t, d+"shared_cpu_list", d+"shared_cpu_map", m.sharing(named, number, field))
	}
	cache(1, "Data", at.Core, func(p Place) int { return p.Core })
	cache(2, "Unified", at.L2, func(p Place) int { return p.L2 })
	cache(3, "Unified", at.L3, func(p Place) int { return p.L3 })
}

func (m Machine) numa(t tree) {
	const dir = "sys/devices/system/node/"
	ids := m.nodes()
	if ids == nil {
		return
	}
	var withCPUs []int
	for _, id := range ids {
		d := fmt.Sprintf("%snode%d/", dir, id)
		cpus := m.node(m.online(), id)
		if len(cpus) > 0 {
			withCPUs = append(withCPUs, id)
		}
		m.set(t, d+"cpulist", d+"cpumap", cpus)
		if m.Kernel.NodeMasksOnly {
			delete(t, d+"cpulist")
		}
		if kB := m.NodeKB[id]; kB > 0 {
			t[d+"meminfo"] = fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree:        %d kB\n", id, kB, id, kB/2)
		}
	}
	m.list(t, dir+"online", ids)
	m.list(t, dir+"possible", ids)
	m.list(t, dir+"has_cpu", withCPUs)
	m.list(t, dir+"has_memory", ids)
}
