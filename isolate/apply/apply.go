// Package apply makes the observed state of cgroups equal the desired state. It reads the present values, lets [plan]
// order the differences, writes them, reads them back, and keeps the journal from which every value can be restored.
package apply

import (
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
	Journal   *Journal           // nil if there is none; a dry run uses only its records
	// Contest is how often a value that another program changes is written again before it is left to that program.
	Contest int
	DryRun  bool
	Log     *slog.Logger
}

// Applier applies desired states, one after the other. It is not safe for concurrent use.
type Applier struct {
	Options

	now            time.Time // time of the round
	machine        plan.Machine
	rootLists      map[string]*file // the root's lists, by the name that they have in a child
	machineChanged bool             // or the CPUs that kubelet assigned
	kubelet        kubeletReading
	rootSearchIn   int // rounds until kubelet's root cgroups are searched again
	partitions     *cgroup.Partitions
	partitionReads int // how often partitions were read
	disks          diskReading
	online         struct {
		readText string
		set      cpus.Set
	}

	desired  []tick.Cgroup // the state from which items were made
	items    []item
	problems []tick.IsolationError
	failed   int // number of failures in the last Apply

	files           map[plan.File]*file
	itemsGeneration uint64 // counts the lists of items; a file that the current one does not use is closed
	openFiles       int
	maxOpenFiles    int
	buf             []byte

	records        map[plan.File]*record
	pruneThreshold int
	settledWeights map[plan.File]*record // see lostWeights
	unavailable    unavailable
	isRestoring    bool
	behind         behind
	maxChildWait   time.Duration        // how long a narrowing waits at most for a cgroup that is being created
	parentLists    map[plan.File]string // the lists that a restore wrote where the kernel accepts no empty list
}

// item is one setting with its files.
type item struct {
	plan.Setting
	file, period, quota, effective *file

	checkedChanges uint64 // the sum of the files' textVersion when isAsDesired was determined
	isAsDesired    bool   // the file has the desired value
	err            error  // the error of reading it
	isSkipped      bool   // another program keeps changing the value, or it must not be changed
	isRedundant    bool   // the file that it replaces is available (see [plan.Setting.ReplacedFile])
}

// New returns an Applier.
func New(o Options) *Applier {
	o.Hierarchy = o.Hierarchy.WithAnyNames() // for neighbours and records; makeItems checks the paths of advice
	a := &Applier{
		Options:        o,
		rootLists:      map[string]*file{},
		files:          map[plan.File]*file{},
		records:        map[plan.File]*record{},
		settledWeights: map[plan.File]*record{},
		buf:            make([]byte, 4096),
		maxOpenFiles:   maxOpenFiles(),
		pruneThreshold: minPruneThreshold,
		parentLists:    map[plan.File]string{},
		unavailable:    newUnavailable(),

		maxChildWait: maxChildWait,
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

// maxOpenFiles leaves half of the process's file descriptors to other uses.
func maxOpenFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 256
	}
	return int(min(limit.Cur, 1<<20) / 2)
}

