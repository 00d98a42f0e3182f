package source

import (
	"path"
	"slices"
	"strings"

	"polder/lib/tick"
)

// Pods puts the pods together from their containers. A pod's values are sums over those of its containers that have them.
var Pods = Source{
	Name: "pods",
	Doc:  "the pods that the classification rules name, sorted by cgroup",
	New:  func(e *Env) Reader { return &e.pods },
}

// pods is all pods between rounds: at[i] is what out[i] is made of.
type pods struct {
	tree *tree
	at   []pod
	out  []tick.Pod
}

// pod is one pod, and the memory that its part of a sample points into.
type pod struct {
	containers []*container

	usage, load1, load5, threads       float64
	usageBytes, workingSet, rss, cache float64
	memory                             tick.Memory
}

func (p *pods) Read(r *Round) error {
	if p.tree == nil {
		return nil
	}
	if p.tree.changed {
		p.tree.changed = false
		p.assemble()
	}
	for i := range p.at {
		p.at[i].fill(&p.out[i])
	}
	r.Sample.Pods = p.out
	return nil
}

// assemble makes the lists anew, after pods or containers came or went.
func (p *pods) assemble() {
	var nodes []*node
	for _, n := range p.tree.nodes {
		if n.isPod() {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b *node) int { return strings.Compare(a.path, b.path) })
	p.at, p.out = make([]pod, len(nodes)), make([]tick.Pod, len(nodes))
	for i, n := range nodes {
		out := &p.out[i]
		*out = tick.Pod{
			UID: n.path, Namespace: n.rule.Namespace, Name: n.rule.Name,
			QoS: n.rule.Class, QoSSource: tick.QoSFromRule,
			Requests: n.rule.Requests, Limits: n.rule.Limits, Cgroup: n.path,
		}
		if out.Name == "" {
			out.Name = path.Base(n.path)
		}
		p.at[i].containers = n.containers()
		for _, c := range p.at[i].containers {
			out.Containers = append(out.Containers, c.asTick(n))
		}
	}
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

// asTick is the part of a container's sample that stays. A pod of one container passes its requests on.
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

// containerID finds the runtime's id in a cgroup's name: 64 hexadecimal digits, in names such as
// cri-containerd-ID.scope too. It is empty where there is none.
func containerID(name string) string {
	name = strings.TrimSuffix(name, ".scope")
	name = name[strings.LastIndexByte(name, '-')+1:]
	if len(name) != 64 || strings.Trim(name, "0123456789abcdef") != "" {
		return ""
	}
	return name
}

// sum adds up what is known.
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

func (p *pod) fill(out *tick.Pod) {
	var usage, load1, load5, threads, bytes, workingSet, rss, cache sum
	for i, c := range p.containers {
		t := &out.Containers[i]
		c.fill(t)
		usage.add(t.UsageMilliCPU)
		load1.add(t.Load1)
		load5.add(t.Load5)
		threads.add(t.Threads)
		if m := t.Memory; m != nil {
			bytes.add(m.UsageBytes)
			workingSet.add(m.WorkingSetBytes)
			rss.add(m.RSSBytes)
			cache.add(m.CacheBytes)
		}
	}
	out.UsageMilliCPU = usage.into(&p.usage, 10)
	out.Load1, out.Load5 = load1.into(&p.load1, 1000), load5.into(&p.load5, 1000)
	out.Threads = threads.into(&p.threads, 1)
	out.Memory = nil
	if bytes.known || rss.known {
		p.memory = tick.Memory{
			UsageBytes: bytes.into(&p.usageBytes, 1), WorkingSetBytes: workingSet.into(&p.workingSet, 1),
			RSSBytes: rss.into(&p.rss, 1), CacheBytes: cache.into(&p.cache, 1),
		}
		out.Memory = &p.memory
	}
}
