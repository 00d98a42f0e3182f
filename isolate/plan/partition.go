package plan

import (
	"fmt"

	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// Partition is the root of a CPU partition of cgroup version 2, with its CPUs.
type Partition struct {
	Cgroup string
	CPUs   cpus.Set
}

// partitionCPUs returns the CPUs of a set that belong to partitions that the cgroup is not in, and the first such partition. Writing such
// a CPU into the cgroup's list would invalidate the partition. A cgroup above a partition keeps its list: the kernel takes the
// partition's CPUs from the effective list.
func (m *Machine) partitionCPUs(cgroup string, set cpus.Set) (reserved cpus.Set, partition string) {
	for _, p := range m.Partitions {
		isRelated := tick.IsWithin(cgroup, p.Cgroup) || tick.IsWithin(p.Cgroup, cgroup)
		if common := p.CPUs.Intersection(set); !isRelated && !common.IsEmpty() {
			if partition == "" {
				partition = p.Cgroup
			}
			reserved = reserved.Union(common)
		}
	}
	return reserved, partition
}

// withoutPartitions removes the CPUs of other cgroups' partitions from a desired set. An error beside true names the removed CPUs.
func (m *Machine) withoutPartitions(s *Setting) (bool, error) {
	if s.Name != fileCPUs || s.Version != 2 {
		return true, nil
	}
	reserved, partition := m.partitionCPUs(s.Cgroup, s.set)
	if reserved.IsEmpty() {
		return true, nil
	}
	s.set = s.set.Difference(reserved)
	if s.set.IsEmpty() {
		return false, fmt.Errorf("not written: all of CPUs %s belong to CPU partitions of other cgroups (such as %s)",
			clip.Text(reserved.String(), maxShownBytes), shownCgroup(partition))
	}
	return true, fmt.Errorf("CPUs %s left out: they belong to CPU partitions of other cgroups (such as %s)",
		clip.Text(reserved.String(), maxShownBytes), shownCgroup(partition))
}

// RestoreText returns the text that a restore may write: see [Kubelet.RestoreText], and without the CPUs of partitions created since.
func (m *Machine) RestoreText(f File, original, observed string) (string, error) {
	original, err := m.Kubelet.RestoreText(f, original, observed)
	if err != nil || f.Name != fileCPUs || m.Versions["cpuset"] != 2 {
		return original, err
	}
	set, err := cpus.Parse(original)
	if err != nil || set.IsEmpty() { // an empty list means the parent's
		return original, nil
	}
	reserved, partition := m.partitionCPUs(f.Cgroup, set)
	switch {
	case reserved.IsEmpty():
		return original, nil
	case set.IsSubsetOf(reserved):
		return "", fmt.Errorf("all of CPUs %s belong to CPU partitions of other cgroups now (such as %s)",
			clip.Text(original, maxShownBytes), shownCgroup(partition))
	}
	return set.Difference(reserved).String(), nil
}