// Close closes the files that are kept open.
func (a *Applier) Close() {
	for _, f := range a.files {
		a.closeFile(f)
	}
	for _, f := range a.rootLists {
		a.closeFile(f)
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
	a.makeItems(desired)
	for _, p := range a.problems {
		if plan.IsUnavailable(p) {
			a.unavailable.report(r, p)
		} else {
			r.refuse(p)
		}
	}
	a.readItems(r)
	changing := a.itemsToWrite(r)
	a.findBehind()
	if lost := a.lostWeights(); len(changing)+len(lost)+len(a.behind.files) > 0 {
		a.writeItems(r, changing, lost)
		a.settleWritten(lost)
	}
	a.checkEffective(r)
	a.failed = r.failed
	return r.finish()
}

// Failed returns how many values the last Apply could not write but a retry may. It does not count advice that was refused.
func (a *Applier) Failed() int { return a.failed }

// readMachine reads the CPUs and memory nodes of the machine, and which of them kubelet assigns.
func (a *Applier) readMachine() {
	a.machineChanged = false
	if online := a.readOnline(); !online.IsEmpty() {
		a.machineChanged = !online.Equals(a.machine.CPUs)
		a.machine.CPUs = online
	} else {
		a.machine.CPUs = a.readRoot("cpuset.cpus", a.machine.CPUs, "cpuset.effective_cpus", "cpuset.cpus.effective", "cpuset.cpus")
	}
	a.machine.Mems = a.readRoot("cpuset.mems", a.machine.Mems, "cpuset.effective_mems", "cpuset.mems.effective", "cpuset.mems")
	a.readKubelet()
	a.readPartitions()
}

// partitionSearchInterval is the number of readings after which all cgroups are searched for partitions, even if the effective lists,
// which are read each time, show no new one.
const partitionSearchInterval = 30

// readPartitions reads which CPUs belong to partitions. If they changed, the plan is made again. If they cannot be read, the
// last known ones stay valid.
func (a *Applier) readPartitions() {
	list, err := a.partitions.Read(a.partitionReads%partitionSearchInterval == 0)
	a.partitionReads++
	if err != nil {
		a.Log.Warn("the CPU partitions were not read; the last known ones stay valid", "error", err)
		return
	}
	isSame := slices.EqualFunc(list, a.machine.Partitions, func(x cgroup.Partition, y plan.Partition) bool {
		return x.Cgroup == y.Cgroup && x.CPUs.Equals(y.CPUs)
	})
	if isSame {
		return
	}
	a.machineChanged, a.machine.Partitions = true, nil
	for _, p := range list {
		a.Log.Info("found a CPU partition", "cgroup", p.Cgroup, "cpus", p.CPUs.String())
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
	if text == a.online.readText {
		return a.online.set
	}
	set, err := cpus.Parse(text)
	if err != nil {
		return cpus.Set{}
	}
	a.online.readText, a.online.set = text, set
	return set
}

func (a *Applier) readRoot(list string, before cpus.Set, names ...string) cpus.Set {
	for _, name := range names {
		f := a.rootLists[name]
		if f == nil {
			f = &file{File: plan.File{Controller: "cpuset", Cgroup: "/", Name: name}}
		}
		changes := f.textVersion
		if err := a.read(f); err != nil {
			continue
		}
		a.rootLists[name] = f
		if changes == f.textVersion && !before.IsEmpty() {
			return before
		}
		set, err := cpus.Parse(f.text)
		if err != nil || set.IsEmpty() {
			continue
		}
		a.machineChanged = a.machineChanged || !set.Equals(before)
		return set
	}
	if !before.IsEmpty() && a.machine.Versions["cpuset"] != 0 {
		a.Log.Warn("the root cgroup's list was not read", "list", list)
	}
	return cpus.Set{}
}

// itemsToWrite returns the items to be written.
func (a *Applier) itemsToWrite(r *round) []*item {
	var out []*item
	for i := range a.items {
		it := &a.items[i]
		it.isSkipped = false
		if it.file != nil && it.file.mayAwaitPod {
			it.file.reconsider(a.now, a.kubeletPods(it.File))
		}
		switch {
		case it.isRedundant:
			it.isSkipped = true
		case it.err != nil:
		case it.isAsDesired:
			it.file.expect(it.Observed)
			r.Unchanged++
		case a.hasNoWeight(it), a.hasExclusiveCPUs(it, r), a.isContested(it, r), a.isPartitionRoot(it, r), a.wouldKill(it, r),
			a.needsJournal(it, r):
			it.isSkipped = true
		default:
			out = append(out, it)
		}
	}
	return out
}

// isPartitionRoot reports whether the item is the list of the root of a CPU partition, which another program manages.
func (a *Applier) isPartitionRoot(it *item, r *round) bool {
	reason := a.partitionReason(it.File)
	if reason == "" {
		return false
	}
	r.fail(tick.IsolationError{Cgroup: it.Cgroup, Key: it.Key, Error: "not written: " + reason})
	return true
}

// partitionReason returns why a file is not written if it is the list of the root of a CPU partition of version 2; empty for other files.
func (a *Applier) partitionReason(f plan.File) string {
	if f.Name != "cpuset.cpus" || a.Hierarchy.Version(f.Controller) != 2 {
		return ""
	}
	state, err := a.Hierarchy.ReadFile(f.Controller, f.Cgroup, "cpuset.cpus.partition")
	if err != nil || state == "member" || state == "" {
		return ""
	}
	return "the cgroup is a CPU partition (cpuset.cpus.partition is " + clip.Text(state, maxShownBytes) + ")"
}

// needsJournal reports whether a value must not be written without a journal, which has the original value after a restart. A dry run
// predicts that.
func (a *Applier) needsJournal(it *item, r *round) bool {
	if a.Journal != nil || !it.MultipliesOriginal() {
		return false
	}
	a.unavailable.report(r, tick.IsolationError{
		Cgroup: it.Cgroup, Key: it.Key,
		Error: "not written without --journal: after a restart the multiplied weight would count as the original one",
	})
	return true
}

// hasNoWeight reports whether a weight is to be multiplied that the kernel does not keep and would refuse to set: somebody made the
// cgroup idle, and it stays so.
func (a *Applier) hasNoWeight(it *item) bool {
	if !it.MultipliesOriginal() {
		return false
	}
	idle, err := a.Hierarchy.ReadFile(it.Controller, it.Cgroup, "cpu.idle")
	if err != nil || idle != "1" { // before Linux 5.15 there is no such file
		return false
	}
	it.file.hasLastApplied = false // the kernel changed the weight with the class: this is no external change
	return true
}

// writeItems makes the plan for the changing items, and for other settings that are lost, and executes it.
func (a *Applier) writeItems(r *round, changing []*item, lost []plan.Setting) {
	settings := make([]plan.Setting, 0, len(a.items))
	for i := range a.items {
		if it := &a.items[i]; it.err == nil && !it.isSkipped {
			settings = append(settings, it.Setting)
		}
	}
	bound := make([]*plan.Setting, 0, len(changing))
	for _, it := range changing {
		if it.IsBounded() {
			bound = append(bound, &it.Setting)
		}
	}
	a.readRelated(settings)
	settings = append(settings, a.weightsToRestore(changing)...)
	settings = append(settings, lost...)
	writes, problems := plan.Make(a.machine, settings, a.readNeighbours(bound, settings))
	for _, p := range problems {
		r.fail(p)
	}
	if a.DryRun {
		r.addPlanned(writes)
		return
	}
	if len(writes) == 0 {
		return
	}
	if err := a.recordOriginals(writes, changing); err != nil {
		for _, w := range writes {
			a.noteFailure(w)
			r.failWrite(w, "not written, because the original value could not be recorded: "+err.Error())
		}
		return
	}
	a.execute(r, writes)
	a.prune()
}

// readRelated reads what a plan needs beside the values: the bursts that belong to quotas, because the kernel rejects a quota below its
// burst (older kernels have no such file), and the original lists of version 1, which the cgroups below follow.
func (a *Applier) readRelated(settings []plan.Setting) {
	for i := range settings {
		s := &settings[i]
		if s.IsListV1() {
			s.Original = a.originalOf(s.File, s.Observed)
		}
		if s.BurstFile() == "" {
			continue
		}
		_, isBehind := a.behind.files[burstFile(s.File)]
		if s.Version == 1 || isBehind || !s.IsAsDesired() { // on version 1 a parent's quota may cut it
			s.Burst, s.OriginalBurst = a.burstOf(s.File)
			s.IsBurstBehind = a.behind.has(burstFile(s.File), s.Burst)
		}
	}
}

// burstOf returns the burst that belongs to a quota, and its value before any plan changed it.
func (a *Applier) burstOf(f plan.File) (observed, original string) {
	f = burstFile(f)
	observed, err := a.Hierarchy.ReadFile(f.Controller, f.Cgroup, f.Name)
	if err != nil {
		return "", ""
	}
	return observed, a.originalOf(f, observed)
}

// originalOf returns a file's value before any plan changed it; empty if no plan did, or another program changed it since.
func (a *Applier) originalOf(f plan.File, observed string) string {
	if r := a.records[f]; r != nil && r.isOurs(f.Name, observed) && r.Inode == a.inode(f) {
		return r.Original
	}
	return ""
}

// checkEffective compares the list that was written with the effective one: on version 2 the kernel treats a list only as a request.
func (a *Applier) checkEffective(r *round) {
	for i := range a.items {
		it := &a.items[i]
		if it.effective == nil || it.err != nil || it.isSkipped || a.DryRun || !hasDesiredText(it) {
			continue
		}
		if err := a.read(it.effective); err != nil {
			continue
		}
		if desired, _ := it.Desired(); !plan.Same(it.Name, desired, it.effective.text) {
			r.fail(tick.IsolationError{Cgroup: it.Cgroup, Key: it.Key, Error: "has " + desired + ", but effective is only " + it.effective.text + ": the cgroups above allow no more"})
		}
	}
}

// hasDesiredText reports whether the item's file had the desired value when it was last read or written.
func hasDesiredText(it *item) bool {
	desired, err := it.Desired()
	return err == nil && plan.Same(it.Name, it.file.text, desired)
}

// readNeighbours reads the files of ancestors and descendants of the changing cgroups, if the kernel checks the values against them.
func (a *Applier) readNeighbours(changing []*plan.Setting, settings []plan.Setting) []plan.Neighbour {
	if len(changing)+len(a.behind.files) == 0 {
		return nil
	}
	n := neighbours{a: a, seen: make(map[plan.File]bool, len(settings))}
	for i := range settings {
		n.seen[settings[i].File] = true
	}
	for _, s := range changing {
		n.addAncestors(s.File, s.PeriodFile())
		n.addDescendants(s.File, s.PeriodFile())
		if s.Name == "cpuset.cpus" && s.Observed == "" { // never initialized
			n.addMems(s)
		}
	}
	n.addBehind()
	return n.out
}

// burstFile returns the file of the burst that belongs to a quota.
func burstFile(f plan.File) plan.File {
	f.Name = f.BurstFile()
	return f
}
