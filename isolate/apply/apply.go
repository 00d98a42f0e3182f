// Package apply makes the observed state of cgroups equal the desired state. It reads the present values, lets [plan]
// order the differences, writes them, reads them back, and keeps the journal from which every value can be restored.
package apply

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"polder/isolate/plan"
	"polder/lib/cgroup"
	"polder/lib/clip"
	"polder/lib/cpumanager"
	"polder/lib/cpus"
	"polder/lib/kernfile"
	"polder/lib/tick"
)

// Writer writes one value to one file of a cgroup; [cgroup.Hierarchy] writes to the kernel.
type Writer interface {
	WriteFile(controller, cgroup, name, value string) error
}

// Options set how an [Applier] acts.
type Options struct {
	Hierarchy *cgroup.Hierarchy
	Root      string             // of the machine's /sys and /proc, to find its disks; / if empty
	Online    string             // the file that lists the online CPUs; it may be missing
	Kubelet   *cpumanager.Reader // nil if there is none
	Writer    Writer             // the hierarchy if nil
	Journal   *Journal           // nil if there is none
	// Contest is how often a value that another program changes is written again before it is left to that program.
	Contest int
	DryRun  bool
	Log     *slog.Logger
}

// Applier applies desired states, one after the other. It is not safe for concurrent use.
type Applier struct {
	Options

	now         time.Time // time of the round
	machine     plan.Machine
	root        map[string]*file // the root's lists, by the name that they have in a child
	rootChanged bool             // or the CPUs that kubelet assigned
	kubelet     kubeletSeen
	partitions  *cgroup.Partitions
	looked      int // how often partitions were read
	disks       disksSeen
	online      struct {
		text string
		set  cpus.Set
	}

	desired  []tick.Cgroup // the state from which items were made
	items    []item
	problems []tick.IsolationError
	failed   int // number of failures in the last Apply

	files   map[plan.File]*file
	age     uint64 // counts the programs; a file that the current one does not use is closed
	open    int
	maxOpen int
	buf     []byte

	records     map[plan.File]*record
	pruneAt     int
	unavailable unavailable
	restores    bool
	awaitFor    time.Duration        // the maximum time that a narrowing waits for a cgroup that is being created
	above       map[plan.File]string // the lists that a restore wrote where the kernel accepts no empty list
}

// item is one setting with its files.
type item struct {
	plan.Setting
	file, period, quota, inForce *file

	judged uint64 // the value of file.readings when done was determined
	done   bool   // the file has the desired value
	err    error  // the error of reading it
	leave  bool   // another program keeps changing the value, or it must not be changed
	spare  bool   // the file that it replaces is available (see [plan.Setting.Instead])
}

// New returns an Applier.
func New(o Options) *Applier {
	a := &Applier{
		Options:     o,
		root:        map[string]*file{},
		files:       map[plan.File]*file{},
		records:     map[plan.File]*record{},
		buf:         make([]byte, 4096),
		maxOpen:     maxOpen(),
		pruneAt:     leastPrune,
		above:       map[plan.File]string{},
		unavailable: newUnavailable(),

		awaitFor: awaitFor,
	}
	a.partitions = cgroup.NewPartitions(o.Hierarchy)
	if o.Writer == nil {
		a.Writer = o.Hierarchy
	}
	if o.Journal != nil {
		a.records = o.Journal.records
	}
	a.machine.PageBytes = int64(os.Getpagesize())
	a.machine.Versions = map[string]int{}
	for _, c := range plan.Controllers() {
		a.machine.Versions[c] = o.Hierarchy.Version(c)
	}
	return a
}

// maxOpen leaves half of the process's file descriptors to other uses.
func maxOpen() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 256
	}
	return int(min(limit.Cur, 1<<20) / 2)
}

// Close closes the files that are kept open.
func (a *Applier) Close() {
	for _, f := range a.files {
		a.shut(f)
	}
	for _, f := range a.root {
		a.shut(f)
	}
}

// At sets the time of the following rounds to the tick's time.
func (a *Applier) At(now time.Time) { a.now = now }

// Apply applies the desired state as far as possible and returns what it did.
func (a *Applier) Apply(desired []tick.Cgroup) tick.Isolation {
	r := &round{}
	r.DryRun = a.DryRun
	a.readMachine()
	a.readDisksFor(desired)
	a.program(desired)
	for _, p := range a.problems {
		if plan.Unavailable(p) {
			a.unavailable.report(r, p)
		} else {
			r.refuse(p)
		}
	}
	a.readItems(r)
	if changing := a.changing(r); len(changing) > 0 {
		a.change(r, changing)
	}
	a.checkInForce(r)
	a.failed = r.failed
	return r.finish()
}

