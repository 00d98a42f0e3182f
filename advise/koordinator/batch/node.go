package batch

import (
	"fmt"
	"math"

	"polder/advise/koordinator/annotation"
	"polder/lib/cpus"
	"polder/lib/qos"
	"polder/lib/quantity"
	"polder/lib/tick"
)

// node is what is offered from, and what is kept of it.
type node struct {
	capacity  amounts
	known     has
	kubelet   amounts // reserved by kubelet: capacity without allocatable
	annotated amounts // reserved by annotation
	// ratio is how much a CPU of this node is worth in CPUs of the cluster's norm, in percent.
	ratio        int64
	thirdParties amounts // what others have given away of the node's batch resources

	zones []zone
}

// see reads the node; why is what is missing for any decision.
func see(s *tick.Sample, a *tick.Advice) (n *node, why string) {
	if s.Labels == nil && s.Annotations == nil && s.Unread("node") {
		// The machine's own capacity would stand in, without what kubelet keeps back.
		return nil, "the node object could not be read"
	}
	n = &node{}
	for r := range resources {
		capacity, ok := whole(pick(s.Capacity, r))
		if s.Capacity == nil {
			capacity, ok = machine(s, r)
		}
		if !ok {
			continue
		}
		n.capacity[r], n.known[r] = capacity, true
		if s.Allocatable != nil {
			allocatable, ok := whole(pick(s.Allocatable, r))
			n.kubelet[r], n.known[r] = max(capacity-allocatable, 0), ok
		}
	}
	if n.known == (has{}) {
		return nil, "the node's capacity or allocatable is not known"
	}
	n.reserve(s.Annotations, a)
	n.normalize(s.Annotations, a)
	if err := n.subtract(s.Annotations); err != nil {
		return nil, err.Error() // Koordinator takes the offer away then
	}
	n.zones = zonesOf(s.Topology)
	return n, ""
}

func pick(from *tick.Resources, r resource) *float64 {
	switch {
	case from == nil:
		return nil
	case r == cpu:
		return from.MilliCPU
	}
	return from.MemoryBytes
}

// machine is the machine's own, where no node object and no collect have more.
func machine(s *tick.Sample, r resource) (int64, bool) {
	switch {
	case r == memory && s.Memory != nil:
		return whole(s.Memory.TotalBytes)
	case r == cpu && s.Topology != nil:
		online, err := cpus.Parse(s.Topology.CPUs)
		return int64(online.Size()) * 1000, err == nil && !online.IsEmpty()
	}
	return 0, false
}

// reserve reads what is reserved by annotation. What cannot be read reserves nothing, as with Koordinator.
func (n *node) reserve(annotations map[string]string, a *tick.Advice) {
	r, errs := annotation.ReservedOf(annotations)
	for _, err := range errs {
		a.Reasons = append(a.Reasons, fmt.Sprintf("%v: that reserves nothing", err))
	}
	n.annotated[cpu], _ = whole(&r.MilliCPU)
	n.annotated[memory], _ = whole(&r.MemoryBytes)
}

// normalize reads by how much the batch CPU is multiplied.
func (n *node) normalize(annotations map[string]string, a *tick.Advice) {
	ratio, err := annotation.RatioOf(annotations)
	if err != nil {
		a.Reasons = append(a.Reasons, fmt.Sprintf("%v; batch-cpu is not multiplied", err))
	}
	n.ratio = int64(math.Round(ratio * 100))
}

// thirdParties are what others, such as YARN, have given away of the batch resources.
type thirdParties struct {
	Allocations []struct {
		Name      string         `json:"name"`
		Priority  string         `json:"priority"`
		Resources map[string]any `json:"resources"`
	} `json:"allocations"`
}

// subtract reads what others have given away.
func (n *node) subtract(annotations map[string]string) error {
	read, err := annotation.Read[thirdParties](annotations, annotation.ThirdParties)
	if read == nil {
		return err
	}
	for _, allocation := range read.Allocations {
		if allocation.Priority != qos.Batch {
			continue
		}
		for r, names := range [resources][]string{qos.BatchCPU, qos.BatchMemory} {
			for _, name := range names {
				v, set := allocation.Resources[name]
				if !set {
					continue
				}
				amount, err := quantity.Whole(v)
				if err != nil {
					return fmt.Errorf("annotation %s: %.40q: %s: %w", annotation.ThirdParties, allocation.Name, words[r].batch, err)
				}
				counted, _ := whole(&amount)
				n.thirdParties[r] = add(n.thirdParties[r], counted)
			}
		}
	}
	return nil
}
