package suppress

import (
	"fmt"
	"strconv"

	"polder/advise/policy"
	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/qos"
	"polder/lib/quantity"
	"polder/lib/tick"
)

// shownBytes is how much of a text from elsewhere stands in a message.
const shownBytes = 100

// Annotations of Koordinator's, JSON but for the ratio.
const (
	annotationReservation = "node.koordinator.sh/reservation"
	annotationSystem      = "node.koordinator.sh/system-qos-resource"
	annotationRatio       = "node.koordinator.sh/cpu-normalization-ratio"
	annotationStatus      = "scheduling.koordinator.sh/resource-status"
	annotationExtended    = "node.koordinator.sh/extended-resource-spec"
)

// maxAnnotation bounds what is read of one annotation. The node's and pods' writers are not trusted.
const maxAnnotation = 16 << 10

// annotation reads one of JSON; false where there is none.
func annotation(of map[string]string, name string, into any) (bool, error) {
	text, ok := of[name]
	if !ok || text == "" {
		return false, nil
	}
	if len(text) > maxAnnotation {
		return false, fmt.Errorf("annotation %s of %d bytes is left out: want %d at most", name, len(text), maxAnnotation)
	}
	if err := tick.Unmarshal([]byte(text), into); err != nil {
		return false, fmt.Errorf("annotation %s is left out: want JSON: %s", name, clip.Text(err.Error(), shownBytes))
	}
	return true, nil
}

// reservation is what the node's annotation keeps for what is no pod.
type reservation struct {
	Resources    map[string]any `json:"resources"`
	ReservedCPUs string         `json:"reservedCPUs"`
}

// read is the annotation's CPUs, and its milli-CPU: where CPUs are named, their number takes the place of the quantity. The
// error says what is wrong in it; the parts without fault hold.
func (r *reservation) read() (reserved set, milliCPU float64, err error) {
	if r.ReservedCPUs != "" {
		if reserved, err = cpus.Parse(r.ReservedCPUs); err == nil {
			return reserved, float64(reserved.Size()) * 1000, nil
		}
		err = fmt.Errorf("annotation %s: reservedCPUs: %s", annotationReservation, clip.Text(err.Error(), shownBytes))
	}
	if amount, ok := r.Resources["cpu"]; ok {
		milli, wrong := quantity.Milli(amount)
		if wrong != nil && err == nil {
			err = fmt.Errorf("annotation %s: resources.cpu: %s", annotationReservation, clip.Text(wrong.Error(), shownBytes))
		}
		milliCPU = max(milli, 0)
	}
	return reserved, milliCPU, err
}

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
	var r reservation
	ok, err := annotation(v.sample.Annotations, annotationReservation, &r)
	if ok {
		k.reserved, k.reservedMilliCPU, err = r.read()
	}
	complain(err)
	own, err := cpus.Parse(settings.ReservedCPUs)
	if err != nil {
		complain(fmt.Errorf("reserved CPUs: %w", err))
	}
	k.reserved = k.reserved.Union(own).Intersection(v.Online)

	var system struct {
		CPUSet    string `json:"cpuset"`
		Exclusive *bool  `json:"cpusetExclusive"`
	}
	if ok, err := annotation(v.sample.Annotations, annotationSystem, &system); err != nil {
		complain(err)
	} else if ok && (system.Exclusive == nil || *system.Exclusive) {
		if k.system, err = cpus.Parse(system.CPUSet); err != nil {
			complain(fmt.Errorf("annotation %s: %w", annotationSystem, err))
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
	var status struct {
		CPUSet string `json:"cpuset"`
	}
	ok, err := annotation(p.Annotations, annotationStatus, &status)
	if !ok || err != nil || status.CPUSet == "" {
		return set{}, err
	}
	own, err := cpus.ParseWithin(status.CPUSet, online)
	if err != nil {
		return set{}, fmt.Errorf("annotation %s: %w", annotationStatus, err)
	}
	if qos.KubernetesOf(p.Pod) != qos.Guaranteed {
		return set{}, fmt.Errorf("annotation %s does not count: the pod is not Guaranteed", annotationStatus)
	}
	requested := 0
	if p.Requests != nil {
		requested = int(bounded(valueOf(p.Requests.MilliCPU)) / 1000)
	}
	if own.Size() > requested {
		err = fmt.Errorf("annotation %s names %d CPUs and the pod requests %d whole ones: no more count", annotationStatus, own.Size(), requested)
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

// maxRatio is the most that one CPU is said to be worth of another.
const maxRatio = 5

// normalization is the node's ratio by which limits are divided; 1 where it has none.
func normalization(s *tick.Sample) (float64, error) {
	text, ok := s.Annotations[annotationRatio]
	if !ok || text == "" {
		return 1, nil
	}
	ratio, err := strconv.ParseFloat(text, 64)
	if err != nil || !(ratio >= 1 && ratio <= maxRatio) {
		return 1, fmt.Errorf("annotation %s is %q: want a number from 1 to %d; taken for 1", annotationRatio, clip.Text(text, shownBytes), maxRatio)
	}
	return ratio, nil
}
