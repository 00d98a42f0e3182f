package guard

import (
	"slices"
	"strings"

	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// view is what a sample contains about batch and the services.
type view struct {
	sample *tick.Sample
	// groups are batch's cgroups with processes, and pods the pods that they belong to.
	groups []group
	pods   int
	// batchUse is the known part of batch's use, in milli-CPU; batchKnown reports whether every pod's use is known.
	batchUse   float64
	batchKnown bool
	// usesMuch reports whether the known part alone is more than almost nothing.
	usesMuch bool
	// services is their number, serviceUse their use, negative if that of one is unknown.
	services   int
	serviceUse float64
	// isKnown reports whether some waiting is known, isNodeOnly whether it is only the node's.
	isKnown, isNodeOnly bool
	// hasOwnLimits reports whether a service's waiting was measured, and is unknown because its own limit throttles it.
	hasOwnLimits bool
	// isCauseUnknown reports whether the service of the last step is here, but not how long it waits for the resource of that step.
	isCauseUnknown bool
	// cause is the waiting for which all steps were taken; nil if there were several, or it is unknown.
	cause *waiting

	// disks are the known rates of batch pods, and podCgroups all batch pods with a cgroup, both by cgroup.
	disks      map[string]rates
	podCgroups map[string]bool
	// hasDeleted reports whether batch pods still run that the cluster has deleted, and deletedIO is the sum of their rates.
	hasDeleted bool
	deletedIO  rates

	batchPaths map[string]bool // batch's cgroups and those of its pods
	batchCPUs  *cpus.Set       // those of [view.cpusOfBatch], nil until they are needed
	cores      []cpus.Set
}

// group is a cgroup of batch.
type group struct {
	cgroup string
	use    float64 // in milli-CPU, negative if unknown
	bytes  float64 // of memory, negative if unknown
	limit  float64 // of CPU in milli-CPU, 0 for none
	cpus   string  // its effective CPU list, empty if unknown
}

// newView builds the view of a sample.
func newView(s *tick.Sample) view {
	v := view{sample: s, batchKnown: true}
	for i := range s.Pods {
		p := &s.Pods[i]
		switch {
		case p.Ended():
		case p.QoS == tick.QoSReclaimed:
			v.addBatch(p)
		case isService(p):
			v.services++
			switch use := policy.Use(p); {
			case use == nil:
				v.serviceUse = -1
			case v.serviceUse >= 0:
				v.serviceUse += policy.Amount(use)
			}
		}
	}
	return v
}

// addBatch adds a batch pod to the view.
func (v *view) addBatch(p *tick.Pod) {
	if !strings.HasPrefix(p.Cgroup, "/") || p.Missing == tick.MissingCgroup {
		return
	}
	use := policy.Use(p)
	v.batchUse += policy.Amount(use)
	v.batchKnown = v.batchKnown && use != nil
	io, isIOKnown := ratesOf(p.IO)
	if p.Missing != "" { // the cluster has deleted it, so nothing is advised for it, but its processes still run
		v.hasDeleted = true
		if isIOKnown {
			v.deletedIO = v.deletedIO.plus(io)
		}
		return
	}
	v.pods++
	if len(p.Cgroup) > 1 {
		if v.podCgroups == nil {
			v.disks, v.podCgroups = map[string]rates{}, map[string]bool{}
		}
		v.podCgroups[p.Cgroup] = true
		if isIOKnown {
			v.disks[p.Cgroup] = io
		}
	}
	for i := range policy.Cgroups(p) {
		path := policy.Cgroup(p, i)
		if !policy.IsCgroup(path) {
			continue
		}
		use, memory, limits, list := p.UsageMilliCPU, p.Memory, p.Limits, ""
		if len(p.Containers) > 0 {
			c := &p.Containers[i]
			use, memory, limits, list = c.UsageMilliCPU, c.Memory, c.Limits, c.CPUSetCPUs
		}
		g := group{cgroup: path, use: orUnknown(use), bytes: -1, cpus: list}
		if memory != nil {
			g.bytes = orUnknown(memory.UsageBytes)
		}
		if limits != nil {
			g.limit = policy.Amount(limits.MilliCPU)
		}
		v.groups = append(v.groups, g)
	}
}

// limits returns the CPU limits of all pods' cgroups, and of their containers', in milli-CPU: 0 for none. It has only cgroups that exist.
func (v *view) limits() map[string]float64 {
	limits := map[string]float64{}
	for i := range v.sample.Pods {
		p := &v.sample.Pods[i]
		if p.Missing != "" || p.Ended() || len(p.Cgroup) < 2 {
			continue
		}
		add := func(path string, own *tick.Resources) {
			if limits[path] = 0; own != nil {
				limits[path] = policy.Amount(own.MilliCPU)
			}
		}
		add(p.Cgroup, p.Limits)
		for j := range p.Containers {
			add(p.Containers[j].Cgroup, p.Containers[j].Limits)
		}
	}
	return limits
}

// isDeleted reports whether a cgroup is that of a pod that the cluster has deleted, or does not know at the moment.
func (v *view) isDeleted(path string) bool {
	return slices.ContainsFunc(v.sample.Pods, func(p tick.Pod) bool {
		return p.Missing == tick.MissingCluster && p.Cgroup != "" && tick.IsWithin(path, p.Cgroup)
	})
}

// orUnknown returns a value of the sample, negative if it is missing.
func orUnknown(f *float64) float64 {
	if f == nil {
		return -1
	}
	return policy.Amount(f)
}

// knownServiceUse returns the services' use, negative if unknown.
func (v *view) knownServiceUse() float64 {
	if v.services == 0 {
		return -1
	}
	return v.serviceUse
}

// isBatch reports whether a cgroup is a batch pod's, or one of its containers'.
func (v *view) isBatch(path string) bool {
	if v.batchPaths == nil {
		v.batchPaths = map[string]bool{}
		for i := range v.sample.Pods {
			if p := &v.sample.Pods[i]; p.QoS == tick.QoSReclaimed && p.Missing == "" {
				v.batchPaths[p.Cgroup] = true
			}
		}
		for i := range v.groups {
			v.batchPaths[v.groups[i].cgroup] = true
		}
	}
	return v.batchPaths[path]
}

// hasOnlyBatch reports whether a cgroup contains batch and no service: a batch cgroup, or a tier of it.
func (v *view) hasOnlyBatch(path string) bool {
	if v.isBatch(path) {
		return true
	}
	return policy.IsCgroup(path) && policy.HasOnlyBatch(v.sample, path)
}

// knowsMemory reports whether some batch cgroup's memory is known.
func (v *view) knowsMemory() bool {
	for i := range v.groups {
		if v.groups[i].bytes > 0 {
			return true
		}
	}
	return false
}

// coreSets returns the machine's cores; if they are unknown, each CPU counts as one.
func (v *view) coreSets() []cpus.Set {
	if v.cores != nil || v.sample.Topology == nil {
		return v.cores
	}
	unassigned, _ := cpus.Parse(v.sample.Topology.CPUs)
	for _, list := range v.sample.Topology.Cores {
		if core, err := cpus.Parse(list); err == nil {
			v.cores = append(v.cores, core)
			unassigned = unassigned.Difference(core)
		}
	}
	for _, cpu := range unassigned.List() {
		v.cores = append(v.cores, cpus.New(cpu))
	}
	return v.cores
}
