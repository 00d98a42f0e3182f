package policy

import (
	"math/bits"
	"slices"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// Bounded bounds sums of untrusted numbers to where int64 and float64 agree.
func Bounded(f float64) float64 { return min(f, 1<<53) }

// Amount returns a value of the sample; 0 if it is missing, negative or not a number.
func Amount(v *float64) float64 {
	if v == nil || !(*v > 0) {
		return 0
	}
	return Bounded(*v)
}

// Use returns a pod's CPU use in milli-CPU: 0 if the pod is known not to use anything, as one that waits for its image, and nil if it is
// unknown, as in the first tick after a container's start, which has no rate.
func Use(p *tick.Pod) *float64 {
	if p.UsageMilliCPU == nil && p.IsIdle() {
		return new(0.0)
	}
	return p.UsageMilliCPU
}

// RSSBytes returns a pod's resident memory, which the kernel cannot drop, as far as it is known: its own value or its containers'.
func RSSBytes(p *tick.Pod) (bytes float64) {
	if p.Memory != nil {
		return Amount(p.Memory.RSSBytes)
	}
	for i := range p.Containers {
		if memory := p.Containers[i].Memory; memory != nil {
			bytes = Bounded(bytes + Amount(memory.RSSBytes))
		}
	}
	return bytes
}

// MachineBytes returns the machine's memory: the Node object's capacity, else the kernel's total; 0 if both are unknown. Less than a byte
// counts as unknown: a part of it would not be a finite number.
func MachineBytes(s *tick.Sample) float64 {
	total := 0.0
	switch {
	case s.Capacity != nil && s.Capacity.MemoryBytes != nil:
		total = Amount(s.Capacity.MemoryBytes)
	case s.Memory != nil:
		total = Amount(s.Memory.TotalBytes)
	}
	if total < 1 {
		return 0
	}
	return total
}

// PodsUnknown reports whether there are pods of Kubernetes and the API server's data is missing for all of them: collect was started
// while the API server was unreachable. All of them would count as shared.
func PodsUnknown(s *tick.Sample) bool {
	isAnyMissing := false
	for i := range s.Pods {
		if s.Pods[i].QoSSource != tick.QoSFromRule {
			return false
		}
		isAnyMissing = isAnyMissing || s.Pods[i].Missing == tick.MissingCluster
	}
	return isAnyMissing && s.IsUnread("pods")
}

// Identity distinguishes a pod from a later one with the same name.
func Identity(p *tick.Pod) string {
	switch {
	case p.UID != "":
		return p.UID
	case p.Namespace != "" || p.Name != "":
		return Key(p)
	}
	return p.Cgroup
}

// Key returns a pod's namespace/name.
func Key(p *tick.Pod) string { return p.Namespace + "/" + p.Name }

// Cgroups returns the number of a pod's cgroups: its containers', or its own if it lists none.
func Cgroups(p *tick.Pod) int { return max(len(p.Containers), 1) }

// Cgroup returns a pod's i-th cgroup; it may have no name. A pod of Kubernetes without containers only has its sandbox yet, and its own
// cgroup is not changed: nothing would widen it again when the containers exist.
func Cgroup(p *tick.Pod, i int) string {
	switch {
	case len(p.Containers) > 0:
	case p.Missing != "", p.QoSSource != "" && p.QoSSource != tick.QoSFromRule:
		return ""
	default:
		return p.Cgroup
	}
	return p.Containers[i].Cgroup
}

// ExclusiveCount returns the number of CPUs in a container's list, if all of them are exclusive ones of kubelet's; else 0.
func ExclusiveCount(list string, exclusive cpus.Set) int {
	set, err := cpus.Parse(list)
	if err != nil || !set.IsSubsetOf(exclusive) {
		return 0
	}
	return set.Size()
}

// HasExclusiveCPUs reports whether kubelet gave a container the CPUs in its list exclusively; count is the result of [ExclusiveCount]. If
// the container's request is for another number, kubelet gave away CPUs that isolate had pinned it to, and the result is false.
func HasExclusiveCPUs(c *tick.Container, count int) bool {
	if count > 0 && c.Requests != nil && c.Requests.MilliCPU != nil {
		return *c.Requests.MilliCPU == float64(count)*1000
	}
	return count > 0
}

// SameTopology reports whether two topologies are equal.
func SameTopology(a, b *tick.Topology) bool {
	return a.CPUs == b.CPUs && slices.Equal(a.Cores, b.Cores) && slices.Equal(a.Sockets, b.Sockets) && slices.Equal(a.L3, b.L3) &&
		slices.EqualFunc(a.NUMANodes, b.NUMANodes, func(x, y tick.TopologyNUMA) bool {
			return x.ID == y.ID && x.CPUs == y.CPUs && (x.MemoryBytes == nil) == (y.MemoryBytes == nil) &&
				(x.MemoryBytes == nil || *x.MemoryBytes == *y.MemoryBytes)
		})
}

// Split divides a total in proportion to weights, of which at least one is not 0, without losing any.
func Split(total int64, weights []uint64) []int64 {
	sum, shift := sumOf(weights)
	parts, rest := make([]int64, len(weights)), total
	for i, w := range weights {
		high, low := bits.Mul64(uint64(total), w>>shift)
		part, _ := bits.Div64(high, low, sum) // w is at most sum, so this is at most total
		parts[i] = int64(part)
		rest -= parts[i]
	}
	for i := range parts { // the rest is less than one for each positive weight
		if rest > 0 && weights[i]>>shift > 0 {
			parts[i]++
			rest--
		}
	}
	return parts
}

// sumOf returns the sum of the weights without their lowest bits, of which as many are left out as it takes for the sum not to overflow.
func sumOf(weights []uint64) (sum uint64, shift int) {
	for ; ; shift++ {
		overflow := uint64(0)
		sum = 0
		for _, w := range weights {
			var carry uint64
			sum, carry = bits.Add64(sum, w>>shift, 0)
			overflow |= carry
		}
		if overflow == 0 {
			return sum, shift
		}
	}
}
