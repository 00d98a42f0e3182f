package source

import (
	"math"
	"path"
	"slices"
	"strings"

	"polder/collect/kubernetes"
	"polder/lib/kubepods"
	"polder/lib/tick"
)

// Pods assembles the pods from their containers, and joins them with the cluster's pods where there is a cluster. A pod's
// values are sums over those of its containers that have them; its memory is at least that of its own cgroup.
var Pods = Source{
	Name: "pods",
	Doc:  "the pods: the cluster's, and the cgroups that the classification rules name, sorted by cgroup",
	New: func(e *Env) Reader {
		e.pods.cluster = e.Cluster
		return &e.pods
	},
}

// pods is all pods between rounds: out[i] is made from at[i].
type pods struct {
	tree    *tree
	cluster Cluster
	// version is that of the cluster's list from which the pods were made, and joined are those of its pods that have a
	// cgroup, by the UID in its name.
	version uint64
	joined  map[string]*kubernetes.Pod

	at  []pod
	out []tick.Pod
}

// pod is one pod, and the memory that its part of a sample points into.
type pod struct {
	containers []*container
	stalls     *stalls // nil where the pod has no cgroup
	io         *podIO  // likewise
	events     *events // likewise
	own        *podMemory

	usage, load1, load5, threads                 float64
	usageBytes, workingSet, rss, cache, refaults float64
	wait                                         float64
	memory                                       tick.Memory
}

func (p *pods) Read(r *Round) error {
	var err error
	changed := false
	if p.cluster != nil {
		// The error comes before the version: a list that becomes current in between must not count as current with its older content.
		err = p.cluster.PodsError()
		version := p.cluster.PodsVersion()
		changed = version != p.version
		p.version = version
	}
	if p.tree != nil && p.tree.changed {
		p.tree.changed = false
		changed = true
	}
	if changed {
		p.assemble()
	}
	for i := range p.at {
		p.at[i].fill(&p.out[i], r.Clock.Seconds())
	}
	r.Sample.Pods = p.out
	return err
}

// assemble makes the lists again after pods, containers or the cluster's list changed.
func (p *pods) assemble() {
	var nodes []*node
	if p.tree != nil {
		for _, n := range p.tree.nodes {
			if n.isPod() {
				nodes = append(nodes, n)
			}
		}
	}
	slices.SortFunc(nodes, func(a, b *node) int { return strings.Compare(a.path, b.path) })
	j := p.pair(nodes)
	p.at, p.out = make([]pod, len(nodes)), make([]tick.Pod, len(nodes))
	for i, n := range nodes {
		out := &p.out[i]
		p.at[i].stalls, p.at[i].io, p.at[i].events, p.at[i].own = n.stalls, n.io, n.events, n.memory
		known, missing := j.find(n)
		if known == nil {
			*out = n.asTick(missing)
			p.at[i].containers = n.containers()
			for _, c := range p.at[i].containers {
				out.Containers = append(out.Containers, c.asTick(n))
			}
			continue
		}
		*out = known.Tick
		out.Cgroup, out.Missing = n.path, missing
		// The cgroup of a static pod is named after its hash. A pod whose cgroup is named after its UID comes from the API server,
		// and names a Node as its owner only to look like a static one.
		out.Static = out.Static && !isOfUID(n, known)
		p.at[i].containers, out.Containers = match(n, known)
	}
	for _, known := range j.withoutCgroup() {
		out := known.Tick
		out.Missing = tick.MissingCgroup
		p.at, p.out = append(p.at, pod{}), append(p.out, out)
	}
	p.joined = j.joined
	p.setServices()
}

// asTick is the part of a pod's sample that comes from the rules. A pod of Kubernetes that the cluster does not have never counts
// as reclaimed: a pod of unknown class must not be squeezed.
func (n *node) asTick(missing string) tick.Pod {
	out := tick.Pod{
		UID: n.path, Namespace: n.rule.Namespace, Name: n.rule.Name,
		QoS: n.rule.Class, QoSSource: tick.QoSFromRule, Missing: missing,
		Requests: n.rule.Requests, Limits: n.rule.Limits, Cgroup: n.path,
	}
	if out.Name == "" {
		out.Name = path.Base(n.path)
	}
	if missing != "" {
		out.UID = kubepods.PodUID(n.path)
		if out.QoS == tick.QoSReclaimed {
			out.QoS = tick.QoSShared
		}
	}
	return out
}

