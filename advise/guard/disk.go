package guard

import (
	"maps"
	"slices"

	"polder/advise/disk"
	"polder/advise/policy"
	"polder/lib/tick"
)

// minDiskRates is what steps always leave, and the least that batch must use for a step to have an effect: bytes read and written, reads
// and writes per second.
var minDiskRates = rates{1 << 20, 1 << 20, 32, 32}

// maxRate is more than any disk can do.
const maxRate = 1 << 50

// rates are a batch pod's reads and writes on disks.
type rates [4]int64

// ratesOf returns a pod's rates, and whether they are known.
func ratesOf(io *tick.IO) (r rates, known bool) {
	if io == nil {
		return r, false
	}
	for i, f := range []*float64{io.ReadBytesPerSecond, io.WriteBytesPerSecond, io.ReadsPerSecond, io.WritesPerSecond} {
		if f != nil {
			r[i], known = int64(min(policy.Amount(f), maxRate)), true
		}
	}
	return r, known
}

// larger returns the larger rate of each kind.
func (r rates) larger(other rates) rates {
	for i := range r {
		r[i] = max(r[i], other[i])
	}
	return r
}

// afterSteps returns the rates that are left after a number of steps: at least [minDiskRates].
func (r rates) afterSteps(steps int) rates {
	for i, minimum := range minDiskRates {
		excess := max(r[i]-minimum, 0)
		r[i] = minimum + excess*int64(stepsOf[kindDisk]-min(steps, stepsOf[kindDisk]))/int64(stepsOf[kindDisk])
	}
	return r
}

// usesDisks reports whether batch is known to read or write more than almost nothing.
func (v *view) usesDisks() bool {
	sum := v.deletedIO
	for _, r := range v.disks {
		sum = sum.plus(r)
	}
	return sum.exceeds(minDiskRates)
}

func (r rates) plus(other rates) rates {
	for i := range r {
		r[i] += min(other[i], maxRate)
	}
	return r
}

// exceeds reports whether any rate is larger than the other's.
func (r rates) exceeds(other rates) bool {
	for i := range r {
		if r[i] > other[i] {
			return true
		}
	}
	return false
}

// canThrottle reports whether one more step of disk takes anything.
func (st *State) canThrottle(v *view) bool {
	var sum rates
	for path, r := range v.disks {
		if s := st.Batch[path]; s != nil && s.Rates != (rates{}) {
			r = s.Rates
		}
		sum = sum.plus(r)
	}
	return sum.exceeds(minDiskRates)
}

// applyDisk limits what batch pods read and write on every disk, and returns the cgroups that it limited. The steps are parts of each pod's
// rates at the first step.
func (st *State) applyDisk(d draft, v *view, steps int) map[string]bool {
	if steps == 0 {
		return nil
	}
	throttled := make(map[string]bool, len(v.podCgroups))
	for _, path := range slices.Sorted(maps.Keys(v.podCgroups)) {
		current, isKnown := v.disks[path]
		if previous := st.Batch[path]; !isKnown && (previous == nil || previous.Rates == (rates{})) {
			continue
		}
		s := st.appliedTo(path)
		if s.Disk = true; s.Rates == (rates{}) {
			s.Rates = current.larger(minDiskRates)
		}
		remaining := s.Rates.afterSteps(steps)
		d.Each(path, func(c *tick.Cgroup) { c.IOMax = tightenDisks(c.IOMax, remaining) })
		throttled[path] = true
	}
	return throttled
}

// tightenDisks tightens the existing limits, and adds limits for all disks.
func tightenDisks(list []tick.DiskLimit, rates rates) []tick.DiskLimit {
	list = slices.Clone(list)
	if !slices.ContainsFunc(list, func(limit tick.DiskLimit) bool { return limit.Disk == tick.AllDisks }) {
		list = append(list, tick.DiskLimit{Disk: tick.AllDisks})
	}
	for i := range list {
		limit := &list[i]
		for j, field := range []**int64{&limit.ReadBytesPerSecond, &limit.WriteBytesPerSecond, &limit.ReadsPerSecond, &limit.WritesPerSecond} {
			*field = policy.Tighter(*field, rates[j])
		}
	}
	return list
}

// removeDiskLimits undoes the steps' limits of a cgroup's disks.
func (d draft) removeDiskLimits(path string) {
	d.Each(path, func(c *tick.Cgroup) {
		if !slices.ContainsFunc(c.IOMax, func(limit tick.DiskLimit) bool { return limit.Disk == tick.AllDisks }) {
			c.IOMax = append(slices.Clone(c.IOMax), disk.NoLimit(tick.AllDisks))
		}
	})
}
