package cgroup

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// valueFile is a file from which a cgroup's values are read.
type valueFile struct {
	controller string
	version    int
	name       string
	parse      func(*Values, []byte) error
	// isInherited means that a cgroup without the file has its parent's value.
	isInherited bool
	pace        pace
}

// valueFiles are all such files; a machine uses those whose controller is mounted in that version. The amount of memory must come
// before memory.stat, whose pace depends on it.
var valueFiles = []valueFile{
	{controller: "cpuacct", version: 1, name: "cpuacct.usage", parse: (*Values).ParseUsage},
	{controller: "cpu", version: 1, name: "cpu.stat", parse: (*Values).ParseCPUStat, pace: paceQuota},
	{controller: "memory", version: 1, name: "memory.usage_in_bytes", parse: (*Values).ParseMemory},
	{controller: "memory", version: 1, name: "memory.stat", parse: (*Values).ParseMemoryStatV1, pace: paceMemory},
	{controller: "cpuset", version: 1, name: "cpuset.effective_cpus", parse: (*Values).ParseCPUSet, pace: paceSoon},
	{controller: "pids", version: 1, name: "pids.current", parse: (*Values).ParseThreads, pace: paceThreads},

	{controller: "cpuacct", version: 2, name: "cpu.stat", parse: (*Values).ParseCPUStat},
	{controller: "memory", version: 2, name: "memory.current", parse: (*Values).ParseMemory},
	{controller: "memory", version: 2, name: "memory.stat", parse: (*Values).ParseMemoryStatV2, pace: paceMemory},
	{controller: "cpuset", version: 2, name: "cpuset.cpus.effective", parse: (*Values).ParseCPUSet, isInherited: true, pace: paceSoon},
	{controller: "pids", version: 2, name: "pids.current", parse: (*Values).ParseThreads, pace: paceThreads},
}

// numaFiles are also read on machines with several NUMA nodes.
var numaFiles = []valueFile{
	{controller: "memory", version: 1, name: "memory.numa_stat", parse: (*Values).ParseNUMAStatV1, pace: paceMemory},
	{controller: "memory", version: 2, name: "memory.numa_stat", parse: (*Values).ParseNUMAStatV2, pace: paceMemory},
}

// cpuFiles are the files of [NewCPUReader].
var cpuFiles = []valueFile{
	{controller: "cpuacct", version: 1, name: "cpuacct.usage", parse: (*Values).ParseUsage},
	{controller: "cpu", version: 1, name: "cpu.cfs_quota_us", parse: (*Values).ParseQuota},
	{controller: "cpu", version: 1, name: "cpu.cfs_period_us", parse: (*Values).ParsePeriod},
	{controller: "cpu", version: 1, name: "cpu.idle", parse: (*Values).ParseIdle},
	{controller: "cpuset", version: 1, name: "cpuset.effective_cpus", parse: (*Values).ParseCPUSet},

	{controller: "cpuacct", version: 2, name: "cpu.stat", parse: (*Values).ParseCPUStat},
	{controller: "cpu", version: 2, name: "cpu.max", parse: (*Values).ParseCPUMax},
	{controller: "cpu", version: 2, name: "cpu.idle", parse: (*Values).ParseIdle},
	{controller: "cpuset", version: 2, name: "cpuset.cpus.effective", parse: (*Values).ParseCPUSet, isInherited: true},
}

// memoryFiles are the files of [NewMemoryReader].
var memoryFiles = []valueFile{
	{controller: "memory", version: 1, name: "memory.usage_in_bytes", parse: (*Values).ParseMemory},
	{controller: "memory", version: 1, name: "memory.stat", parse: (*Values).ParseMemoryStatV1, pace: paceMemory},

	{controller: "memory", version: 2, name: "memory.current", parse: (*Values).ParseMemory},
	{controller: "memory", version: 2, name: "memory.stat", parse: (*Values).ParseMemoryStatV2, pace: paceMemory},
}

// Reader opens cgroups whose values are read repeatedly. It is not safe for concurrent use.
type Reader struct {
	h             *Hierarchy
	files         []valueFile
	buf           []byte
	stat          []byte // memory for a thread's stat
	tids          []uint32
	countsThreads bool // they are counted if no file has their number
	hasTime       HasTime
	groupsOpened  int // groups so far

	threadFiles, maxThreadFiles int // open files of threads, and their limit; 0 means not known yet

	stats       *cgroupStats // nil if it is unavailable or not opened yet
	statsOpened bool
}

// spreadSteps is the number of offsets over which the groups' readings are spread in time.
const spreadSteps = 16

