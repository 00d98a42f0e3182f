package host

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
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

// Topology is the machine's topology (Documentation/admin-guide/cputopology.rst). All sets contain online CPUs alone; the
// sets of a slice are disjoint and sorted by their lowest CPU.
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

// OnlineCPUs reads the list of online CPUs, unparsed: it is cheap enough to detect by it, in each round, that the topology must
// be read again.
func (h *Host) OnlineCPUs() (string, error) {
	list, err := h.list(cpuDir + "online")
	if err != nil {
		return "", fmt.Errorf("read the list of online CPUs: %w", err)
	}
	return list, nil
}

// Topology reads the machine's topology from /sys. The error names the parts that could not be read; the others are filled in.
func (h *Host) Topology() (Topology, error) {
	online, err := h.onlineSet()
	if err != nil {
		return Topology{}, err
	}
	t := Topology{CPUs: online}
	var errs [4]error
	t.Cores, errs[0] = h.partition(online, "core", true, h.coreOf)
	t.Cores = withSingleCPUs(online, t.Cores)
	t.Sockets, errs[1] = h.sockets(online)
	t.L3, errs[2] = h.partition(online, "L3 cache", false, h.l3Of)
	t.NUMANodes, errs[3] = h.numaNodes(online)
	return t, errors.Join(errs[:]...)
}

// onlineSet is the set of online CPUs. Without the kernel's list (a partial copy of /sys) each CPU's own file decides,
// which cpu0 lacks on most machines.
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

// partition calls of for the set of that kind that each CPU belongs to, and turns the answers into disjoint sets: lists may
// name offline CPUs, and copies of /sys taken during a change may contradict themselves. A CPU without an answer is left out,
// unless a sibling's set contains it. The single error names the CPUs whose files could not be read. Missing files are no
// error, because many copies of /sys have none of a kind, unless every CPU is in such a set and other CPUs have the files.
func (h *Host) partition(online cpus.Set, kind string, every bool, of func(cpu string) (cpus.Set, error)) ([]cpus.Set, error) {
	var sets []cpus.Set
	var failed, absent failures
	left := online
	for _, id := range online.List() {
		if !left.Contains(id) {
			continue
		}
		set, err := of(cpuDir + "cpu" + strconv.Itoa(id) + "/")
		if errors.Is(err, fs.ErrNotExist) {
			absent.add(id, err)
			continue
		}
		if err != nil {
			failed.add(id, err)
			continue
		}
		set = set.Intersection(left).Union(cpus.New(id))
		sets = append(sets, set)
		left = left.Difference(set)
	}
	if len(sets) > 0 && every {
		failed.join(absent)
	}
	return sets, failed.err("read the " + kind + " of CPU")
}

// failures are CPUs or NUMA nodes of which a file could not be read. However many they are, they make one short error:
// a fault in a kernel's files is mostly in those of every CPU.
type failures struct {
	ids    []int
	first  string          // cause of the first one
	causes map[string]bool // all causes
}

func (f *failures) add(id int, err error) {
	reason := cause(err)
	if f.causes == nil {
		f.first, f.causes = reason, map[string]bool{}
	}
	f.ids = append(f.ids, id)
	f.causes[reason] = true
}

func (f *failures) join(g failures) {
	if len(f.ids) == 0 {
		*f = g
		return
	}
	f.ids = append(f.ids, g.ids...)
	maps.Copy(f.causes, g.causes)
}

// err is nil where nothing failed.
func (f *failures) err(what string) error {
	if len(f.ids) == 0 {
		return nil
	}
	ids := cpus.New(f.ids...).String()
	if len(ids) > 60 {
		ids = fmt.Sprintf("%d and %d more", slices.Min(f.ids), len(f.ids)-1)
	}
	more := ""
	if n := len(f.causes) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d other errors)", n)
	}
	return fmt.Errorf("%s %s: %s%s", what, ids, f.first, more)
}

// cause is an error's text without the path, which contains the CPU's number.
func cause(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return fs.ErrNotExist.Error()
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return filepath.Base(path.Path) + ": " + path.Err.Error()
	}
	return err.Error()
}

// withSingleCPUs adds a set of one for each CPU that is in no set, in order.
func withSingleCPUs(online cpus.Set, sets []cpus.Set) []cpus.Set {
	for _, set := range sets {
		online = online.Difference(set)
	}
	for _, id := range online.List() {
		sets = append(sets, cpus.New(id))
	}
	return sorted(sets)
}

