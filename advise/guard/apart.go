package guard

import (
	"path"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// isApart reports whether batch neither runs nor may run on any CPU of a service, as beside containers with CPUs that kubelet assigned
// exclusively. Batch is not the cause of that service's waiting for a CPU. It is false if a list is unknown.
func (v *view) isApart(p *tick.Pod, a *tick.Advice) bool {
	if len(p.Containers) == 0 {
		return false
	}
	if v.batchCPUs == nil {
		set := v.cpusOfBatch(a)
		v.batchCPUs = &set
	}
	if v.batchCPUs.IsEmpty() {
		return false
	}
	for i := range p.Containers {
		set, err := cpus.Parse(p.Containers[i].CPUSetCPUs)
		if err != nil || set.IsEmpty() || !set.Intersection(*v.batchCPUs).IsEmpty() {
			return false
		}
	}
	return true
}

// cpusOfBatch returns the CPUs on which batch runs, and those on which the policy lets it run: the guard's own steps must not change
// whether a service counts. It is empty if they are unknown for some of batch.
func (v *view) cpusOfBatch(a *tick.Advice) (all cpus.Set) {
	if v.hasDeleted { // its processes still run, and nothing is advised for it
		return cpus.Set{}
	}
	advised := map[string]string{}
	for i := range a.Cgroups {
		if c := &a.Cgroups[i]; c.CPUSetCPUs != "" {
			advised[c.Cgroup] = c.CPUSetCPUs
		}
	}
	for i := range v.groups {
		g := &v.groups[i]
		at := g.cgroup
		for advised[at] == "" && len(at) > 1 {
			at = path.Dir(at)
		}
		for _, list := range []string{g.cpus, advised[at]} {
			set, err := cpus.Parse(list)
			if err != nil || set.IsEmpty() {
				return cpus.Set{}
			}
			all = all.Union(set)
		}
	}
	return all
}
