package source

import (
	"path"
	"slices"
	"strings"

	"polder/collect/kubernetes"
	"polder/lib/tick"
)

// pairing finds the cluster's pods for cgroups.
type pairing struct {
	there   bool                       // there is a cluster
	present map[string]*kubernetes.Pod // what it has, by the UID in the cgroup's name
	before  map[string]*kubernetes.Pod // what had a cgroup the last time
	joined  map[string]*kubernetes.Pod
	seen    map[*kubernetes.Pod]bool // it has a cgroup
}

// pair begins to make the lists again.
func (p *pods) pair(nodes []*node) *pairing {
	j := &pairing{before: p.joined, joined: map[string]*kubernetes.Pod{}, seen: map[*kubernetes.Pod]bool{}}
	if p.cluster == nil {
		return j
	}
	j.there = true
	list := p.cluster.Pods()
	j.present = make(map[string]*kubernetes.Pod, len(list))
	there := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		if uid, ok := kubernetes.PodUID(path.Base(n.path)); ok {
			there[uid] = true
		}
	}
	// A pod's own UID is the API server's word, and finds its cgroup whatever else the pod bears. A static pod's hash is an
	// annotation, which anyone may write: it finds a cgroup that is nobody else's, and that no other pod claims.
	claims := map[string]int{}
	for _, known := range list {
		if known.Tick.UID != "" {
			j.present[known.Tick.UID] = known
		}
		if uid := known.CgroupUID; uid != "" && uid != known.Tick.UID && !there[known.Tick.UID] {
			claims[uid]++
		}
	}
	for _, known := range list {
		if uid := known.CgroupUID; claims[uid] == 1 && uid != known.Tick.UID && !there[known.Tick.UID] && j.present[uid] == nil {
			j.present[uid] = known
		}
	}
	return j
}

// find finds the pod that a cgroup is of, and says whether the cluster does not have it. A pod that the cluster had and has no
// more keeps what is known of it while its cgroup lasts: a UID is never given twice. Cgroups that are not named like a
// pod's of Kubernetes are the rules' alone.
func (j *pairing) find(n *node) (known *kubernetes.Pod, missing string) {
	if !j.there {
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

// rest are the cluster's pods without a cgroup that may still run, sorted by name.
func (j *pairing) rest() []*kubernetes.Pod {
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

// match finds the pod's containers among the cgroups below it. What is none of them, such as the sandbox, is left out.
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