// sorted sorts sets by their lowest CPU.
func sorted(sets []cpus.Set) []cpus.Set {
	slices.SortFunc(sets, func(a, b cpus.Set) int { return a.List()[0] - b.List()[0] })
	return sets
}

// names are a set's files: the list, and the mask, which is all that older copies of /sys have.
type names struct{ list, mask string }

// first parses the first of some sets that can be read. Where none can, the error is of a file that exists, if any does.
func (h *Host) first(dir string, sets ...names) (cpus.Set, error) {
	firstErr := fs.ErrNotExist
	try := func(name string, parse func(string) (cpus.Set, error)) (cpus.Set, bool) {
		text, err := h.list(dir + name)
		if err == nil {
			var set cpus.Set
			if set, err = parse(text); err == nil && !set.IsEmpty() {
				return set, true
			}
			if err == nil {
				err = errors.New("names no CPU")
			}
			err = fmt.Errorf("%s: %w", name, err)
		}
		if errors.Is(firstErr, fs.ErrNotExist) {
			firstErr = err
		}
		return cpus.Set{}, false
	}
	for _, n := range sets {
		if set, ok := try(n.list, cpus.Parse); ok {
			return set, nil
		}
		if set, ok := try(n.mask, ParseMask); ok {
			return set, nil
		}
	}
	return cpus.Set{}, firstErr
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
			return cpus.Set{}, fmt.Errorf("CPU mask: %q is not a word of 32 bits", kernfile.Clip([]byte(word)))
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
func (h *Host) coreOf(cpu string) (cpus.Set, error) {
	return h.first(cpu+"topology/", names{"core_cpus_list", "core_cpus"}, names{"thread_siblings_list", "thread_siblings"})
}

func (h *Host) l3Of(cpu string) (cpus.Set, error) {
	indexes, err := h.numbered(cpu+"cache", "index")
	if err != nil {
		return cpus.Set{}, err
	}
	for _, i := range indexes {
		index := cpu + "cache/index" + strconv.Itoa(i) + "/"
		level, err := h.list(index + "level")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return cpus.Set{}, err
		}
		if level == "3" {
			return h.first(index, names{"shared_cpu_list", "shared_cpu_map"})
		}
	}
	return cpus.Set{}, fs.ErrNotExist
}

// noPackage is the id of a package that the kernel does not know, as in guests on POWER. There the lists of a package's CPUs
// contain only the core, or the NUMA node.
const noPackage = "-1"

// sockets are the packages by their lists, or by their ids where there are no lists. All CPUs without a package are one socket.
func (h *Host) sockets(online cpus.Set) ([]cpus.Set, error) {
	sets, err := h.partition(online, "socket", true, func(cpu string) (cpus.Set, error) {
		if id, err := h.list(cpu + packageID); err == nil && id == noPackage {
			return h.packages(online)[noPackage], nil
		}
		return h.first(cpu+"topology/", names{"package_cpus_list", "package_cpus"}, names{"core_siblings_list", "core_siblings"})
	})
	if len(sets) > 0 {
		return sets, err
	}
	return sorted(slices.Collect(maps.Values(h.packages(online)))), err
}

const packageID = "topology/physical_package_id"

// packages are the CPUs by the id of their package, without those whose id cannot be read.
func (h *Host) packages(online cpus.Set) map[string]cpus.Set {
	ids := map[string][]int{}
	for _, cpu := range online.List() {
		if id, err := h.list(cpuDir + "cpu" + strconv.Itoa(cpu) + "/" + packageID); err == nil {
			ids[id] = append(ids[id], cpu)
		}
	}
	sets := map[string]cpus.Set{}
	for id, list := range ids {
		sets[id] = cpus.New(list...)
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
	var noCPUs, noMemory failures
	var nodes []NUMANode
	for _, id := range ids {
		node := NUMANode{ID: id}
		set, err := h.nodeCPUs(id)
		if err != nil {
			noCPUs.add(id, err)
		}
		node.CPUs = set.Intersection(online)
		m, err := h.NodeMemory(id)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a missing file is not an error of each round
			noMemory.add(id, err)
		}
		node.MemoryBytes = m.TotalBytes
		nodes = append(nodes, node)
	}
	return nodes, errors.Join(noCPUs.err("read the CPUs of NUMA node"), noMemory.err("read the memory of NUMA node"))
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
		return cpus.Set{}, err
	}
	return parse(list)
}
