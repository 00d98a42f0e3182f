package limits

import (
	"math"

	"polder/advise/policy"
	"polder/lib/phrase"
	"polder/lib/tick"
)

// applyOwnLimits limits each batch pod by its own limits of reclaimed resources, which kubelet does not know and sets no limit for. The
// quota is set on the pod's cgroup, as the sum over its containers if each has a limit: kubelet removes a quota that it did not set from a
// container each time it writes the container's CPU list (policy static of its CPU manager). Memory is limited per container, and only if
// batch's memory is capped. The limits of a pod that the cluster has deleted stay while its processes run.
func (w *round) applyOwnLimits(limitsMemory bool) {
	cpu, memory, overLimit := 0, 0, 0
	for i := range w.tick.Sample.Pods {
		p := &w.tick.Sample.Pods[i]
		if !p.IsBatch() || p.Missing == tick.MissingCgroup || p.Ended() {
			continue
		}
		isPodOnly, sum := true, int64(0) // only the pod's own limits are known
		for j := range p.Containers {
			c := &p.Containers[j]
			if c.Limits == nil {
				sum = tick.Unlimited
				continue
			}
			isPodOnly = false
			if quota := quotaOf(c.Limits.ReclaimedMilliCPU); quota < 0 || sum < 0 {
				sum = tick.Unlimited
			} else {
				sum += smaller(quota, kubeletLimitsOf(c.Limits).milliCPU) // a limit that kubelet sets is never widened
			}
			if limitsMemory {
				limited, over := w.limitMemory(c.Cgroup, c.Limits, c.Memory)
				memory, overLimit = memory+limited, overLimit+over
			}
		}
		if isPodOnly && p.Limits != nil {
			sum = quotaOf(p.Limits.ReclaimedMilliCPU)
			if limitsMemory {
				limited, over := w.limitMemory(p.Cgroup, p.Limits, p.Memory)
				memory, overLimit = memory+limited, overLimit+over
			}
		}
		if sum > 0 && policy.IsCgroup(p.Cgroup) {
			w.entry(p.Cgroup).Own.CPU = smaller(min(sum, maxMilliCPU), w.pods[p.Cgroup].milliCPU)
			cpu++
		}
	}
	if cpu+memory > 0 {
		w.addReason("batch pods' own limits: CPU of %s, memory of %s", phrase.Count(cpu, "pod"), phrase.Count(memory, "cgroup"))
	}
	if overLimit > 0 {
		w.addReason("batch pods' own limits: %s over the memory limit: memory.high reduces the use in steps of %s, then the limit applies",
			phrase.Count(overLimit, "cgroup"), percent(stepPart))
	}
}

// limitMemory sets the memory limit of one cgroup. It counts those that have one, and those whose use exceeds it.
func (w *round) limitMemory(path string, limits *tick.Resources, m *tick.Memory) (limited, over int) {
	if !policy.IsCgroup(path) || limits == nil {
		return 0, 0
	}
	bytes := bytesOf(limits.ReclaimedMemoryBytes)
	if bytes < 0 {
		return 0, 0
	}
	bytes = smaller(bytes, w.pods[path].bytes)
	use, isKnown := useOf(m)
	if !isKnown { // the value that was set stays
		if previous := w.previous(path).Own; previous.High > 0 || previous.Max > 0 {
			s := w.entry(path)
			s.Own.High, s.Own.Max = previous.High, previous.Max
			return 1, 0
		}
		return 0, 0
	}
	s := w.entry(path)
	previous := w.previous(path).Own
	if use <= float64(bytes) {
		s.Own.Max = bytes
		return 1, 0
	}
	s.Own.High = steadyValue(previous.High, max(wholeMiB(use*(1-stepPart)), bytes), use*(1-stepPart))
	s.Own.Max = steadyValue(previous.Max, wholeMiB(use*(1+stepPart)), use)
	return 1, 1
}

// useOf returns a cgroup's memory use, and whether that is known.
func useOf(m *tick.Memory) (bytes float64, isKnown bool) {
	if m == nil || m.UsageBytes == nil || !(*m.UsageBytes >= 0) {
		return 0, false
	}
	return policy.Amount(m.UsageBytes), true
}

// smaller returns the smaller of two limits; any limit is smaller than none.
func smaller(x, y int64) int64 {
	if y >= 0 && (x < 0 || y < x) {
		return y
	}
	return x
}

// wholeMiB rounds a size up to whole MiB, except for an excess within the rounding error of floating point numbers.
func wholeMiB(bytes float64) int64 {
	return int64(math.Ceil(min(bytes, maxBytes)/mebibyte-1e-6)) * mebibyte
}

// steadyValue returns the last advised value if the new one differs from it by at most a part in 32 and it is at least the smallest safe
// value: small changes of the use write nothing.
func steadyValue(previous, next int64, minimum float64) int64 {
	if previous > 0 && float64(previous) >= minimum && max(previous-next, next-previous) <= previous/32 {
		return previous
	}
	return next
}
