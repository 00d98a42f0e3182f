// Package cpumanager reads the file in which kubelet's CPU manager records the CPUs that it assigned to containers exclusively.
package cpumanager

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// File is the file's name in kubelet's root directory.
const File = "cpu_manager_state"

// PolicyNone is the policy of a kubelet that assigns no CPUs.
const PolicyNone = "none"

// State is the content of the file.
type State struct {
	// Policy is PolicyNone, "static", or the name of a later kubelet's policy.
	Policy string
	// Default are the CPUs of all containers without exclusive ones; empty under PolicyNone, which sets no CPUs at all.
	Default cpus.Set
	// Assignments contains the exclusive assignments, sorted by pod and container.
	Assignments []Assignment
	// Exclusive are all CPUs that are assigned exclusively.
	Exclusive cpus.Set

	ids int // number of IDs in all sets of Given
}

// Assignment are the CPUs that a container, or all containers of a pod together, have exclusively.
type Assignment struct {
	// PodUID is empty in the files of kubelets before 1.18, which identify containers only by the runtime's ID.
	PodUID string
	// Container is the container's name, or its ID if PodUID is empty. It is empty if the CPUs belong to the whole pod.
	Container string
	CPUs      cpus.Set
}

// MaxBytes bounds the file: 500 pods of 10 containers need less than a tenth of it.
const MaxBytes = 4 << 20

// maxIDs bounds the assigned CPUs, summed over all entries: a short list may name thousands. Init containers have the
// same CPUs as the containers that follow them, so one CPU may be counted many times.
const maxIDs = 32 * (cpus.MaxID + 1)

// Parse parses the file's text in the three formats that kubelets have written (version 1 until 1.17, 2 since, 3 with
// pod-level CPU sets). It does not check the checksum, which covers the Go names of kubelet's own types, which change, and
// the file is always replaced as a whole.
func Parse(data []byte) (*State, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("more than %d bytes", MaxBytes)
	}
	var file struct {
		PolicyName    *string             `json:"policyName"`
		DefaultCPUSet string              `json:"defaultCpuSet"`
		Entries       map[string]tick.Raw `json:"entries"`
		PodEntries    map[string]struct {
			CPUSet string `json:"cpuSet"`
		} `json:"podEntries"`
	}
	if err := tick.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("not a JSON object, or cut off: %w", clipped(err))
	}
	if file.PolicyName == nil || *file.PolicyName == "" {
		return nil, errors.New("policyName is missing")
	}
	s := &State{Policy: clip.Text(*file.PolicyName, 120)}
	var err error
	if s.Default, err = cpus.Parse(file.DefaultCPUSet); err != nil {
		return nil, fmt.Errorf("defaultCpuSet: %w", err)
	}
	for uid, raw := range file.Entries {
		if err := s.entry(uid, raw); err != nil {
			return nil, err
		}
	}
	for uid, pod := range file.PodEntries {
		if err := s.assign(uid, "", pod.CPUSet); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(s.Assignments, func(a, b Assignment) int {
		return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.Container, b.Container))
	})
	all := map[int]bool{}
	for _, g := range s.Assignments {
		for _, id := range g.CPUs.UnsortedList() {
			all[id] = true
		}
	}
	ids := make([]int, 0, len(all))
	for id := range all {
		ids = append(ids, id)
	}
	s.Exclusive = cpus.New(ids...)
	return s, nil
}

// entry reads a pod's entry, the containers' sets by name, or an entry of version 1, which is a container's set.
func (s *State) entry(name string, raw tick.Raw) error {
	if len(raw) > 0 && raw[0] == '"' {
		var set string
		if err := tick.Unmarshal(raw, &set); err != nil {
			return fmt.Errorf("entry of container %s: %w", clip.Text(name, 120), clipped(err))
		}
		return s.assign("", name, set)
	}
	if len(raw) == 0 { // null
		return nil
	}
	var containers map[string]string
	if err := tick.Unmarshal(raw, &containers); err != nil {
		return fmt.Errorf("entry of pod %s: %w", clip.Text(name, 120), clipped(err))
	}
	for container, set := range containers {
		if err := s.assign(name, container, set); err != nil {
			return err
		}
	}
	return nil
}

func (s *State) assign(uid, container, text string) error {
	set, err := cpus.Parse(text)
	if err != nil {
		return fmt.Errorf("entry of pod %q, container %q: %w", clip.Text(uid, 120), clip.Text(container, 120), err)
	}
	if s.ids += set.Size(); s.ids > maxIDs {
		return fmt.Errorf("the entries name more than %d CPUs", maxIDs)
	}
	if !set.IsEmpty() {
		s.Assignments = append(s.Assignments, Assignment{PodUID: uid, Container: container, CPUs: set})
	}
	return nil
}

// clipped shortens a message, because the decoder quotes its input.
func clipped(err error) error { return errors.New(clip.Text(err.Error(), 120)) }