// NewReader returns a Reader of h's cgroups. With numa it also reads the memory on each NUMA node.
func NewReader(h *Hierarchy, numa bool) *Reader {
	r := &Reader{h: h, buf: make([]byte, 8<<10), stat: make([]byte, 1024), countsThreads: true}
	all := valueFiles
	if numa {
		all = append(slices.Clip(all), numaFiles...)
	}
	r.selectFiles(all)
	return r
}

// NewCPUReader returns a Reader of only the cgroups' CPU use, CPU list, quota and idle switch.
func NewCPUReader(h *Hierarchy) *Reader {
	r := &Reader{h: h, buf: make([]byte, 4<<10)}
	r.selectFiles(cpuFiles)
	return r
}

// NewMemoryReader returns a Reader of only the cgroups' memory.
func NewMemoryReader(h *Hierarchy) *Reader {
	r := &Reader{h: h, buf: make([]byte, 8<<10)}
	r.selectFiles(memoryFiles)
	return r
}

func (r *Reader) selectFiles(all []valueFile) {
	for _, f := range all {
		if r.h.Version(f.controller) == f.version {
			r.files = append(r.files, f)
		}
	}
}

// LimitTime bounds the time for counting threads in the following readings, if no file has their number.
func (r *Reader) LimitTime(hasTime HasTime) { r.hasTime = hasTime }

// Group is one cgroup with its open files.
type Group struct {
	Path   string
	Values Values

	reader       *Reader
	files        []*File       // one for each of reader.files, nil if it does not exist
	owners       []string      // the cgroup of each of files: an ancestor if the value is inherited
	lastReadings []lastReading // of each
	spread       float64       // see [pace.record]
	count        Walk
}

// Open opens a cgroup. Values of files that do not exist or cannot be opened are absent, for example while the cgroup is not created in
// all hierarchies of v1; [Group.Reopen] tries to open these files again. It returns the errors of files that cannot be opened; the group
// is nil if no file could be opened because of them.
func (r *Reader) Open(cgroup string) (*Group, error) {
	if err := CheckPath(cgroup); err != nil {
		return nil, err
	}
	g := &Group{
		Path: cgroup, reader: r,
		files: make([]*File, len(r.files)), owners: make([]string, len(r.files)), lastReadings: make([]lastReading, len(r.files)),
	}
	r.groupsOpened++
	g.spread = float64(r.groupsOpened%spreadSteps) / spreadSteps
	err := g.Reopen()
	if err != nil && !slices.ContainsFunc(g.files, func(f *File) bool { return f != nil }) {
		return nil, err
	}
	return g, err
}

