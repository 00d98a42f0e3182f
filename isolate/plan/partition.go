package plan

import (
	"fmt"
	"strings"

	"polder/lib/clip"
	"polder/lib/cpus"
)

// Partition is the root of a CPU partition of cgroup version 2, with its CPUs.
type Partition struct {
	Cgroup string
	CPUs   cpus.Set
}

// foreign returns the CPUs of a set that belong to partitions that the cgroup is not in, and the first such partition. Writing such
// a CPU into the cgroup's list would invalidate the partition. A cgroup above a partition keeps its list: the kernel takes the
// partition's CPUs from the effective list.
func (m *Machine) foreign(cgroup string, set cpus.Set) (taken cpus.Set, first string) {
	for _, p := range m.Partitions {
		related := cgroup == p.Cgroup || strings.HasPrefix(cgroup, p.Cgroup+"/") || strings.HasPrefix(p.Cgroup, cgroup+"/")
		if theirs := p.CPUs.Intersection(set); !related && !theirs.IsEmpty() {
			if first == "" {
				first = p.Cgroup
			}
			taken = taken.Union(theirs)
		}
	}
	return taken, first
}

// withoutPartitions removes the CPUs of other cgroups' partitions from a desired set. An error beside true names the removed CPUs.
func (m *Machine) withoutPartitions(s *Setting) (bool, error) {
	if s.Name != fileCPUs || s.Version != 2 {
		return true, nil
	}
	taken, of := m.foreign(s.Cgroup, s.set)
	if taken.IsEmpty() {
		return true, nil
	}
	s.set = s.set.Difference(taken)
	if s.set.IsEmpty() {
		return false, fmt.Errorf("not written: all of CPUs %s are of other cgroups' CPU partitions (as %s)", clip.Text(taken.String(), shownBytes), clip.Text(of, shownBytes))
	}
	return true, fmt.Errorf("CPUs %s left out: they are of other cgroups' CPU partitions (as %s)", clip.Text(taken.String(), shownBytes), clip.Text(of, shownBytes))
}

// First returns the text that a restore may write: see [Kubelet.First], and without the CPUs of partitions created since.
func (m *Machine) First(f File, first, present string) (string, error) {
	first, err := m.Kubelet.First(f, first, present)
	if err != nil || f.Name != fileCPUs || m.Versions["cpuset"] != 2 {
		return first, err
	}
	set, err := cpus.Parse(first)
	if err != nil || set.IsEmpty() { // an empty list means the parent's
		return first, nil
	}
	taken, of := m.foreign(f.Cgroup, set)
	switch {
	case taken.IsEmpty():
		return first, nil
	case set.IsSubsetOf(taken):
		return "", fmt.Errorf("all of CPUs %s are of other cgroups' CPU partitions by now (as %s)", clip.Text(first, shownBytes), clip.Text(of, shownBytes))
	}
	return set.Difference(taken).String(), nil
}
