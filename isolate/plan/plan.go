// Package plan turns the desired and the present state of cgroups into writes, in an order in which the kernel accepts each write and no
// intermediate state leaves a cgroup without CPUs or with more than both its old and its new state.
//
// It is pure. The caller reads the files that [Translate] names into the settings, adds the neighbours of those that
// change ([Around]), and executes what [Make] returns.
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
	Device     string // the disk's numbers if the file has a line for each disk ([PerDevice]); empty for others
}

// Machine is what a plan must know of the machine.
type Machine struct {
	// Versions has the cgroup version of each controller; none or 0 if it is not mounted.
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
	// Other is an alternative name of the file, for kernels that do not have the first.
	Other string
	// Key is the name in [tick.Cgroup].
	Key     string
	Version int

	set    cpus.Set // of a list
	milli  int64    // of a quota or burst, unless raw
	text   string   // of everything else
	raw    bool     // text is the file's own, from a restore
	limits limits   // of a disk, unless raw; 0 is one that is not desired
	given  cpus.Set // CPUs that kubelet assigned exclusively to containers of the cgroup's pod

	asFirst     bool // the desired value is the original one
	tighterOnly bool // a limit that never exceeds First, or a protection that never falls below it

	optional bool // the file's alternative name, beside the first: a kernel may have both
	instead  bool // a weight for kernels without the idle class, which is desired for the same cgroup

	// Present is the file's text; Period and Quota are the texts of PeriodFile and QuotaFile. The caller sets them.
	Present, Period, Quota string
	// First is the file's original value, needed if [Setting.NeedsFirst].
	First string
	// Burst is the text of BurstFile beside a quota that changes, because the kernel rejects a quota below its burst;
	// BurstOwn is its original value, empty if no plan changed it. They are not needed if the advice names the burst.
	Burst, BurstOwn string
}

// Instead names the file that the setting replaces: if a kernel has that file, the setting is not written, because the kernel accepts
// no weight for an idle cgroup. It is empty for other settings.
func (s *Setting) Instead() string {
	if s.instead {
		return fileIdle
	}
	return ""
}

// Optional reports whether the file is one that a kernel may have beside another that sets the same.
func (s *Setting) Optional() bool { return s.optional }

// PeriodFile returns the file with the period of the setting's value; empty if there is none.
func (s *Setting) PeriodFile() string {
	if s.Name == fileQuota || s.Name == fileBurst {
		return filePeriod
	}
	return ""
}

// QuotaFile returns the file with the quota that bounds a burst; empty for other settings.
func (s *Setting) QuotaFile() string {
	switch s.Name {
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

// Bound reports whether the kernel checks the value against those of ancestors and descendants, so that the plan
// must know them.
func (s *Setting) Bound() bool {
	return s.Version == 1 && (isList(s.Name) || s.Name == fileQuota)
}

// Restore returns the setting that restores a file's earlier text.
func Restore(f File, key, text string, version int) (Setting, error) {
	s := Setting{File: f, Key: key, Version: version, text: text, raw: true}
	if isList(f.Name) {
		var err error
		if s.set, err = cpus.Parse(text); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Around is a file of a cgroup that the advice does not name, above or below one that changes.
type Around struct {
	File
	Present, Period string
	// Own is the original value; empty if no plan changed it.
	Own string
	// Burst and BurstOwn are as in [Setting].
	Burst, BurstOwn string
	// Fill requests the parent's value: version 1 creates cgroups with an empty cpuset.mems, in which nothing can run.
	Fill bool
}

// Write is one step of a plan.
type Write struct {
	File
	Key, Old, New string
	// Period is the period of a quota or burst, in microseconds as the kernel prints it; empty for other keys.
	Period string
	// Implied means that the advice does not name the cgroup: it follows its parent.
	Implied bool
	// Disturbs names a file of the same cgroup whose value the kernel changes as a side effect.
	Disturbs string
	// Needs are the steps, by their index in the plan, that must succeed before this one may be executed.
	Needs []int
}

// draft is a Write whose index is not known yet.
type draft struct {
	Write
	needs []*draft
	place int
}

// Make orders the writes that apply the settings. The problems say what cannot be applied, and why.
func Make(m Machine, settings []Setting, around []Around) ([]Write, []tick.IsolationError) {
	p := planner{machine: m}
	mems := p.sets(fileMems, m.Mems, settings, around)
	cpuset := p.sets(fileCPUs, m.CPUs, settings, around)
	quota, burst := p.quotas(settings, around)
	least, low := p.protections(fileMin, settings), p.protections(fileLow, settings)
	rest := p.rest(settings)

	// Decreases are written first, so that no set grows onto CPUs that another cgroup still uses.
	steps := slices.Concat(mems.shrink, cpuset.shrink, burst.shrink, quota.shrink, least.shrink, low.shrink, rest,
		mems.grow, cpuset.grow, quota.grow, burst.grow, least.grow, low.grow)
	for i, d := range steps {
		d.place = i
	}
	writes := make([]Write, len(steps))
	for i, d := range steps {
		for _, need := range d.needs {
			if need != nil {
				d.Needs = append(d.Needs, need.place)
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

// rest returns the writes of values that do not depend on other cgroups.
func (p *planner) rest(settings []Setting) []*draft {
	var out []*draft
	for i := range settings {
		s := &settings[i]
		if isList(s.Name) || isQuota(s.Name) || isBurst(s.Name) || isProtection(s.Name) || s.Done() {
			continue
		}
		text, err := s.Want()
		if err != nil {
			p.problem(s, err.Error())
			continue
		}
		d := &draft{Write: Write{File: s.File, Key: s.Key, Old: s.Present, New: text}}
		if s.Name == fileIdle {
			d.Disturbs = WeightFile(s.Version)
		}
		out = append(out, d)
	}
	return out
}

// place is a cgroup's position in a tree: sorted so that a parent comes before its children.
type place struct {
	cgroup string
	index  int // the caller's index
	parent int // index among the sorted; -1 if no ancestor is listed
}

// tree sorts cgroups so that parents come before children, and finds each one's nearest listed ancestor.
func tree(cgroups []string) []place {
	places := make([]place, len(cgroups))
	for i, c := range cgroups {
		places[i] = place{cgroup: c, index: i}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.cgroup, b.cgroup) })
	at := make(map[string]int, len(places))
	for i, p := range places {
		at[p.cgroup] = i
		places[i].parent = -1
		for up := path.Dir(p.cgroup); len(up) > 1; up = path.Dir(up) {
			if j, ok := at[up]; ok {
				places[i].parent = j
				break
			}
		}
	}
	return places
}
