package limits

import (
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
}

// protect sets memory.low of services' cgroups to their working set, or to the part of it that fits, and that of the cgroups above to the
// sums: a protection is effective only as far as the ancestors' protection. If no setting requests it, a kernel without memory.low is not
// reported.
func (w *round) protect(isRequested bool) {
	s := w.tick.Sample
	if s.CgroupVersion != 2 {
		if !isRequested {
			return
		}
		w.addReason("memory protection: cgroup version %d has no memory.low: services are not protected", s.CgroupVersion)
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
	protected, scaled := w.protectLeaves(leaves, policy.Amount(s.Memory.TotalBytes)*protectedPermille/1000)
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

// protectLeaves protects services' cgroups and their ancestors while bytes are left. It returns how much is protected, and which classes
// were scaled.
func (w *round) protectLeaves(leaves []leaf, available float64) (protected float64, scaled string) {
	sums := map[string]int64{}
	for i, name := range classes {
		sum := 0.0
		for _, l := range leaves {
			if l.class == i {
				sum += l.workingSet
			}
		}
		part := 1.0
		if sum > available {
			part = available / sum
			scaled += ", " + name + " to " + percent(part)
		}
		for _, l := range leaves {
			if l.class != i {
				continue
			}
			low := int64(l.workingSet*part) / mebibyte * mebibyte
			if previous := w.previous(l.path).Low; previous > 0 && max(previous-low, low-previous) <= previous/lowDeadPart {
				low = previous // a small change of the working set writes nothing
			}
			for ancestor := l.path; len(ancestor) > 1 && low > 0; ancestor = path.Dir(ancestor) {
				sums[ancestor] += low
			}
			protected += float64(low)
			available -= float64(low)
		}
	}
	for at, low := range sums {
		w.entry(at).Low = low
	}
	return protected, scaled
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
				list = append(list, leaf{cgroup, class, float64(w.previous(cgroup).Low)})
				continue
			}
			list = append(list, leaf{cgroup, class, policy.Amount(m.WorkingSetBytes)})
		}
	}
	return list, isAnyUnknown
}
