package limits

import (
	"math"
	"path"
	"slices"
	"strings"

	"polder/advise/policy"
	"polder/lib/phrase"
	"polder/lib/tick"
)

const (
	// protectedPermille is the part of the machine's memory that services may have protected together: the rest is for the kernel, for batch,
	// and for reclaim to work.
	protectedPermille = 800
	// lowDeadPart is the part of a protection by which the working set may differ from it without a change.
	lowDeadPart = 8
	// maxDepth is the maximum depth of a protected cgroup: each of its ancestors is named too.
	maxDepth = 32
)

// classes are the classes of services, in the order in which they are protected.
var classes = []string{tick.QoSDedicated, tick.QoSSystem, tick.QoSShared}

// leaf is a service's cgroup that uses memory itself: a container's, or a pod's without listed containers.
type leaf struct {
	path       string
	class      int // index in [classes]
	workingSet float64
	// requested is the part of the working set that the pod's request covers. It comes before all use beyond requests: a label gives a pod
	// its class, and must not give it other pods' protection.
	requested float64
	low       float64 // the protection
}

// protect sets memory.low of services' cgroups to their working set, or to the part of it that fits, and that of the cgroups above to the
// sums: a protection is effective only as far as the ancestors' protection.
func (w *round) protect(mode string) {
	s := w.tick.Sample
	if s.CgroupVersion != 2 {
		if mode == Protect {
			w.addReason("memory protection: cgroup version %d has no memory.low: services are not protected", s.CgroupVersion)
		}
		return
	}
	if slices.ContainsFunc(w.advice.Cgroups, func(c tick.Cgroup) bool { return c.MemoryLowBytes != nil || c.MemoryMinBytes != nil }) {
		w.addReason("memory protection: the policy protects memory itself: nothing is added")
		return
	}
	if s.Memory == nil || policy.Amount(s.Memory.TotalBytes) == 0 {
		w.addReason("memory protection: the machine's memory is unknown: the protection stays unchanged")
		for at, previous := range w.state.Set {
			if previous.Low > 0 {
				w.entry(at).Low = previous.Low
			}
		}
		return
	}
	leaves, isAnyUnknown := w.leaves()
	available := policy.Amount(s.Memory.TotalBytes) * protectedPermille / 1000
	scaled := divide(leaves, available)
	protected := w.protectLeaves(leaves, available)
	if isAnyUnknown {
		w.addReason("memory protection: some services' working set is unknown: their protection stays unchanged")
	}
	if scaled != "" {
		scaled = "; the working sets exceed " + percent(protectedPermille/1000.0) + " of the machine: scaled" + scaled
	}
	if len(leaves) > 0 {
		w.addReason("memory protection: %s of %s%s", size(protected), phrase.Count(len(leaves), "service cgroup"), scaled)
	}
}

// divide divides the available bytes among the leaves: class by class what is requested, then all use beyond requests. What does not fit is
// scaled. It returns what was scaled.
func divide(leaves []leaf, available float64) (scaled string) {
	share := func(name string, part func(*leaf) float64) {
		sum := 0.0
		for i := range leaves {
			sum += part(&leaves[i])
		}
		scale := 1.0
		if sum > available {
			scale = available / sum
			scaled += ", " + name + " to " + percent(scale)
		}
		for i := range leaves {
			leaves[i].low += part(&leaves[i]) * scale
		}
		available = max(available-sum, 0)
	}
	for i, name := range classes {
		share(name, func(l *leaf) float64 {
			if l.class != i {
				return 0
			}
			return l.requested
		})
	}
	share("use beyond requests", func(l *leaf) float64 { return l.workingSet - l.requested })
	return scaled
}

// protectLeaves protects services' cgroups and their ancestors. It returns how much is protected.
func (w *round) protectLeaves(leaves []leaf, available float64) (protected float64) {
	sums := map[string]int64{}
	spare := available / lowDeadPart // by how much former values may exceed the present ones together
	for i := range leaves {
		l := &leaves[i]
		low := int64(l.low) / mebibyte * mebibyte
		previous := w.previous(l.path).Low
		excess := float64(previous - low)
		if previous > 0 && math.Abs(excess) <= float64(previous/lowDeadPart) && excess <= spare {
			low = previous // a small change of the working set writes nothing
			spare -= excess
		}
		for ancestor := l.path; len(ancestor) > 1 && low > 0; ancestor = path.Dir(ancestor) {
			sums[ancestor] += low
		}
		protected += float64(low)
	}
	for at, low := range sums {
		w.entry(at).Low = low
	}
	return protected
}

// leaves returns the services' cgroups and their desired protection. One whose working set is unknown keeps its last value.
func (w *round) leaves() (list []leaf, isAnyUnknown bool) {
	seen := map[string]bool{}
	for i := range w.tick.Sample.Pods {
		p := &w.tick.Sample.Pods[i]
		class := slices.Index(classes, p.QoS)
		if class < 0 || p.Missing == tick.MissingCgroup || p.Ended() {
			continue
		}
		first := len(list)
		for j := range policy.Cgroups(p) {
			cgroup, m := policy.Cgroup(p, j), p.Memory
			if len(p.Containers) > 0 {
				m = p.Containers[j].Memory
			}
			if !policy.IsCgroup(cgroup) || path.Clean(cgroup) != cgroup || strings.Count(cgroup, "/") > maxDepth || seen[cgroup] {
				continue
			}
			seen[cgroup] = true
			if m == nil || m.WorkingSetBytes == nil || !(*m.WorkingSetBytes >= 0) {
				isAnyUnknown = true
				list = append(list, leaf{path: cgroup, class: class, workingSet: float64(w.previous(cgroup).Low)})
				continue
			}
			list = append(list, leaf{path: cgroup, class: class, workingSet: policy.Amount(m.WorkingSetBytes)})
		}
		setRequested(list[first:], p)
	}
	return list, isAnyUnknown
}

// setRequested divides a pod's request among its leaves by their working sets. All use of a system pod, and of one that a rule names,
// counts as requested: the administrator decides on these, and they often request nothing.
func setRequested(leaves []leaf, p *tick.Pod) {
	sum := 0.0
	for i := range leaves {
		sum += leaves[i].workingSet
	}
	part := 1.0
	if request := memoryRequestOf(p); p.QoS != tick.QoSSystem && p.QoSSource != tick.QoSFromRule && request < sum {
		part = request / sum
	}
	for i := range leaves {
		leaves[i].requested = leaves[i].workingSet * part
	}
}

func memoryRequestOf(p *tick.Pod) float64 {
	if p.Requests == nil {
		return 0
	}
	return policy.Amount(p.Requests.MemoryBytes)
}
