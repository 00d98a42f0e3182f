package suppress

import (
	"fmt"

	"polder/advise/koordinator/annotation"
	"polder/advise/policy"
	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/qos"
)

// shownBytes is how much of a text from elsewhere stands in a message.
const shownBytes = 100

// owned is a pod's own CPUs.
type owned struct {
	name string
	cpus set
}

// kept is what batch pods must not have, and what they share with LSR pods; of online CPUs alone.
type kept struct {
	reserved, system, exclusive, lse set
	out                              set // all of these
	lsr                              set
	given                            set // by kubelet, whether or not they are online
	reservedMilliCPU                 float64
	owned                            []owned
}

// keptOut reads it; given is what kubelet gave away. What is wrong is left out.
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

// readOwned reads which CPUs are pods' own.
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
		if p.class == qos.LSR { // who bears the label shares what kubelet gave it
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

// status is the online CPUs that Koordinator's scheduler gave the pod. Whoever creates the pod may write the annotation, so it counts for
// no more whole CPUs than the pod requests, and only for Guaranteed pods, as there are no others to whom the scheduler gives any.
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

// givenBy is the CPUs that kubelet gave to the pod's containers alone.
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
