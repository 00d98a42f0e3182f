package source

import (
	"polder/lib/cgroup"
	"polder/lib/tick"
)

// Partitions are the CPU partitions of cgroup version 2. After an error they are those of the last reading.
var Partitions = Source{
	Name: "partitions",
	Doc:  "roots of CPU partitions (cpuset.cpus.partition is root or isolated), with their CPUs",
	New:  func(e *Env) Reader { return &partitionsReader{env: e} },
}

type partitionsReader struct {
	env *Env
	all *cgroup.Partitions
	out []tick.Partition
}

func (p *partitionsReader) Read(r *Round) error {
	tree := p.env.pods.tree
	if tree == nil {
		return nil // the cgroup source reports why
	}
	if p.all == nil {
		p.all = cgroup.NewPartitions(tree.h)
	}
	list, err := p.all.Read(r.Rescan)
	p.out = p.out[:0]
	for _, found := range list {
		p.out = append(p.out, tick.Partition{Cgroup: found.Cgroup, CPUs: found.CPUs.String()})
	}
	if len(p.out) > 0 {
		r.Sample.Partitions = p.out
	}
	return err
}
