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

// node is the node's capacity, and what is reserved of it.
type node struct {
	capacity             amounts
	known                resourceFlags
	reservedByKubelet    amounts // reserved by kubelet: capacity less allocatable
	reservedByAnnotation amounts // reserved by annotation
	// ratio is how many of the cluster's standard CPUs a CPU of this node is worth, in percent.
	ratio        int64
	thirdParties amounts // the part of the node's batch resources that others have assigned

	zones []zone
}

// readNode reads the node; why names what is missing for any decision.
func readNode(s *tick.Sample, a *tick.Advice) (n *node, why string) {
	if s.IsNodeUnread() {
		// The machine's own capacity would be used instead, without kubelet's reservations.
		return nil, "the node object could not be read"
	}
	n = &node{}
	for r := range resources {
		capacity, ok := wholeNumber(valueOf(s.Capacity, r))
		if s.Capacity == nil {
			capacity, ok = machineCapacity(s, r)
		}
		if !ok {
			continue
		}
		n.capacity[r], n.known[r] = capacity, true
		if s.Allocatable != nil {
			allocatable, ok := wholeNumber(valueOf(s.Allocatable, r))
			n.reservedByKubelet[r], n.known[r] = max(capacity-allocatable, 0), ok
		}
	}
	if n.known == (resourceFlags{}) {
		return nil, "the node's capacity or allocatable is unknown"
	}
	n.readReservation(s.Annotations, a)
	n.readRatio(s.Annotations, a)
	if err := n.readThirdParties(s.Annotations); err != nil {
		return nil, err.Error() // Koordinator withdraws the offer then
	}
	n.zones = zonesOf(s.Topology)
	return n, ""
}

func valueOf(from *tick.Resources, r resource) *float64 {
	switch {
	case from == nil:
		return nil
	case r == cpu:
		return from.MilliCPU
	}
	return from.MemoryBytes
}

// machineCapacity returns the machine's own capacity, for use if the Node object has none.
func machineCapacity(s *tick.Sample, r resource) (int64, bool) {
	switch {
	case r == memory && s.Memory != nil:
		return wholeNumber(s.Memory.TotalBytes)
	case r == cpu && s.Topology != nil:
		online, err := cpus.Parse(s.Topology.CPUs)
		return int64(online.Size()) * 1000, err == nil && !online.IsEmpty()
	}
	return 0, false
}

// readReservation reads what is reserved by annotation. Like Koordinator, it treats an invalid annotation as no reservation.
func (n *node) readReservation(annotations map[string]string, a *tick.Advice) {
	r, errs := annotation.ReservedOf(annotations)
	for _, err := range errs {
		a.Reasons = append(a.Reasons, fmt.Sprintf("%v: it reserves nothing", err))
	}
	n.reservedByAnnotation[cpu], _ = wholeNumber(&r.MilliCPU)
	n.reservedByAnnotation[memory], _ = wholeNumber(&r.MemoryBytes)
}

// readRatio reads the factor of batch CPU.
func (n *node) readRatio(annotations map[string]string, a *tick.Advice) {
	ratio, err := annotation.RatioOf(annotations)
	if err != nil {
		a.Reasons = append(a.Reasons, fmt.Sprintf("%v; batch-cpu is not multiplied", err))
	}
	n.ratio = int64(math.Round(ratio * 100))
}

// thirdParties are the batch resources that others, such as YARN, have assigned.
type thirdParties struct {
	Allocations []struct {
		Name      string         `json:"name"`
		Priority  string         `json:"priority"`
		Resources map[string]any `json:"resources"`
	} `json:"allocations"`
}

// readThirdParties reads what others have assigned.
func (n *node) readThirdParties(annotations map[string]string) error {
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
				v, isSet := allocation.Resources[name]
				if !isSet {
					continue
				}
				amount, err := quantity.Integer(v)
				if err != nil {
					return fmt.Errorf("annotation %s: %.40q: %s: %w", annotation.ThirdParties, allocation.Name, resourceNames[r].batch, err)
				}
				counted, _ := wholeNumber(&amount)
				n.thirdParties[r] = add(n.thirdParties[r], counted)
			}
		}
	}
	return nil
}
