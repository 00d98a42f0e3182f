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

// owned is a pod's exclusive CPUs.
type owned struct {
	name string
	cpus set
}

// kept are the CPUs that batch pods must not use, and those that they share with LSR pods; only online CPUs.
type kept struct {
	reserved, system, exclusive, lse set
	out                              set // the union of these
	lsr                              set
	given                            set // by kubelet, online or not
	reservedMilliCPU                 float64
	owned                            []owned
}

// keptOut reads them; given are the CPUs that kubelet gave to pods exclusively. Invalid input is omitted.
func keptOut(v *view, settings Settings, given string) (k kept, faults []error) {
	complain := func(err error) {
		if err != nil {
			faults = append(faults, err)
		}
	}
	r, faults := annotation.ReservedOf(v.sample.Annotations)
	k.reserved, k.reservedMilliCPU = r.CPUs, r.MilliCPU
	own, err := cpus.Parse(settings.ReservedCPUs)
	if err != nil {
		complain(fmt.Errorf("reserved CPUs: %w", err))
	}
	k.reserved = k.reserved.Union(own).Intersection(v.Online)

	type system struct {
		CPUSet    string `json:"cpuset"`
		Exclusive *bool  `json:"cpusetExclusive"`
	}
	read, err := annotation.Read[system](v.sample.Annotations, annotation.System)
	complain(err)
	if read != nil && (read.Exclusive == nil || *read.Exclusive) {
		if k.system, err = cpus.Parse(read.CPUSet); err != nil {
			complain(fmt.Errorf("annotation %s: %w", annotation.System, err))
		}
		k.system = k.system.Intersection(v.Online)
	}

	k.given = parse(given)
	complain(k.readOwned(v))
	k.out = k.reserved.Union(k.system, k.exclusive, k.lse)
	k.lsr = k.lsr.Difference(k.out)
	return k, faults
}

// readOwned reads the pods' exclusive CPUs.
func (k *kept) readOwned(v *view) error {
	given := k.given.Intersection(v.Online)
	k.exclusive = given
	wrong, first := 0, error(nil)
	for i := range v.pods {
		p := &v.pods[i]
		if p.class != qos.LSE && p.class != qos.LSR {
			continue
		}
		mine, err := p.status(v.Online)
		if err != nil {
			if wrong++; wrong == 1 {
				first = fmt.Errorf("pod %s: %w", clip.Text(policy.Key(p.Pod), shownBytes), err)
			}
		}
		if p.class == qos.LSR { // a pod with this label shares what kubelet gave it
			fromKubelet := p.givenBy(given)
			k.exclusive = k.exclusive.Difference(fromKubelet)
			mine = mine.Union(fromKubelet)
		}
		if mine = mine.Intersection(v.Online); mine.IsEmpty() {
			continue
		}
		if p.class == qos.LSE {
			k.lse = k.lse.Union(mine)
		} else {
			k.lsr = k.lsr.Union(mine)
		}
		k.owned = append(k.owned, owned{policy.Key(p.Pod), mine})
	}
	if wrong > 1 {
		first = fmt.Errorf("%w (and %d pods more)", first, wrong-1)
	}
	return first
}

// status returns the online CPUs that Koordinator's scheduler assigned to the pod. The pod's creator may write the annotation, so it counts
// for at most as many whole CPUs as the pod requests, and only for Guaranteed pods, because the scheduler assigns CPUs to no others.
func (p *pod) status(online set) (set, error) {
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
		return set{}, fmt.Errorf("annotation %s does not count: the pod is not Guaranteed", annotation.Status)
	}
	requested := 0
	if p.Requests != nil {
		requested = int(bounded(valueOf(p.Requests.MilliCPU)) / 1000)
	}
	if own.Size() > requested {
		err = fmt.Errorf("annotation %s names %d CPUs and the pod requests %d whole ones: no more count", annotation.Status, own.Size(), requested)
		own = cpus.New(own.List()[:requested]...)
	}
	return own, err
}

// givenBy returns the CPUs that kubelet gave to the pod's containers exclusively.
func (p *pod) givenBy(given set) set {
	own := set{}
	if given.IsEmpty() {
		return own
	}
	for i := range p.Containers {
		list := parse(p.Containers[i].CPUSetCPUs)
		if !list.IsEmpty() && list.IsSubsetOf(given) {
			own = own.Union(list)
		}
	}
	return own
}
