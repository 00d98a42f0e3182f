// Package plan turns the desired and the observed state of cgroups into writes, in an order in which the kernel accepts each write and no
// intermediate state leaves a cgroup without CPUs or with more than both its old and its new state.
//
// It is pure. The caller reads the files that [Translate] names into the settings, adds the neighbours of those that
// change ([Neighbour]), and executes what [Make] returns.
package plan

import (
	"cmp"
	"path"
	"slices"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// File is one file of one cgroup.
type File struct {
	Controller string // "cpu", "cpuset", "memory", "io"
	Cgroup     string
	Name       string
	Device     string // the disk's numbers if the file has a line for each disk ([isPerDevice]); empty for others
}

// Machine is what a plan must know of the machine.
type Machine struct {
	// Versions has the cgroup version of each controller; 0 or no entry if it is not mounted.
	Versions map[string]int
	// CPUs and Mems are those of the hierarchy's root; empty if they could not be read.
	CPUs, Mems cpus.Set
	PageBytes  int64
	// Kubelet is nil if there is none.
	Kubelet *Kubelet
	// Partitions are those of version 2; only the cgroups in a partition may use its CPUs.
	Partitions []Partition
	// Disks are those for which limits may be set; empty if no disk limits are desired.
	Disks []Disk
}

// Setting is one desired value of one file.
type Setting struct {
	File
	// Alternative is an alternative name of the file, for kernels that do not have the first.
	Alternative string
	// Key is the name in [tick.Cgroup].
	Key     string
	Version int

	set        cpus.Set // of a list
	milli      int64    // of a quota or burst, unless isFileText
	text       string   // of everything else
	isFileText bool     // text is the file's own, from a restore
	limits     limits   // of a disk, unless isFileText; 0 is one that is not desired
	exclusive  cpus.Set // CPUs that kubelet assigned exclusively to containers of the cgroup's pod

	restoresOriginal bool  // the desired value is the original one
	factor           int64 // of a weight: the desired value is the original one times factor; 0 means that text is it
	isTighterOnly    bool  // a limit or quota that never exceeds the original one, or a protection that never falls below it

	isOptional   bool // the file's alternative name, beside the first: a kernel may have both
	replacesIdle bool // a weight for kernels without the idle class, which is desired for the same cgroup

	// Observed is the file's text; Period and Quota are the texts of PeriodFile and QuotaFile. The caller sets them.
	Observed, Period, Quota string
	// Original is the file's original value, needed if [Setting.NeedsOriginal]; that of a list is empty if no plan changed it.
	Original string
	// Burst is the text of BurstFile beside a quota that changes, because the kernel rejects a quota below its burst;
	// OriginalBurst is its original value, empty if no plan changed it. They are not needed if the advice names the burst.
	Burst, OriginalBurst string
	// IsBurstBehind is as in [Neighbour].
	IsBurstBehind bool
}

// ReplacedFile names the file that the setting replaces: if a kernel has that file, the setting is not written, because the kernel accepts
// no weight for an idle cgroup. It is empty for other settings.
func (s *Setting) ReplacedFile() string {
	if s.replacesIdle {
		return fileIdle
	}
	return ""
}

// IsListV1 reports whether the value is a list of version 1, in which a cgroup's own list bounds those of the cgroups below.
func (s *Setting) IsListV1() bool { return s.Version == 1 && isList(s.Name) }

// IsListV1 is like [Setting.IsListV1], for a file's value.
func (m *Machine) IsListV1(f File) bool { return m.Versions[f.Controller] == 1 && isList(f.Name) }

// IsOptional reports whether the file is one that a kernel may have beside another that sets the same.
func (s *Setting) IsOptional() bool { return s.isOptional }

// PeriodFile returns the file with the period of a quota or burst; empty if there is none.
func (f *File) PeriodFile() string {
	if f.Name == fileQuota || f.Name == fileBurst {
		return filePeriod
	}
	return ""
}

// QuotaFile returns the file with the quota that bounds a burst; empty for other settings.
func (f *File) QuotaFile() string {
	switch f.Name {
	case fileBurst:
		return fileQuota
	case fileMaxBurst:
		return fileMax
	}
	return ""
}

// BurstFile returns the file with the burst that belongs to a quota; empty for other files.
func (f *File) BurstFile() string {
	switch f.Name {
	case fileQuota:
		return fileBurst
	case fileMax:
		return fileMaxBurst
	}
	return ""
}

// MayBeImplied reports whether a plan may change the file although the advice does not name it: a list or quota of version 1, which the
// parent's bounds, or a burst, which its quota bounds.
func (f *File) MayBeImplied(version int) bool {
	return version == 1 && (isList(f.Name) || f.Name == fileQuota) || isBurst(f.Name)
}

// IsBounded reports whether the kernel checks the value against those of ancestors and descendants, so that the plan
// must know them.
func (s *Setting) IsBounded() bool {
	return s.Version == 1 && (isList(s.Name) || s.Name == fileQuota)
}

// RestoreSetting returns the setting that restores a file's earlier text.
func RestoreSetting(f File, key, text string, version int) (Setting, error) {
	s := Setting{File: f, Key: key, Version: version, text: text, isFileText: true}
	if isList(f.Name) {
		var err error
		if s.set, err = cpus.Parse(text); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Neighbour is a file of a cgroup that the advice does not name, above or below one that changes.
type Neighbour struct {
	File
	Observed, Period string
	// Original is the original value; empty if no plan changed it.
	Original string
	// Burst and OriginalBurst are as in [Setting].
	Burst, OriginalBurst string
	// IsBehind means that an earlier plan widened the parent's value, but not this one: it follows now, even if that one does not change.
	// IsBurstBehind means that an earlier plan lowered the burst for the quota, and did not raise it again.
	IsBehind, IsBurstBehind bool
	// TakesParentList requests the parent's value: version 1 creates cgroups with an empty cpuset.mems, in which nothing can run.
	TakesParentList bool
}

// Write is one step of a plan.
type Write struct {
	File
	Key, Old, New string
	// Period is the period of a quota or burst, in microseconds as the kernel prints it; empty for other keys.
	Period string
	// IsImplied means that the advice does not ask for the step: the cgroup follows its parent, or keeps what it has.
	IsImplied bool
	// Original is the original value of a list that no plan changed and that was filled from its parent's after a plan had
	// changed that; empty if Old is the original one.
	Original string
	// SideEffect names a file of the same cgroup whose value the kernel changes as a side effect.
	SideEffect string
	// Needs are the steps, by their index in the plan, that must succeed before this one may be executed.
	Needs []int
}

// RecordsOnly reports whether the step writes nothing: the file has a value of its own that must be recorded as the original one.
func (w Write) RecordsOnly() bool { return w.IsImplied && w.Old == w.New }

// draft is a Write whose index is not known yet.
type draft struct {
	Write
	needs []*draft
	index int
}

// Make orders the writes that apply the settings. The problems say what cannot be applied, and why.
func Make(m Machine, settings []Setting, neighbours []Neighbour) ([]Write, []tick.IsolationError) {
	p := planner{machine: m}
	mems := p.sets(fileMems, m.Mems, settings, neighbours)
	cpuset := p.sets(fileCPUs, m.CPUs, settings, neighbours)
	quota, burst := p.quotas(settings, neighbours)
	minimum, low := p.protections(fileMin, settings), p.protections(fileLow, settings)
	others := p.independent(settings)

	// Decreases are written first, so that no set grows onto CPUs that another cgroup still uses.
	steps := slices.Concat(mems.shrink, cpuset.shrink, burst.shrink, quota.shrink, minimum.shrink, low.shrink, others,
		mems.grow, cpuset.grow, quota.grow, burst.grow, minimum.grow, low.grow)
	for i, d := range steps {
		d.index = i
	}
	writes := make([]Write, len(steps))
	for i, d := range steps {
		for _, need := range d.needs {
			if need != nil {
				d.Needs = append(d.Needs, need.index)
			}
		}
		writes[i] = d.Write
	}
	return writes, p.problems
}

type planner struct {
	machine  Machine
	problems []tick.IsolationError
}

// phases are the two halves of a plan's part.
type phases struct{ shrink, grow []*draft }

func (p *planner) problem(s *Setting, text string) {
	p.problems = append(p.problems, tick.IsolationError{Cgroup: s.Cgroup, Key: s.Key, Error: text})
}

// independent returns the writes of values that do not depend on other cgroups.
func (p *planner) independent(settings []Setting) []*draft {
	var out []*draft
	for i := range settings {
		s := &settings[i]
		if isList(s.Name) || isQuota(s.Name) || isBurst(s.Name) || isProtection(s.Name) || s.IsAsDesired() {
			continue
		}
		desired, err := s.Desired()
		if err != nil {
			p.problem(s, err.Error())
			continue
		}
		d := &draft{Write: Write{File: s.File, Key: s.Key, Old: s.Observed, New: desired}}
		if s.Name == fileIdle {
			d.SideEffect = WeightFile(s.Version)
		}
		out = append(out, d)
	}
	return out
}

// position is a cgroup's position in a tree: sorted so that a parent comes before its children.
type position struct {
	cgroup string
	index  int // the caller's index
	parent int // index among the sorted; -1 if no ancestor is listed
}

// sortTree sorts cgroups so that parents come before children, and finds each one's nearest listed ancestor.
func sortTree(cgroups []string) []position {
	positions := make([]position, len(cgroups))
	for i, c := range cgroups {
		positions[i] = position{cgroup: c, index: i}
	}
	slices.SortFunc(positions, func(a, b position) int { return cmp.Compare(a.cgroup, b.cgroup) })
	at := make(map[string]int, len(positions))
	for i, p := range positions {
		at[p.cgroup] = i
		positions[i].parent = -1
		for up := path.Dir(p.cgroup); len(up) > 1; up = path.Dir(up) {
			if j, ok := at[up]; ok {
				positions[i].parent = j
				break
			}
		}
	}
	return positions
}

// linkTree sorts the nodes of cgroups so that parents come before children. adopt links a node with that of its nearest listed ancestor.
func linkTree[N any](cgroups []string, nodes []*N, adopt func(parent, n *N)) []*N {
	sorted := make([]*N, 0, len(nodes))
	for _, position := range sortTree(cgroups) {
		n := nodes[position.index]
		if position.parent >= 0 {
			adopt(sorted[position.parent], n)
		}
		sorted = append(sorted, n)
	}
	return sorted
}