// Failed returns how many values the last Apply could not write but a retry may. It does not count advice that was refused.
func (a *Applier) Failed() int { return a.failed }

// readMachine reads the CPUs and memory nodes of the machine, and which of them kubelet assigns.
func (a *Applier) readMachine() {
	a.rootChanged = false
	if online := a.readOnline(); !online.IsEmpty() {
		a.rootChanged = !online.Equals(a.machine.CPUs)
		a.machine.CPUs = online
	} else {
		a.machine.CPUs = a.readRoot("cpuset.cpus", a.machine.CPUs, "cpuset.effective_cpus", "cpuset.cpus.effective", "cpuset.cpus")
	}
	a.machine.Mems = a.readRoot("cpuset.mems", a.machine.Mems, "cpuset.effective_mems", "cpuset.mems.effective", "cpuset.mems")
	a.readKubelet()
	a.readPartitions()
}

// partitionsEvery is the number of readings after which all cgroups are searched for partitions, even if the effective lists, which
// are read each time, show no new one.
const partitionsEvery = 30

// readPartitions reads which CPUs belong to partitions. If they changed, the plan is made again. If they cannot be read, the
// last known ones stay valid.
func (a *Applier) readPartitions() {
	list, err := a.partitions.Read(a.looked%partitionsEvery == 0)
	a.looked++
	if err != nil {
		a.Log.Warn("CPU partitions are taken for what they were", "error", err)
		return
	}
	same := slices.EqualFunc(list, a.machine.Partitions, func(x cgroup.Partition, y plan.Partition) bool {
		return x.Cgroup == y.Cgroup && x.CPUs.Equals(y.CPUs)
	})
	if same {
		return
	}
	a.rootChanged, a.machine.Partitions = true, nil
	for _, p := range list {
		a.Log.Info("CPU partition", "cgroup", p.Cgroup, "cpus", p.CPUs.String())
		a.machine.Partitions = append(a.machine.Partitions, plan.Partition{Cgroup: p.Cgroup, CPUs: p.CPUs})
	}
}

// readOnline reads the online CPUs on version 2, because the root's own list omits the CPUs of partitions, which cgroups
// within a partition may use. It returns an empty set if they cannot be read.
func (a *Applier) readOnline() cpus.Set {
	if a.Online == "" || a.machine.Versions["cpuset"] != 2 {
		return cpus.Set{}
	}
	text, err := kernfile.ReadText(a.Online)
	if err != nil {
		return cpus.Set{}
	}
	if text == a.online.text {
		return a.online.set
	}
	set, err := cpus.Parse(text)
	if err != nil {
		return cpus.Set{}
	}
	a.online.text, a.online.set = text, set
	return set
}

func (a *Applier) readRoot(list string, before cpus.Set, names ...string) cpus.Set {
	for _, name := range names {
		f := a.root[name]
		if f == nil {
			f = &file{File: plan.File{Controller: "cpuset", Cgroup: "/", Name: name}}
		}
		readings := f.readings
		if err := a.read(f); err != nil {
			continue
		}
		a.root[name] = f
		if readings == f.readings && !before.IsEmpty() {
			return before
		}
		set, err := cpus.Parse(f.text)
		if err != nil || set.IsEmpty() {
			continue
		}
		a.rootChanged = a.rootChanged || !set.Equals(before)
		return set
	}
	if !before.IsEmpty() && a.machine.Versions["cpuset"] != 0 {
		a.Log.Warn("the root's list cannot be read any more", "list", list)
	}
	return cpus.Set{}
}

// changing returns the items to be written.
func (a *Applier) changing(r *round) []*item {
	var out []*item
	for i := range a.items {
		it := &a.items[i]
		it.leave = false
		if it.file != nil && it.file.early {
			it.file.reconsider(a.now, a.podsBeside(it.File))
		}
		switch {
		case it.spare:
			it.leave = true
		case it.err != nil:
		case it.done:
			it.file.agree(it.Present)
			r.Unchanged++
		case a.taken(it, r) || a.foreign(it, r) || a.partition(it, r) || a.kills(it, r):
			it.leave = true
		default:
			out = append(out, it)
		}
	}
	return out
}

// partition reports whether the cgroup is the root of a CPU partition of version 2, which another program manages.
func (a *Applier) partition(it *item, r *round) bool {
	if it.Version != 2 || it.Name != "cpuset.cpus" {
		return false
	}
	state, err := a.Hierarchy.ReadFile(it.Controller, it.Cgroup, "cpuset.cpus.partition")
	if err != nil || state == "member" || state == "" {
		return false
	}
	r.fail(tick.IsolationError{Cgroup: it.Cgroup, Key: it.Key, Error: "left alone: the cgroup is a CPU partition (cpuset.cpus.partition is " + clip.Text(state, shownBytes) + ")"})
	return true
}

