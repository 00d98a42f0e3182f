package source

import (
	"path"
	"slices"
	"strings"

	"polder/collect/kubernetes"
	"polder/lib/tick"
)

// pairing matches cgroups with the cluster's pods.
type pairing struct {
	enabled bool                       // there is a cluster
	present map[string]*kubernetes.Pod // the cluster's pods, by the UID in the cgroup's name
	before  map[string]*kubernetes.Pod // those that had a cgroup the last time
	joined  map[string]*kubernetes.Pod // those that have one now
	seen    map[*kubernetes.Pod]bool   // those that are in the sample
}

// pair prepares the matching of the pods' cgroups.
func (p *pods) pair(nodes []*node) *pairing {
	j := &pairing{before: p.joined, joined: map[string]*kubernetes.Pod{}, seen: map[*kubernetes.Pod]bool{}}
	if p.cluster == nil {
		return j
	}
	j.enabled = true
	list := p.cluster.Pods()
	j.present = make(map[string]*kubernetes.Pod, len(list))
	hasCgroup := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		if uid, ok := kubernetes.PodUID(path.Base(n.path)); ok {
			hasCgroup[uid] = true
		}
	}
	// The API server sets a pod's UID, so that it always identifies the pod's cgroup. A static pod's hash is an annotation, which
	// anybody can write: it only identifies a cgroup that belongs to no other pod and that no other pod claims. A pod that was deleted
	// still has its cgroup, and a pod that has ended has none.
	claims := map[string]int{}
	for _, known := range list {
		if known.Tick.UID != "" {
			j.present[known.Tick.UID] = known
		}
		if claimsByHash(known, hasCgroup) {
			claims[known.CgroupUID]++
		}
	}
	for _, known := range list {
		uid := known.CgroupUID
		if claimsByHash(known, hasCgroup) && claims[uid] == 1 && j.present[uid] == nil &&
			(j.before[uid] == nil || j.before[uid].Tick.UID != uid) {
			j.present[uid] = known
		}
	}
	return j
}

// claimsByHash reports whether a pod may have the cgroup that its hash names: it has none of its own UID, and has not ended.
func claimsByHash(p *kubernetes.Pod, hasCgroup map[string]bool) bool {
	return p.CgroupUID != "" && p.CgroupUID != p.Tick.UID && !hasCgroup[p.Tick.UID] && !p.Tick.Ended()
}

// find finds a cgroup's pod, and reports whether the cluster lacks it. What is known of a pod that was deleted holds while its
// cgroup exists, because a UID is never assigned twice. Of cgroups that are not named like a pod's of Kubernetes only the rules are
// known.
func (j *pairing) find(n *node) (known *kubernetes.Pod, missing string) {
	if !j.enabled {
		return nil, ""
	}
	uid, ok := kubernetes.PodUID(path.Base(n.path))
	if !ok {
		return nil, ""
	}
	if known = j.present[uid]; known == nil {
		missing = tick.MissingCluster
		known = j.before[uid]
	}
	switch {
	case known == nil && kubernetes.LikelyUID(uid):
		return nil, tick.MissingCluster
	case known == nil:
		return nil, ""
	case j.joined[uid] != nil: // a second cgroup of the name elsewhere
		return nil, tick.MissingCluster
	}
	j.joined[uid], j.seen[known] = known, true
	return known, missing
}

// isOfUID reports whether a cgroup is named after the UID that the API server gave the pod.
func isOfUID(n *node, known *kubernetes.Pod) bool {
	uid, ok := kubernetes.PodUID(path.Base(n.path))
	return ok && uid == known.Tick.UID
}

// withoutCgroup are the cluster's pods without a cgroup that have not ended, sorted by name.
func (j *pairing) withoutCgroup() []*kubernetes.Pod {
	var list []*kubernetes.Pod
	for uid, known := range j.present {
		if j.joined[uid] == nil && !known.Tick.Ended() && !j.seen[known] {
			j.seen[known] = true
			list = append(list, known)
		}
	}
	slices.SortFunc(list, func(a, b *kubernetes.Pod) int {
		return strings.Compare(a.Tick.Namespace+"/"+a.Tick.Name+"/"+a.Tick.UID, b.Tick.Namespace+"/"+b.Tick.Name+"/"+b.Tick.UID)
	})
	return list
}

// match finds the pod's containers among the cgroups below it. Other cgroups, such as the sandbox's, are left out.
func match(n *node, known *kubernetes.Pod) ([]*container, []tick.Container) {
	all := n.containers()
	groups := make([]kubernetes.Group, len(all))
	for i, c := range all {
		groups[i] = kubernetes.Group{Name: path.Base(c.path), Age: c.inode}
	}
	var at []*container
	var out []tick.Container
	for i, of := range known.Match(groups) {
		if of == kubernetes.Other && n.container == nil {
			continue
		}
		c := all[i]
		t := tick.Container{Name: groups[i].Name, ID: kubernetes.ContainerID(groups[i].Name), Cgroup: c.path}
		if of >= 0 {
			t.Name, t.Requests, t.Limits = known.Containers[of].Name, known.Containers[of].Requests, known.Containers[of].Limits
		}
		at, out = append(at, c), append(out, t)
	}
	return at, out
}