// containers are a pod's, sorted by path.
func (n *node) containers() []*container {
	if n.container != nil {
		return []*container{n.container}
	}
	var list []*container
	for _, child := range n.children {
		if child.container != nil {
			list = append(list, child.container)
		}
	}
	slices.SortFunc(list, func(a, b *container) int { return strings.Compare(a.path, b.path) })
	return list
}

// asTick is the constant part of a container's sample. A pod that is its only container passes its requests on to it.
func (c *container) asTick(n *node) tick.Container {
	name := path.Base(c.path)
	out := tick.Container{Name: name, ID: containerID(name), Cgroup: c.path}
	if n.container == c {
		out.Requests, out.Limits = n.rule.Requests, n.rule.Limits
		if n.rule.Name != "" {
			out.Name = n.rule.Name
		}
	}
	return out
}

// containerID is the runtime's id in a cgroup's name, empty where there is none: 64 hexadecimal digits.
func containerID(name string) string {
	id := kubernetes.ContainerID(name)
	if len(id) != 64 || strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	return id
}

// sum adds up the known values.
type sum struct {
	value float64
	known bool
}

func (s *sum) add(f *float64) {
	if f != nil {
		s.value += *f
		s.known = true
	}
}

func (s *sum) into(where *float64, parts float64) *float64 {
	return known(where, rounded(s.value, parts), s.known)
}

// setServices sets for each pod's stalls and threads whether it is a service: batch's waiting is not read.
func (p *pods) setServices() {
	for i := range p.at {
		at, isService := &p.at[i], p.out[i].QoS != tick.QoSReclaimed
		if at.stalls != nil {
			at.stalls.setService(isService)
		}
		for _, c := range at.containers {
			c.waits.setService(isService)
		}
	}
}

// fillWaiting writes how long the pod's tasks waited: from its pressure, or, where there is no cpu.pressure, from the run delay of its
// threads.
func (p *pod) fillWaiting(out *tick.Pod, seconds float64) {
	out.CPUPressure, out.MemoryPressure, out.IOPressure, out.CPUWaitPermille = nil, nil, nil, nil
	if p.stalls == nil {
		return
	}
	out.CPUPressure, out.MemoryPressure, out.IOPressure = p.stalls.cpu.value(), p.stalls.memory.value(), p.stalls.io.value()
	if out.CPUPressure != nil {
		out.CPUWaitPermille = known(&p.wait, rounded(p.stalls.cpu.share, 10), !math.IsNaN(p.stalls.cpu.share))
		return
	}
	var waited sum
	for _, c := range p.containers {
		if share := c.waits.share(seconds); !math.IsNaN(share) {
			waited.add(&share)
		}
	}
	out.CPUWaitPermille = waited.into(&p.wait, 10)
}

func (p *pod) fill(out *tick.Pod, seconds float64) {
	var usage, load1, load5, threads, bytes, workingSet, rss, cache, refaults sum
	for i, c := range p.containers {
		t := &out.Containers[i]
		c.fill(t, seconds)
		usage.add(t.UsageMilliCPU)
		load1.add(t.Load1)
		load5.add(t.Load5)
		threads.add(t.Threads)
		if m := t.Memory; m != nil {
			bytes.add(m.UsageBytes)
			workingSet.add(m.WorkingSetBytes)
			rss.add(m.RSSBytes)
			cache.add(m.CacheBytes)
			refaults.add(m.RefaultBytesPerSecond)
		}
	}
	p.fillWaiting(out, seconds)
	if out.IO = nil; p.io != nil {
		out.IO = p.io.value()
	}
	out.MemoryEvents = p.events.value()
	out.UsageMilliCPU = usage.into(&p.usage, 10)
	out.Load1, out.Load5 = load1.into(&p.load1, 1000), load5.into(&p.load5, 1000)
	out.Threads = threads.into(&p.threads, 1)
	out.Memory = nil
	p.own.raise(&bytes, &workingSet, &rss, &cache)
	if bytes.known || rss.known {
		p.memory = tick.Memory{
			UsageBytes: bytes.into(&p.usageBytes, 1), WorkingSetBytes: workingSet.into(&p.workingSet, 1),
			RSSBytes: rss.into(&p.rss, 1), CacheBytes: cache.into(&p.cache, 1),
			RefaultBytesPerSecond: refaults.into(&p.refaults, 1),
		}
		out.Memory = &p.memory
	}
}