// change makes the plan and executes it.
func (a *Applier) change(r *round, changing []*item) {
	settings := make([]plan.Setting, 0, len(a.items))
	for i := range a.items {
		if it := &a.items[i]; it.err == nil && !it.leave {
			settings = append(settings, it.Setting)
		}
	}
	bound := make([]*plan.Setting, 0, len(changing))
	for _, it := range changing {
		if it.Bound() {
			bound = append(bound, &it.Setting)
		}
	}
	a.bursts(settings)
	settings = append(settings, a.weights(changing)...)
	writes, problems := plan.Make(a.machine, settings, a.around(bound, settings))
	for _, p := range problems {
		r.fail(p)
	}
	if a.DryRun {
		for _, w := range writes {
			r.wrote(w, w.Old, w.New)
		}
		return
	}
	if len(writes) == 0 {
		return
	}
	if err := a.remember(writes); err != nil {
		for _, w := range writes {
			r.fail(tick.IsolationError{Cgroup: w.Cgroup, Key: w.Key, Error: "not written, for it could not be put back: " + err.Error()})
		}
		return
	}
	a.carry(r, writes)
	a.prune()
}

// bursts reads the bursts that belong to quotas: the kernel rejects a quota below its burst. Older kernels have no such file.
func (a *Applier) bursts(settings []plan.Setting) {
	for i := range settings {
		if s := &settings[i]; s.BurstFile() != "" && (s.Version == 1 || !s.Done()) { // on version 1 a parent's may cut it
			s.Burst, s.BurstOwn = a.burstOf(s.File)
		}
	}
}

// burstOf returns the burst that belongs to a quota, and its value before any plan changed it.
func (a *Applier) burstOf(f plan.File) (present, own string) {
	f.Name = f.BurstFile()
	present, err := a.Hierarchy.ReadFile(f.Controller, f.Cgroup, f.Name)
	if err != nil {
		return "", ""
	}
	if r := a.records[f]; r != nil && r.Inode == a.inode(f) && r.ours(f.Name, present) {
		own = r.First
	}
	return present, own
}

// weights restores the weight of cgroups that are no longer idle: the kernel changed it when isolate made them idle.
// It does not do so if the advice contains a weight for them.
func (a *Applier) weights(changing []*item) []plan.Setting {
	var out []plan.Setting
	for _, it := range changing {
		if it.Name != "cpu.idle" || it.Present != "1" {
			continue
		}
		f := it.File
		f.Name = plan.WeightFile(it.Version)
		rec := a.records[f]
		if rec == nil || !rec.Disturbed || rec.Inode != a.inode(f) || a.files[f] != nil {
			continue
		}
		s, err := plan.Restore(f, "cpuWeight", rec.First, it.Version)
		if err != nil {
			continue
		}
		if s.Present, err = a.Hierarchy.ReadFile(f.Controller, f.Cgroup, f.Name); err == nil {
			out = append(out, s)
		}
	}
	return out
}

// checkInForce compares the list that was written with the effective one: on version 2 the kernel treats a list only as a request.
func (a *Applier) checkInForce(r *round) {
	for i := range a.items {
		it := &a.items[i]
		if it.inForce == nil || it.err != nil || it.leave || a.DryRun || !settled(it) {
			continue
		}
		if err := a.read(it.inForce); err != nil {
			continue
		}
		if want, _ := it.Want(); !plan.Same(it.Name, want, it.inForce.text) {
			r.fail(tick.IsolationError{Cgroup: it.Cgroup, Key: it.Key, Error: "is " + want + ", but in force is " + it.inForce.text + ": the cgroups above allow no more"})
		}
	}
}

// settled reports whether the item's file had the desired value when it was last read or written.
func settled(it *item) bool {
	want, err := it.Want()
	return err == nil && plan.Same(it.Name, it.file.text, want)
}

// around reads the files of ancestors and descendants of the changing cgroups, if the kernel checks the values against them.
func (a *Applier) around(changing []*plan.Setting, settings []plan.Setting) []plan.Around {
	if len(changing) == 0 {
		return nil
	}
	n := neighbours{a: a, seen: make(map[plan.File]bool, len(settings))}
	for i := range settings {
		n.seen[settings[i].File] = true
	}
	for _, s := range changing {
		n.above(s.File, s.PeriodFile())
		n.below(s.File, s.PeriodFile(), 0)
		if s.Name == "cpuset.cpus" && s.Present == "" { // never initialized
			n.mems(s)
		}
	}
	return n.out
}

// gone reports whether the cgroup or its file does not exist.
func gone(err error) bool { return cgroup.Gone(err) || errors.Is(err, fs.ErrNotExist) }
