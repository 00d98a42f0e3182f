package policy

import (
	"math/bits"
	"slices"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// Bounded keeps sums of untrusted numbers where int64 and float64 agree.
func Bounded(f float64) float64 { return min(f, 1<<53) }

// Amount is a figure of the stream; what is missing, negative or no number is 0.
func Amount(v *float64) float64 {
	if v == nil || !(*v > 0) {
		return 0
	}
	return Bounded(*v)
}

// PodsUnknown reports whether there are pods of Kubernetes and the cluster knows none of them: collect was started while the API
// server was away. All of them would be shared.
func PodsUnknown(s *tick.Sample) bool {
	some := false
	for i := range s.Pods {
		if s.Pods[i].QoSSource != tick.QoSFromRule {
			return false
		}
		some = some || s.Pods[i].Missing == tick.MissingCluster
	}
	return some && s.Unread("pods")
}

// Identity tells a pod from a later one of the same name.
func Identity(p *tick.Pod) string {
	switch {
	case p.UID != "":
		return p.UID
	case p.Namespace != "" || p.Name != "":
		return Key(p)
	}
	return p.Cgroup
}

// Key is a pod's namespace/name.
func Key(p *tick.Pod) string { return p.Namespace + "/" + p.Name }

// Cgroups is the number of a pod's cgroups: its containers', or its own where it lists none.
func Cgroups(p *tick.Pod) int { return max(len(p.Containers), 1) }

// Cgroup is a pod's i-th; it may have no name. A pod of Kubernetes that lists no container has its sandbox alone yet, and its
// own cgroup is not touched: nobody would widen it again when the containers are there.
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

// Given is the number of CPUs in a container's list, where all of them are exclusive ones of kubelet's; else 0.
func Given(list string, exclusive cpus.Set) int {
	set, err := cpus.Parse(list)
	if err != nil || !set.IsSubsetOf(exclusive) {
		return 0
	}
	return set.Size()
}

// IsGiven reports whether kubelet gave a container the CPUs in its list, of which so many are [Given], for itself: unless its request
// is for another number, for then kubelet has given away what isolate had put it on.
func IsGiven(c *tick.Container, given int) bool {
	if given > 0 && c.Requests != nil && c.Requests.MilliCPU != nil {
		return *c.Requests.MilliCPU == float64(given)*1000
	}
	return given > 0
}

// SameTopology reports whether two samples are of a machine of the same shape.
func SameTopology(a, b *tick.Topology) bool {
	return a.CPUs == b.CPUs && slices.Equal(a.Cores, b.Cores) && slices.Equal(a.Sockets, b.Sockets) && slices.Equal(a.L3, b.L3) &&
		slices.EqualFunc(a.NUMANodes, b.NUMANodes, func(x, y tick.TopologyNUMA) bool {
			return x.ID == y.ID && x.CPUs == y.CPUs && (x.MemoryBytes == nil) == (y.MemoryBytes == nil) &&
				(x.MemoryBytes == nil || *x.MemoryBytes == *y.MemoryBytes)
		})
}

// Split divides a total in proportion to weights, of which one at least is not 0, without losing any.
func Split(total int64, weights []uint64) []int64 {
	sum := uint64(0)
	for _, w := range weights {
		sum += w
	}
	parts, rest := make([]int64, len(weights)), total
	for i, w := range weights {
		high, low := bits.Mul64(uint64(total), w)
		part, _ := bits.Div64(high, low, sum) // w is not over sum, so that this is not over total
		parts[i] = int64(part)
		rest -= parts[i]
	}
	for i := range parts { // less than one for each that has a weight
		if rest > 0 && weights[i] > 0 {
			parts[i]++
			rest--
		}
	}
	return parts
}
