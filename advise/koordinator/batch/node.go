package batch

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"polder/lib/cpus"
	"polder/lib/qos"
	"polder/lib/quantity"
	"polder/lib/tick"
)

// Annotations of the node.
const (
	reservation   = "node.koordinator.sh/reservation"
	normalization = "node.koordinator.sh/cpu-normalization-ratio"
	thirdParties  = "node.koordinator.sh/thirdPartyAllocations"
)

// node is what is offered from, and what is kept of it.
type node struct {
	capacity  amounts
	known     has
	kubelet   amounts // reserved by kubelet: capacity without allocatable
	annotated amounts // reserved by annotation
	// ratio is by how much a CPU of this node is worth more than the cluster's norm, in percent; 0 where nothing is said.
	ratio        int64
	thirdParties amounts // what others have given away of the node's batch resources

	zones []zone
}

// see reads the node; why says what is missing for any decision.
func see(s *tick.Sample, a *tick.Advice) (n *node, why string) {
	if s.Labels == nil && s.Annotations == nil && slices.ContainsFunc(s.Errors, func(e tick.SourceError) bool { return e.Source == "node" }) {
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
	n.reserve(s.Annotations[reservation], a)
	n.normalize(s.Annotations[normalization], a)
	if err := n.subtract(s.Annotations[thirdParties]); err != nil {
		// Koordinator takes the offer away then.
		return nil, fmt.Sprintf("annotation %s: %v", thirdParties, err)
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

// machine is the machine's own, where no node object and no collect say more.
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

// reserve reads what is reserved by annotation: amounts, or for CPU the number of the CPUs that are named, which stands in the
// place of an amount. What cannot be read reserves nothing, as with Koordinator.
func (n *node) reserve(text string, a *tick.Advice) {
	if text == "" {
		return
	}
	var says struct {
		Resources    map[string]any `json:"resources"`
		ReservedCPUs string         `json:"reservedCPUs"`
	}
	complain := func(err error) {
		a.Reasons = append(a.Reasons, fmt.Sprintf("annotation %s: %v: that reserves nothing", reservation, err))
	}
	if err := tick.Unmarshal([]byte(text), &says); err != nil {
		complain(err)
		return
	}
	for r, read := range [resources]func(any) (float64, error){quantity.Milli, quantity.Whole} {
		v, set := says.Resources[words[r].native]
		if !set {
			continue
		}
		amount, err := read(v)
		if err != nil {
			complain(fmt.Errorf("%s: %w", words[r].native, err))
			continue
		}
		n.annotated[r], _ = whole(&amount)
	}
	if says.ReservedCPUs != "" {
		list, err := cpus.Parse(says.ReservedCPUs)
		if err != nil {
			complain(fmt.Errorf("reservedCPUs: %w", err))
			return
		}
		n.annotated[cpu] = int64(list.Size()) * 1000
	}
}

// normalize reads by how much the batch CPU is multiplied.
func (n *node) normalize(text string, a *tick.Advice) {
	if text == "" {
		return
	}
	ratio, err := strconv.ParseFloat(text, 64)
	if err != nil || !(ratio >= 1 && ratio <= 5) {
		a.Reasons = append(a.Reasons, fmt.Sprintf("annotation %s is %.40q: want a number from 1 to 5; batch-cpu is not multiplied", normalization, text))
		return
	}
	n.ratio = int64(math.Round(ratio * 100))
}

// subtract reads what others, such as YARN, have given away of the batch resources.
func (n *node) subtract(text string) error {
	if text == "" {
		return nil
	}
	var says struct {
		Allocations []struct {
			Name      string         `json:"name"`
			Priority  string         `json:"priority"`
			Resources map[string]any `json:"resources"`
		} `json:"allocations"`
	}
	if err := tick.Unmarshal([]byte(text), &says); err != nil {
		return err
	}
	for _, allocation := range says.Allocations {
		if allocation.Priority != qos.Batch {
			continue
		}
		for r := range resources {
			for _, domain := range []string{"kubernetes.io/", "koordinator.sh/"} {
				v, set := allocation.Resources[domain+words[r].batch]
				if !set {
					continue
				}
				amount, err := quantity.Whole(v)
				if err != nil {
					return fmt.Errorf("%.40q: %s: %w", allocation.Name, words[r].batch, err)
				}
				counted, _ := whole(&amount)
				n.thirdParties[r] = add(n.thirdParties[r], counted)
			}
		}
	}
	return nil
}
