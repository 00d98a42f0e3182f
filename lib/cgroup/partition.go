package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"polder/lib/cpus"
)

// Partition is the root of a CPU partition of version 2 (cpuset.cpus.partition is root or isolated): only the cgroups in it may use its
// CPUs. A sibling whose list contains one of them makes the partition invalid.
type Partition struct {
	Cgroup string
	// CPUs are all of its CPUs, including those of the partitions in it.
	CPUs cpus.Set
}

// These are the files of partitions.
const (
	partitionFile = "cpuset.cpus.partition"
	exclusiveFile = "cpuset.cpus.exclusive" // since Linux 6.7
	effectiveFile = "cpuset.cpus.effective"
)

// Partitions finds the CPU partitions. It is not safe for concurrent use.
type Partitions struct {
	h            *Hierarchy
	isRead       bool
	fingerprints map[string]string // contents of the files of the root and the known partitions, by their paths
	list         []Partition
}

// NewPartitions returns a Partitions that has read nothing yet. On version 1 it finds none.
func NewPartitions(h *Hierarchy) *Partitions { return &Partitions{h: h} }

// Read returns the partitions, outer ones first. It searches the cgroups if all is set or something has changed: the CPUs of a new
// partition are missing from the effective list of the root, or of the partition around it. After an error it returns the last list.
func (p *Partitions) Read(all bool) ([]Partition, error) {
	if p.h.Version("cpuset") != 2 {
		return nil, nil
	}
	if p.isRead && !all && p.isUnchanged() {
		return p.list, nil
	}
	s := search{h: p.h, fingerprints: map[string]string{}}
	s.searchChildren("/", 0)
	if s.err != nil {
		return p.list, fmt.Errorf("search CPU partitions: %w", s.err)
	}
	p.list, p.fingerprints, p.isRead = s.list, s.fingerprints, true
	return p.list, nil
}

// isUnchanged reports whether the files of the root and the known partitions are unchanged.
func (p *Partitions) isUnchanged() bool {
	for at, before := range p.fingerprints {
		if p.h.fingerprint(at) != before {
			return false
		}
	}
	return true
}

// fingerprint returns the content of a partition's files, by which a change is detected.
func (h *Hierarchy) fingerprint(cgroup string) string {
	state, _ := h.ReadFile("cpuset", cgroup, partitionFile) // the root has none
	list, _ := h.ReadFile("cpuset", cgroup, effectiveFile)
	return state + "\n" + list
}

// maxPartitionDepth bounds the depth at which partitions are searched.
const maxPartitionDepth = 16

// search is one search through the cgroups.
type search struct {
	h            *Hierarchy
	list         []Partition
	fingerprints map[string]string
	err          error
}

// searchChildren searches a cgroup's children and returns the CPUs of the partitions that it found.
func (s *search) searchChildren(cgroup string, depth int) (found cpus.Set) {
	s.fingerprints["/"] = s.h.fingerprint("/")
	dir, _, err := s.h.Dir("cpuset", cgroup)
	if err != nil || depth > maxPartitionDepth || !hasDirectories(dir) {
		return found
	}
	names, err := directories(dir)
	if err != nil {
		if !IsGone(err) {
			s.err = errors.Join(s.err, err)
		}
		return found
	}
	for _, name := range names {
		found = found.Union(s.searchCgroup(path.Join(cgroup, name), depth+1))
	}
	return found
}

// searchCgroup examines a cgroup and, if partitions may be below it, its children.
func (s *search) searchCgroup(cgroup string, depth int) cpus.Set {
	state, err := s.h.ReadFile("cpuset", cgroup, partitionFile)
	if err != nil { // without the cpuset controller there is none below it either
		if !IsGone(err) && !errors.Is(err, ErrPath) {
			s.err = errors.Join(s.err, err)
		}
		return cpus.Set{}
	}
	if state != "root" && state != "isolated" { // a member, or "root invalid (why)"
		exclusive, err := s.h.ReadFile("cpuset", cgroup, exclusiveFile)
		if exclusive == "" && !errors.Is(err, fs.ErrNotExist) {
			return cpus.Set{} // a partition below a member needs exclusive CPUs of the member
		}
		return s.searchChildren(cgroup, depth)
	}
	at := len(s.list)
	s.list = append(s.list, Partition{Cgroup: cgroup})
	partitionCPUs := s.searchChildren(cgroup, depth)
	for _, name := range []string{effectiveFile, "cpuset.cpus"} {
		text, err := s.h.ReadFile("cpuset", cgroup, name)
		if err != nil || text == "" {
			continue
		}
		set, err := cpus.Parse(text)
		if err != nil {
			s.err = errors.Join(s.err, fmt.Errorf("%s of %s: %w", name, cgroup, err))
		}
		partitionCPUs = partitionCPUs.Union(set)
		break
	}
	s.list[at].CPUs = partitionCPUs
	s.fingerprints[cgroup] = s.h.fingerprint(cgroup)
	return partitionCPUs
}
