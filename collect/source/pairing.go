package source

import (
	"path"
	"slices"
	"strings"

	"polder/collect/kubernetes"
	"polder/lib/kubepods"
	"polder/lib/tick"
)

// pairing matches cgroups with the cluster's pods.
type pairing struct {
	enabled bool                       // there is a cluster
	present map[string]*kubernetes.Pod // the cluster's pods, by the UID in the cgroup's name
	before  map[string]*kubernetes.Pod // those that had a cgroup the last time
	joined  map[string]*kubernetes.Pod // those that have one now
	cgroup  map[string]string          // the path of each UID's cgroup
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
	j.cgroup = make(map[string]string, len(nodes))
	for _, n := range nodes {
		uid := kubepods.PodUID(n.path)
		if first := j.cgroup[uid]; uid != "" && (first == "" || !p.tree.isKubelets(first) && p.tree.isKubelets(n.path)) {
			j.cgroup[uid] = n.path
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
		if j.claimsByHash(known) {
			claims[known.CgroupUID]++
		}
	}
	for _, known := range list {
		uid := known.CgroupUID
		if j.claimsByHash(known) && claims[uid] == 1 && j.present[uid] == nil &&
			(j.before[uid] == nil || j.before[uid].Tick.UID != uid) {
			j.present[uid] = known
		}
	}
	return j
}

// claimsByHash reports whether a pod may have the cgroup that its hash names: it has none of its own UID, and has not ended.
func (j *pairing) claimsByHash(p *kubernetes.Pod) bool {
	return p.CgroupUID != "" && p.CgroupUID != p.Tick.UID && j.cgroup[p.Tick.UID] == "" && !p.Tick.Ended()
}

// find finds a cgroup's pod, and reports whether the cluster lacks it. What is known of a pod that was deleted holds while its
// cgroup exists, because a UID is never assigned twice. Of cgroups that are none of kubelet's pods only the rules are known: whoever may
// create one elsewhere could name it like another pod's.
func (j *pairing) find(n *node) (known *kubernetes.Pod, missing string) {
	if !j.enabled {
		return nil, ""
	}
	uid := kubepods.PodUID(n.path)
	if uid == "" {
		return nil, ""
	}
	if j.cgroup[uid] != n.path { // another cgroup is the pod's
		return nil, tick.MissingCluster
	}
	if known = j.present[uid]; known == nil {
		missing = tick.MissingCluster
		known = j.before[uid]
	}
	if known != nil {
		j.joined[uid], j.seen[known] = known, true
	}
	return known, missing
}

// isOfUID reports whether a cgroup is named after the UID that the API server gave the pod.
func isOfUID(n *node, known *kubernetes.Pod) bool {
	return kubepods.PodUID(n.path) == known.Tick.UID
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