// Reopen opens the files that could not be opened before. One that still cannot be opened does not prevent the others.
func (g *Group) Reopen() error {
	var errs []error
	for i, f := range g.reader.files {
		if g.files[i] != nil {
			continue
		}
		if err := g.open(i, f); err != nil && !IsGone(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// open opens the file of the cgroup, or, if it has none and the value is inherited, of the nearest ancestor that has one.
func (g *Group) open(i int, f valueFile) error {
	for at := g.Path; ; at = path.Dir(at) {
		file, err := g.reader.h.Open(f.controller, at, f.name)
		if err == nil {
			g.files[i], g.owners[i] = file, at
			return nil
		}
		if !f.isInherited || at == "/" || !IsGone(err) {
			return err
		}
	}
}

// reopenInherited opens the file of an inherited value again if a nearer cgroup has one now: a controller can be enabled or disabled below
// a cgroup at any time. It costs a system call for each cgroup without the file.
func (g *Group) reopenInherited(i int, f valueFile) error {
	hasNearer := false
	for at := g.Path; at != g.owners[i] && !hasNearer; at = path.Dir(at) {
		hasNearer = g.reader.h.Has(f.controller, at, f.name)
	}
	if !hasNearer {
		return nil
	}
	previous := g.files[i]
	err := g.open(i, f)
	if g.files[i] != previous {
		previous.Close()
	}
	if IsGone(err) {
		return nil // the ancestor's is still valid
	}
	return err
}

// IsComplete reports whether all files are open.
func (g *Group) IsComplete() bool { return !slices.Contains(g.files, nil) }

// ErrGone is wrapped if a cgroup was removed.
var ErrGone = errors.New("the cgroup is gone")

// groupReading is one reading of a group's files.
type groupReading struct {
	ownRead, inheritedRead bool // files of the cgroup, and of an ancestor, were read
	fileRemoved            bool // a file was removed
	fileSkipped            bool // some were not read
	errs                   []error
}

// Read reads the values again: some of them each time, others only when they are old or may have changed (see [Group.At]); seconds is
// the time. A file of a cgroup that is being removed is closed, and its value is absent; when none is left, the error wraps ErrGone.
// Other errors concern single files; the values of the other files are set.
func (g *Group) Read(seconds float64) error {
	v := &g.Values
	v.Has = 0
	var reading groupReading
	for i := range g.reader.files {
		if g.files[i] == nil {
			continue
		}
		last := &g.lastReadings[i]
		if last.isSkipped = g.reader.files[i].pace.isFresh(last, v, seconds); last.isSkipped {
			v.Has |= last.has
			reading.fileSkipped = true
			continue
		}
		g.readFile(i, seconds, &reading)
	}
	if reading.fileSkipped && (reading.fileRemoved || !reading.ownRead) { // else the skipped files would hide that the cgroup was removed
		for i := range g.reader.files {
			if last := &g.lastReadings[i]; last.isSkipped {
				v.Has &^= last.has
				g.readFile(i, seconds, &reading)
			}
		}
	}
	if !reading.ownRead && (reading.fileRemoved || !reading.inheritedRead) {
		return fmt.Errorf("read cgroup %s: %w", g.Path, ErrGone)
	}
	if v.Has&HasThreads == 0 && g.reader.countsThreads {
		g.countThreads()
	}
	return errors.Join(reading.errs...)
}

// readFile reads one of the open files.
func (g *Group) readFile(i int, seconds float64, reading *groupReading) {
	f, v, last := &g.reader.files[i], &g.Values, &g.lastReadings[i]
	if g.owners[i] != g.Path {
		if err := g.reopenInherited(i, *f); err != nil {
			reading.errs = append(reading.errs, err)
		}
	}
	file := g.files[i]
	data, err := file.Read(g.reader.buf)
	if IsGone(err) && f.isInherited {
		data, err = g.readFromAncestor(i, *f)
		file = g.files[i]
	}
	if cap(data) > cap(g.reader.buf) {
		g.reader.buf = data[:cap(data)]
	}
	if IsGone(err) {
		if file != nil {
			file.Close()
		}
		g.files[i], g.lastReadings[i], reading.fileRemoved = nil, lastReading{}, true
		return
	}
	others := v.Has
	v.Has = 0
	if err == nil {
		if err = f.parse(v, data); err != nil {
			err = fmt.Errorf("read %s: %w", file.Path(), err)
		}
	}
	if err != nil {
		reading.errs = append(reading.errs, err)
		last.readAt = 0
	} else {
		f.pace.record(last, v, v.Has, seconds, g.spread)
	}
	v.Has |= others
	reading.ownRead = reading.ownRead || g.owners[i] == g.Path
	reading.inheritedRead = reading.inheritedRead || g.owners[i] != g.Path
}

// At returns when the values in of were read, in seconds; 0 if they are unknown.
func (g *Group) At(of Has) float64 {
	for i := range g.lastReadings {
		if last := &g.lastReadings[i]; last.has&of == of {
			return last.readAt
		}
	}
	return 0
}

// readFromAncestor reads an inherited value from the next cgroup that has it, after the former one has lost it. There is none if the cgroup
// itself was removed.
func (g *Group) readFromAncestor(i int, f valueFile) ([]byte, error) {
	g.files[i].Close()
	g.files[i] = nil
	if exists, err := g.reader.h.Exists(f.controller, g.Path); err != nil || !exists {
		return nil, unix.ENODEV
	}
	if err := g.open(i, f); err != nil {
		return nil, err
	}
	return g.files[i].Read(g.reader.buf)
}

// countThreads is for kernels and cgroups without the pids controller. If the time is too short, the number is unknown, and the
// next reading continues.
func (g *Group) countThreads() {
	done, ok := g.reader.walk(g.Path, &g.count, g.reader.hasTime, nil)
	if done && !g.count.Hidden {
		g.Values.Threads = g.count.Count
		g.Values.Has |= HasThreads
	}
	if done || !ok {
		g.count = Walk{}
	}
}

// IsCounting reports whether the last reading ran out of time before all threads were counted.
func (g *Group) IsCounting() bool { return g.count != Walk{} }

// Close closes the files.
func (g *Group) Close() {
	for i, f := range g.files {
		if f != nil {
			f.Close()
			g.files[i] = nil
		}
	}
}

// IsOutOfFiles reports whether err means that the limit of open files is reached.
func IsOutOfFiles(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }
