package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"polder/lib/cpus"
	"polder/lib/kernfile"
)

const (
	cpuDir  = "sys/devices/system/cpu/"
	nodeDir = "sys/devices/system/node/"
)

// Topology is the machine's shape (Documentation/admin-guide/cputopology.rst). All sets hold online CPUs alone; the
// sets of a slice have no CPU in common and are sorted by their lowest CPU.
type Topology struct {
	CPUs    cpus.Set
	Cores   []cpus.Set
	Sockets []cpus.Set
	// L3 has no entry for CPUs without such a cache.
	L3 []cpus.Set
	// NUMANodes is sorted by id, and empty where the kernel knows no NUMA nodes.
	NUMANodes []NUMANode
}

// NUMANode is a NUMA node; CPUs is empty for a node of memory alone.
type NUMANode struct {
	ID          int
	CPUs        cpus.Set
	MemoryBytes *uint64
}

// OnlineCPUs reads the list of online CPUs as it stands: cheap enough to see by it, each time, whether the topology is
// to be read again.
func (h *Host) OnlineCPUs() (string, error) {
	list, err := h.list(cpuDir + "online")
	if err != nil {
		return "", fmt.Errorf("read the list of online CPUs: %w", err)
	}
	return list, nil
}

// Topology reads the machine's shape from /sys. The error tells of parts that could not be read; what could is there.
func (h *Host) Topology() (Topology, error) {
	online, err := h.onlineSet()
	if err != nil {
		return Topology{}, err
	}
	t := Topology{CPUs: online}
	t.Cores = h.partition(online, h.coreOf, true)
	t.Sockets = h.sockets(online)
	t.L3 = h.partition(online, h.l3Of, false)
	t.NUMANodes, err = h.numaNodes(online)
	return t, err
}

// onlineSet is the set of online CPUs; without the kernel's list (a partial copy of /sys) it is judged by each CPU's own
// file, which cpu0 lacks on most machines.
func (h *Host) onlineSet() (cpus.Set, error) {
	list, err := h.OnlineCPUs()
	if err == nil {
		set, err := cpus.Parse(list)
		if err != nil {
			return cpus.Set{}, fmt.Errorf("read %s: %w", h.Path(cpuDir+"online"), err)
		}
		if set.IsEmpty() {
			return cpus.Set{}, fmt.Errorf("read %s: no CPU is online", h.Path(cpuDir+"online"))
		}
		return set, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return cpus.Set{}, err
	}
	ids, dirErr := h.numbered(cpuDir, "cpu")
	if dirErr != nil || len(ids) == 0 {
		return cpus.Set{}, err
	}
	ids = slices.DeleteFunc(ids, func(id int) bool {
		state, err := h.list(cpuDir + "cpu" + strconv.Itoa(id) + "/online")
		return id > cpus.MaxID || err == nil && state == "0"
	})
	return cpus.New(ids...), nil
}

// numbered lists the numbers behind prefix in a directory's names, sorted as numbers.
func (h *Host) numbered(dir, prefix string) ([]int, error) {
	entries, err := os.ReadDir(h.Path(dir))
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), prefix)
		if n, isNumber := kernfile.Uint([]byte(number)); ok && isNumber && n < 1<<20 {
			ids = append(ids, int(n))
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// partition asks of for the set that each CPU belongs to, and makes of the answers sets that have nothing in common:
// lists may name offline CPUs, and copies of /sys taken during a change may contradict themselves. A CPU of which
// nothing is known stands alone, or is left out unless alone is asked for.
func (h *Host) partition(online cpus.Set, of func(cpu string) (cpus.Set, bool), alone bool) []cpus.Set {
	var sets []cpus.Set
	left := online
	for _, id := range online.List() {
		if !left.Contains(id) {
			continue
		}
		set, ok := of(cpuDir + "cpu" + strconv.Itoa(id) + "/")
		if !ok && !alone {
			continue
		}
		set = set.Intersection(left).Union(cpus.New(id))
		sets = append(sets, set)
		left = left.Difference(set)
	}
	return sets
}

// names are a set's files: the list, and the mask that older copies of /sys have alone.
type names struct{ list, mask string }

// first parses the first of some sets that is there.
func (h *Host) first(dir string, sets ...names) (cpus.Set, bool) {
	for _, n := range sets {
		if list, err := h.list(dir + n.list); err == nil && list != "" {
			if set, err := cpus.Parse(list); err == nil {
				return set, true
			}
		}
		if mask, err := h.list(dir + n.mask); err == nil && mask != "" {
			if set, err := ParseMask(mask); err == nil {
				return set, true
			}
		}
	}
	return cpus.Set{}, false
}

// ParseMask parses a bit mask as the kernel writes it: hexadecimal words of 32 bits, the highest first
// ("ffff,00000000").
func ParseMask(mask string) (cpus.Set, error) {
	words := strings.Split(mask, ",")
	if len(words) > (cpus.MaxID+1)/32 {
		return cpus.Set{}, fmt.Errorf("CPU mask of %d words", len(words))
	}
	var ids []int
	for i, word := range words {
		bits, err := strconv.ParseUint(word, 16, 32)
		if err != nil || word[0] == '+' {
			return cpus.Set{}, fmt.Errorf("CPU mask: %q is no word of 32 bits", kernfile.Clip([]byte(word)))
		}
		for bit := range 32 {
			if bits>>bit&1 != 0 {
				ids = append(ids, (len(words)-1-i)*32+bit)
			}
		}
	}
	return cpus.New(ids...), nil
}

// coreOf is the set of a CPU's hyperthread siblings; the second name is that of kernels before 5.3.
func (h *Host) coreOf(cpu string) (cpus.Set, bool) {
	return h.first(cpu+"topology/", names{"core_cpus_list", "core_cpus"}, names{"thread_siblings_list", "thread_siblings"})
}

func (h *Host) l3Of(cpu string) (cpus.Set, bool) {
	indexes, err := h.numbered(cpu+"cache", "index")
	if err != nil {
		return cpus.Set{}, false
	}
	for _, i := range indexes {
		index := cpu + "cache/index" + strconv.Itoa(i) + "/"
		if level, err := h.list(index + "level"); err == nil && level == "3" {
			return h.first(index, names{"shared_cpu_list", "shared_cpu_map"})
		}
	}
	return cpus.Set{}, false
}

// sockets are the packages by their lists, or by their ids where there are no lists.
func (h *Host) sockets(online cpus.Set) []cpus.Set {
	sets := h.partition(online, func(cpu string) (cpus.Set, bool) {
		return h.first(cpu+"topology/", names{"package_cpus_list", "package_cpus"}, names{"core_siblings_list", "core_siblings"})
	}, false)
	if len(sets) > 0 {
		return sets
	}
	place := map[string]int{}
	for _, id := range online.List() {
		socket, err := h.list(cpuDir + "cpu" + strconv.Itoa(id) + "/topology/physical_package_id")
		if err != nil {
			continue
		}
		i, ok := place[socket]
		if !ok {
			i = len(sets)
			place[socket] = i
			sets = append(sets, cpus.Set{})
		}
		sets[i] = sets[i].Union(cpus.New(id))
	}
	return sets
}

func (h *Host) numaNodes(online cpus.Set) ([]NUMANode, error) {
	ids, err := h.numbered(nodeDir, "node")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a kernel without NUMA
	}
	if err != nil {
		return nil, fmt.Errorf("list NUMA nodes: %w", err)
	}
	var errs []error
	var nodes []NUMANode
	for _, id := range ids {
		node := NUMANode{ID: id}
		set, err := h.nodeCPUs(id)
		if err != nil {
			errs = append(errs, err)
		}
		node.CPUs = set.Intersection(online)
		m, err := h.NodeMemory(id)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // not told: no error of each reading
			errs = append(errs, err)
		}
		node.MemoryBytes = m.TotalBytes
		nodes = append(nodes, node)
	}
	return nodes, errors.Join(errs...)
}

func (h *Host) nodeCPUs(id int) (cpus.Set, error) {
	dir := nodeDir + "node" + strconv.Itoa(id) + "/"
	list, err := h.list(dir + "cpulist")
	parse := cpus.Parse
	if errors.Is(err, fs.ErrNotExist) {
		list, err = h.list(dir + "cpumap")
		parse = ParseMask
	}
	if err != nil {
		return cpus.Set{}, fmt.Errorf("read CPUs of NUMA node %d: %w", id, err)
	}
	set, err := parse(list)
	if err != nil {
		return cpus.Set{}, fmt.Errorf("read CPUs of NUMA node %d: %w", id, err)
	}
	return set, nil
}
