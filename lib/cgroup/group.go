package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

func pageSize() int { return os.Getpagesize() }

// valueFile is a file that a cgroup's values are read from.
type valueFile struct {
	controller string
	version    int
	name       string
	parse      func(*Values, []byte) error
	// inherited says that the value of a cgroup without the file is its parent's.
	inherited bool
}

// valueFiles are all of them; a machine uses those whose controller it has mounted in that version.
var valueFiles = []valueFile{
	{controller: "cpuacct", version: 1, name: "cpuacct.usage", parse: (*Values).ParseUsage},
	{controller: "cpu", version: 1, name: "cpu.stat", parse: (*Values).ParseCPUStat},
	{controller: "memory", version: 1, name: "memory.usage_in_bytes", parse: (*Values).ParseMemory},
	{controller: "memory", version: 1, name: "memory.stat", parse: (*Values).ParseMemoryStatV1},
	{controller: "cpuset", version: 1, name: "cpuset.effective_cpus", parse: (*Values).ParseCPUSet},
	{controller: "pids", version: 1, name: "pids.current", parse: (*Values).ParseThreads},

	{controller: "cpuacct", version: 2, name: "cpu.stat", parse: (*Values).ParseCPUStat},
	{controller: "memory", version: 2, name: "memory.current", parse: (*Values).ParseMemory},
	{controller: "memory", version: 2, name: "memory.stat", parse: (*Values).ParseMemoryStatV2},
	{controller: "cpuset", version: 2, name: "cpuset.cpus.effective", parse: (*Values).ParseCPUSet, inherited: true},
	{controller: "pids", version: 2, name: "pids.current", parse: (*Values).ParseThreads},
}

// numaFiles are read too on machines of several NUMA nodes.
var numaFiles = []valueFile{
	{controller: "memory", version: 1, name: "memory.numa_stat", parse: (*Values).ParseNUMAStatV1},
	{controller: "memory", version: 2, name: "memory.numa_stat", parse: (*Values).ParseNUMAStatV2},
}

// cpuFiles are those of [NewCPUReader].
var cpuFiles = []valueFile{
	{controller: "cpuacct", version: 1, name: "cpuacct.usage", parse: (*Values).ParseUsage},
	{controller: "cpu", version: 1, name: "cpu.cfs_quota_us", parse: (*Values).ParseQuota},
	{controller: "cpu", version: 1, name: "cpu.cfs_period_us", parse: (*Values).ParsePeriod},
	{controller: "cpuset", version: 1, name: "cpuset.effective_cpus", parse: (*Values).ParseCPUSet},

	{controller: "cpuacct", version: 2, name: "cpu.stat", parse: (*Values).ParseCPUStat},
	{controller: "cpu", version: 2, name: "cpu.max", parse: (*Values).ParseCPUMax},
	{controller: "cpuset", version: 2, name: "cpuset.cpus.effective", parse: (*Values).ParseCPUSet, inherited: true},
}

// Reader opens cgroups for reading their values again and again. It is not for use by several goroutines at once.
type Reader struct {
	h       *Hierarchy
	files   []valueFile
	buf     []byte
	threads bool // they are counted where no file says how many
}

// NewReader returns a Reader of h's cgroups. numa asks for the memory on each NUMA node too.
func NewReader(h *Hierarchy, numa bool) *Reader {
	r := &Reader{h: h, buf: make([]byte, 8<<10), threads: true}
	all := valueFiles
	if numa {
		all = append(all[:len(all):len(all)], numaFiles...)
	}
	r.use(all)
	return r
}

// NewCPUReader returns a Reader of the cgroups' CPU use, CPU list and quota alone.
func NewCPUReader(h *Hierarchy) *Reader {
	r := &Reader{h: h, buf: make([]byte, 4<<10)}
	r.use(cpuFiles)
	return r
}

func (r *Reader) use(all []valueFile) {
	for _, f := range all {
		if r.h.Version(f.controller) == f.version {
			r.files = append(r.files, f)
		}
	}
}

// Group is one cgroup with its files held open.
type Group struct {
	Path   string
	Values Values

	reader *Reader
	files  []*File // one for each of reader.files, nil where it is not there
}

// Open opens a cgroup. Files that are not there, as where the cgroup has not been made in all hierarchies of v1, are
// left out, and their values with them; [Group.Reopen] looks for them again.
func (r *Reader) Open(cgroup string) (*Group, error) {
	if err := CheckPath(cgroup); err != nil {
		return nil, err
	}
	g := &Group{Path: cgroup, reader: r, files: make([]*File, len(r.files))}
	if err := g.Reopen(); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// Reopen opens the files that were not there before.
func (g *Group) Reopen() error {
	for i, f := range g.reader.files {
		if g.files[i] != nil {
			continue
		}
		file, err := g.open(f)
		if err != nil && !Gone(err) {
			return err
		}
		g.files[i] = file
	}
	return nil
}

func (g *Group) open(f valueFile) (*File, error) {
	for at := g.Path; ; at = path.Dir(at) {
		file, err := g.reader.h.Open(f.controller, at, f.name)
		if err == nil || !f.inherited || at == "/" || !Gone(err) {
			return file, err
		}
	}
}

// Complete reports whether all files are open.
func (g *Group) Complete() bool {
	for _, f := range g.files {
		if f == nil {
			return false
		}
	}
	return true
}

// ErrGone is wrapped where a cgroup has been removed.
var ErrGone = errors.New("the cgroup is gone")

// Read reads all values anew. A file of a cgroup that is being removed is closed and its value left out; when none is
// left, the error wraps ErrGone. Other errors tell of single files; the values of the others are there.
func (g *Group) Read() error {
	v := &g.Values
	v.Has = 0
	left := false
	var errs []error
	for i, file := range g.files {
		if file == nil {
			continue
		}
		data, err := file.Read(g.reader.buf)
		if cap(data) > cap(g.reader.buf) {
			g.reader.buf = data[:cap(data)]
		}
		switch {
		case Gone(err):
			file.Close()
			g.files[i] = nil
			continue
		case err == nil:
			err = g.reader.files[i].parse(v, data)
			if err != nil {
				err = fmt.Errorf("read %s: %w", file.Path(), err)
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
		left = true
	}
	if !left {
		return fmt.Errorf("read cgroup %s: %w", g.Path, ErrGone)
	}
	if v.Has&HasThreads == 0 && g.reader.threads {
		g.countThreads()
	}
	return errors.Join(errs...)
}

// countThreads is for kernels and cgroups without the pids controller.
func (g *Group) countThreads() {
	n := uint64(0)
	ok := g.reader.h.eachThread(g.Path, g.reader.buf, func([]byte) { n++ })
	if ok {
		g.Values.Threads = n
		g.Values.Has |= HasThreads
	}
}

// Close closes the files.
func (g *Group) Close() {
	for i, f := range g.files {
		if f != nil {
			f.Close()
			g.files[i] = nil
		}
	}
}

// OutOfFiles reports whether err says that the limit of open files is reached.
func OutOfFiles(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }
