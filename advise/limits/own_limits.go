package limits

import (
	"math"

	"polder/advise/policy"
	"polder/lib/phrase"
	"polder/lib/tick"
)

// own limits each batch pod by its own limits of reclaimed resources. Kubelet does not know these and sets no limit for them. The quota is
// the pod's cgroup's, the sum over its containers where each has a limit: kubelet takes a quota off a container that it did not ask for,
// each time it writes the container's CPU list (policy static of its CPU manager). Memory is limited container by container, and only where
// batch's memory is capped.
func (w *work) own(limitsMemory bool) {
	cpu, memory, over := 0, 0, 0
	for i := range w.tick.Sample.Pods {
		p := &w.tick.Sample.Pods[i]
		if p.QoS != tick.QoSReclaimed || p.Missing != "" || p.Ended() {
			continue
		}
		whole, sum := true, int64(0) // the pod's limits are all that is known
		for j := range p.Containers {
			c := &p.Containers[j]
			if c.Limits == nil {
				sum = tick.Unlimited
				continue
			}
			whole = false
			if quota := quotaOf(c.Limits.ReclaimedMilliCPU); quota < 0 || sum < 0 {
				sum = tick.Unlimited
			} else {
				sum += smaller(quota, nativeOf(c.Limits).milliCPU) // what kubelet sets is never widened
			}
			if limitsMemory {
				limited, isOver := w.limitMemory(c.Cgroup, c.Limits, c.Memory)
				memory, over = memory+limited, over+isOver
			}
		}
		if whole && p.Limits != nil {
			sum = quotaOf(p.Limits.ReclaimedMilliCPU)
			if limitsMemory {
				limited, isOver := w.limitMemory(p.Cgroup, p.Limits, p.Memory)
				memory, over = memory+limited, over+isOver
			}
		}
		if sum > 0 && isPath(p.Cgroup) {
			w.of(p.Cgroup).Own.CPU = smaller(min(sum, maxMilliCPU), w.pods[p.Cgroup].milliCPU)
			cpu++
		}
	}
	if cpu+memory > 0 {
		w.addReason("batch pods' own limits: CPU of %s, memory of %s", phrase.Count(cpu, "pod"), phrase.Count(memory, "cgroup"))
	}
	if over > 0 {
		w.addReason("batch pods' own limits: %s over the memory limit: memory.high brings the use down by steps of %s, and the limit holds after that",
			phrase.Count(over, "cgroup"), percent(stepPart))
	}
}

// limitMemory sets the memory limit of one cgroup. It counts those that have one, and those whose use is over it.
func (w *work) limitMemory(path string, limits *tick.Resources, m *tick.Memory) (limited, over int) {
	if !isPath(path) || limits == nil {
		return 0, 0
	}
	bytes := bytesOf(limits.ReclaimedMemoryBytes)
	if bytes < 0 {
		return 0, 0
	}
	bytes = smaller(bytes, w.pods[path].bytes)
	use, known := useOf(m)
	if !known { // what was set stays
		if was := w.before(path).Own; was.High > 0 || was.Max > 0 {
			s := w.of(path)
			s.Own.High, s.Own.Max = was.High, was.Max
			return 1, 0
		}
		return 0, 0
	}
	s := w.of(path)
	was := w.before(path).Own
	if use <= float64(bytes) {
		s.Own.Max = bytes
		return 1, 0
	}
	s.Own.High = steady(was.High, max(whole(use*(1-stepPart)), bytes), use*(1-stepPart))
	s.Own.Max = steady(was.Max, whole(use*(1+stepPart)), use)
	return 1, 1
}

// useOf is the memory that a cgroup holds, and whether that is known.
func useOf(m *tick.Memory) (bytes float64, known bool) {
	if m == nil || m.UsageBytes == nil || !(*m.UsageBytes >= 0) {
		return 0, false
	}
	return policy.Amount(m.UsageBytes), true
}

// smaller is the smaller of two limits; none is larger than any.
func smaller(x, y int64) int64 {
	if y >= 0 && (x < 0 || y < x) {
		return y
	}
	return x
}

// whole is a size in whole MiB, rounded up; what is over a MiB by less than a rounding of floating point numbers is that MiB.
func whole(bytes float64) int64 {
	return int64(math.Ceil(min(bytes, maxBytes)/mebibyte-1e-6)) * mebibyte
}

// steady is the value that was advised before, where the new one differs from it by no more than a part in 32 and it is not under the least
// that is safe: a use that moves a little writes nothing.
func steady(was, now int64, least float64) int64 {
	if was > 0 && float64(was) >= least && max(was-now, now-was) <= was/32 {
		return was
	}
	return now
}
