package kubernetes

import (
	"cmp"
	"slices"
	"strings"
)

// ContainerID finds a container's ID in the last element of its cgroup's path: the ID itself by the cgroupfs driver, with
// the runtime's name before it in CRI-O, and by the systemd driver "cri-containerd-ID.scope", "crio-ID.scope",
// "docker-ID.scope". CRI-O's monitor ("crio-conmon-ID.scope") has its container's ID in its name and is not a container.
func ContainerID(element string) string {
	id := strings.TrimSuffix(element, ".scope")
	at := strings.LastIndexByte(id, '-')
	if at >= 0 && strings.HasSuffix(id[:at], "conmon") {
		return ""
	}
	id = id[at+1:]
	if id == "" || strings.ContainsFunc(id, func(r rune) bool { return !word(r) && r != '_' }) {
		return ""
	}
	return id
}

// Group is a cgroup below a pod's.
type Group struct {
	// Name is the last element of its path.
	Name string
	// Age orders cgroups by their making, as inode numbers do; 0 where it is not known.
	Age uint64
}

// Results of [Pod.Match] for a cgroup that is none of the containers in the pod's status.
const (
	// Other is the sandbox, or a cgroup that Kubernetes did not create. It is never one that may be an awaited container's.
	Other = -1
	// Unnamed is a container that is not in the status yet.
	Unnamed = -2
)

// Match finds for each cgroup below the pod's which of the pod's containers it is.
//
// The sandbox has a cgroup, but no API object has its ID; nor has the status a container that has just started, or all of those that
// started while the API server or kubelet was away. If all containers that may run are found, a cgroup with an unknown ID is the
// sandbox. Otherwise the oldest of them, which is created before all containers, is the sandbox and the others are containers; if only
// one container is awaited and one cgroup is left, they belong together. Where the order is not known and there are several, all count
// as containers: a sandbox among them uses next to nothing.
//
// A runtime that runs all containers in a virtual machine (a pod with a runtimeClassName) gives them one cgroup in all: if none is found
// and there is only one cgroup, it is theirs.
//
// CRI-O gives most pods no sandbox (drop_infra_ctr), so that none of its cgroups counts as one while a container is awaited.
// [tick.Pod.IsIdle] depends on this: a cgroup that may be a container's is never Other.
func (p *Pod) Match(groups []Group) []int {
	out := make([]int, len(groups))
	found := make([]bool, len(p.Containers))
	var unknown []int
	for i, g := range groups {
		out[i] = Other
		id := ContainerID(g.Name)
		if id == "" {
			continue
		}
		if c := slices.IndexFunc(p.Containers, func(c Container) bool { return c.ID == id }); c >= 0 {
			out[i] = c
			found[c] = true
			continue
		}
		unknown = append(unknown, i)
	}
	awaited := -1
	count := 0
	for i, c := range p.Containers {
		if c.Awaited && !found[i] {
			awaited = i
			count++
		}
	}
	if count == 0 {
		return out
	}
	isOnlyOne := p.HasRuntimeClass && len(unknown) == 1 && !slices.Contains(found, true)
	if !isOnlyOne && !slices.ContainsFunc(unknown, func(i int) bool { return strings.HasPrefix(groups[i].Name, crioPrefix) }) {
		unknown = withoutSandbox(groups, unknown)
	}
	for _, i := range unknown {
		out[i] = Unnamed
		if count == 1 && len(unknown) == 1 {
			out[i] = awaited
		}
	}
	return out
}

// crioPrefix begins the names of CRI-O's cgroups under both drivers.
const crioPrefix = "crio-"

// withoutSandbox removes the sandbox from the cgroups with an unknown ID, of a runtime that creates one before all containers.
func withoutSandbox(groups []Group, unknown []int) []int {
	if len(unknown) < 2 {
		return nil
	}
	oldest := slices.MinFunc(unknown, func(a, b int) int { return cmp.Compare(groups[a].Age, groups[b].Age) })
	if groups[oldest].Age == 0 {
		return unknown
	}
	return slices.DeleteFunc(unknown, func(i int) bool { return i == oldest })
}
