package suppress

import (
	"fmt"

	"polder/advise/koordinator/annotation"
	"polder/advise/policy"
	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/qos"
)

// shownBytes is the length to which a message cuts external text.
const shownBytes = 100

// assignedCPUs is a pod's exclusive CPUs.
type assignedCPUs struct {
	name string
	cpus set
}

// exclusions are the CPUs that batch pods must not use, and those that they share with LSR pods; only online CPUs.
type exclusions struct {
	reserved, system, exclusive, lse set
	all                              set // the union of these
	lsr                              set
	kubelets                         set // by kubelet, online or not
	reservedMilliCPU                 float64
	podCPUs                          []assignedCPUs
}

// readExclusions reads them; exclusiveList has the CPUs that kubelet gave to pods exclusively. Invalid input is omitted.
func readExclusions(v *view, settings Settings, exclusiveList string) (k exclusions, faults []error) {
	addFault := func(err error) {
		if err != nil {
			faults = append(faults, err)
		}
	}
	r, faults := annotation.ReservedOf(v.sample.Annotations)
	k.reserved, k.reservedMilliCPU = r.CPUs, r.MilliCPU
	own, err := cpus.Parse(settings.ReservedCPUs)
	if err != nil {
		addFault(fmt.Errorf("reserved CPUs: %w", err))
	}
	k.reserved = k.reserved.Union(own).Intersection(v.Online)

	type system struct {
		CPUSet    string `json:"cpuset"`
		Exclusive *bool  `json:"cpusetExclusive"`
	}
	read, err := annotation.Read[system](v.sample.Annotations, annotation.System)
	addFault(err)
	if read != nil && (read.Exclusive == nil || *read.Exclusive) {
		if k.system, err = cpus.Parse(read.CPUSet); err != nil {
			addFault(fmt.Errorf("annotation %s: %w", annotation.System, err))
		}
		k.system = k.system.Intersection(v.Online)
	}

	k.kubelets = parse(exclusiveList)
	addFault(k.readPodCPUs(v))
	k.all = k.reserved.Union(k.system, k.exclusive, k.lse)
	k.lsr = k.lsr.Difference(k.all)
	return k, faults
}

// readPodCPUs reads the pods' exclusive CPUs.
func (k *exclusions) readPodCPUs(v *view) error {
	exclusive := k.kubelets.Intersection(v.Online)
	k.exclusive = exclusive
	invalid, firstErr := 0, error(nil)
	for i := range v.pods {
		p := &v.pods[i]
		if p.class != qos.LSE && p.class != qos.LSR {
			continue
		}
		assigned, err := p.schedulerCPUs(v.Online)
		if err != nil {
			if invalid++; invalid == 1 {
				firstErr = fmt.Errorf("pod %s: %w", clip.Text(policy.Key(p.Pod), shownBytes), err)
			}
		}
		if p.class == qos.LSR { // a pod with this label shares what kubelet gave it
			fromKubelet := p.exclusiveCPUs(exclusive)
			k.exclusive = k.exclusive.Difference(fromKubelet)
			assigned = assigned.Union(fromKubelet)
		}
		if assigned = assigned.Intersection(v.Online); assigned.IsEmpty() {
			continue
		}
		if p.class == qos.LSE {
			k.lse = k.lse.Union(assigned)
		} else {
			k.lsr = k.lsr.Union(assigned)
		}
		k.podCPUs = append(k.podCPUs, assignedCPUs{policy.Key(p.Pod), assigned})
	}
	if invalid > 1 {
		firstErr = fmt.Errorf("%w (and %d more pods)", firstErr, invalid-1)
	}
	return firstErr
}

// schedulerCPUs returns the online CPUs that Koordinator's scheduler assigned to the pod. The pod's creator may write the annotation, so it
// counts for at most as many whole CPUs as the pod requests, and only for Guaranteed pods, because the scheduler assigns CPUs to no others.
func (p *pod) schedulerCPUs(online set) (set, error) {
	type status struct {
		CPUSet string `json:"cpuset"`
	}
	read, err := annotation.Read[status](p.Annotations, annotation.Status)
	if read == nil || read.CPUSet == "" {
		return set{}, err
	}
	own, err := cpus.ParseWithin(read.CPUSet, online)
	if err != nil {
		return set{}, fmt.Errorf("annotation %s: %w", annotation.Status, err)
	}
	if qos.KubernetesOf(p.Pod) != qos.Guaranteed {
		return set{}, fmt.Errorf("annotation %s is ignored: the pod is not Guaranteed", annotation.Status)
	}
	requested := 0
	if p.Requests != nil {
		requested = int(bounded(valueOf(p.Requests.MilliCPU)) / 1000)
	}
	if own.Size() > requested {
		err = fmt.Errorf("annotation %s names %d CPUs and the pod requests %d whole ones: the others are ignored", annotation.Status, own.Size(), requested)
		own = cpus.New(own.List()[:requested]...)
	}
	return own, err
}

// exclusiveCPUs returns the CPUs that kubelet gave to the pod's containers exclusively.
func (p *pod) exclusiveCPUs(exclusive set) set {
	own := set{}
	if exclusive.IsEmpty() {
		return own
	}
	for i := range p.Containers {
		list := parse(p.Containers[i].CPUSetCPUs)
		if !list.IsEmpty() && list.IsSubsetOf(exclusive) {
			own = own.Union(list)
		}
	}
	return own
}
