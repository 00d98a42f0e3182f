// Package plan turns the desired state of cgroups and the present one into writes, in an order in which the kernel
// accepts each of them and no state on the way leaves a cgroup without CPUs or with more than it had or shall have.
//
// It is pure. The caller reads the files that [Translate] names into the settings, adds what stands around the ones that
// are to change ([Around]), and carries out what [Make] returns.
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
	Device     string // the disk's numbers, where the file has a line for each disk ([PerDevice]); empty for others
}

// Machine is what a plan must know of the machine.
type Machine struct {
	// Versions has the version that serves each controller; none or 0 where it is not mounted.
	Versions map[string]int
	// CPUs and Mems are those of the hierarchy's root; empty where they could not be read.
	CPUs, Mems cpus.Set
	PageBytes  int64
	// Kubelet is nil where there is none.
	Kubelet *Kubelet
	// Partitions are those of version 2, whose CPUs are for the cgroups in them alone.
	Partitions []Partition
	// Disks are those that limits may be set of; empty where no limits of disks are desired.
	Disks []Disk
}

// Setting is one desired value of one file.
type Setting struct {
	File
	// Other is a second name of the file, for kernels that have not the first.
	Other string
	// Key is the name in [tick.Cgroup].
	Key     string
	Version int

	set    cpus.Set // of a list
	milli  int64    // of a quota or burst, unless raw
	text   string   // of everything else
	raw    bool     // text is the file's own, of a restore
	limits limits   // of a disk, unless raw; 0 is one that is not desired
	given  cpus.Set // what kubelet gave to containers of the cgroup's pod

	asFirst     bool // the desired value is the one that was there before any plan changed it
	tighterOnly bool // a limit that never goes beyond First, or a protection that never goes under it

	optional bool // the file's second name, beside the first: a kernel may have both
	instead  bool // a weight for kernels without the idle class that is desired of the same cgroup

	// Present is the file's text, Period and Quota those of PeriodFile and QuotaFile; the caller fills them in.
	Present, Period, Quota string
	// First is, where [Setting.NeedsFirst], what the file had before any plan changed it.
	First string
	// Burst is, beside a quota that changes, the text of BurstFile, for a kernel takes no quota that is under it; BurstOwn is
	// what it was before any plan changed it, empty where none did. Where the advice names the burst they are not needed.
	Burst, BurstOwn string
}

// Instead names the file in whose place the setting stands: where a kernel has that file, the setting is not written, for it takes no
// weight for an idle cgroup. Empty for a setting that stands for itself.
func (s *Setting) Instead() string {
	if s.instead {
		return fileIdle
	}
	return ""
}

// Optional reports whether the setting is one of a file that a kernel may have beside another, in which the same is set.
func (s *Setting) Optional() bool { return s.optional }

// PeriodFile is the file whose value belongs to the setting's; empty where there is none.
func (s *Setting) PeriodFile() string {
	if s.Name == fileQuota || s.Name == fileBurst {
		return filePeriod
	}
	return ""
}

// QuotaFile is the file with the quota that a burst is held to; empty for what is no burst.
func (s *Setting) QuotaFile() string {
	switch s.Name {
	case fileBurst:
		return fileQuota
	case fileMaxBurst:
		return fileMax
	}
	return ""
}

// BurstFile is the file with the burst that goes with a quota's; empty for what is no quota.
func (f *File) BurstFile() string {
	switch f.Name {
	case fileQuota:
		return fileBurst
	case fileMax:
		return fileMaxBurst
	}
	return ""
}

// Bound reports whether the kernel holds the value against those of the cgroups above and below, so that what stands
// around matters to the plan.
func (s *Setting) Bound() bool {
	return s.Version == 1 && (isList(s.Name) || s.Name == fileQuota)
}

// Restore is the setting that gives a file its earlier text back.
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
	// Own is what the file had before any plan changed it; empty where none did.
	Own string
	// Burst and BurstOwn are as in [Setting].
	Burst, BurstOwn string
	// Fill asks for the parent's value: version 1 starts cgroups with an empty cpuset.mems, in which nothing can run.
	Fill bool
}

// Write is one step of a plan.
type Write struct {
	File
	Key, Old, New string
	// Period is that of a quota or a burst, in microseconds as the kernel prints it; empty for other keys.
	Period string
	// Implied means that the advice does not name the cgroup: it follows the one above.
	Implied bool
	// Disturbs names a file of the same cgroup whose value the kernel changes along with this one.
	Disturbs string
	// Needs are the steps (their places in the plan) without which this one must not be done.
	Needs []int
}

// draft is a Write whose place is not known yet.
type draft struct {
	Write
	needs []*draft
	place int
}

// Make orders the writes that apply the settings. Problems are what cannot be applied, and why.
func Make(m Machine, settings []Setting, around []Around) ([]Write, []tick.IsolationError) {
	p := planner{machine: m}
	mems := p.sets(fileMems, m.Mems, settings, around)
	cpuset := p.sets(fileCPUs, m.CPUs, settings, around)
	quota, burst := p.quotas(settings, around)
	least, low := p.protections(fileMin, settings), p.protections(fileLow, settings)
	rest := p.rest(settings)

	// What shrinks is written first, so that nothing grows onto CPUs that are still in use by whom they are taken from.
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

// phases are the two halves of a part of a plan.
type phases struct{ shrink, grow []*draft }

func (p *planner) problem(s *Setting, text string) {
	p.problems = append(p.problems, tick.IsolationError{Cgroup: s.Cgroup, Key: s.Key, Error: text})
}

// rest are the values that no other cgroup's bind.
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

// place is a cgroup's place among those of a tree: sorted so that a parent stands before its children.
type place struct {
	cgroup string
	index  int // the caller's
	parent int // among the sorted; -1 where no ancestor is listed
}

// tree sorts cgroups so that parents stand before children, and finds each one's nearest listed ancestor.
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
