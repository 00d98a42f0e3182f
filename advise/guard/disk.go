package guard

import (
	"slices"

	"polder/advise/disk"
	"polder/advise/policy"
	"polder/lib/tick"
)

// leastDisk is what steps always leave, and the least that batch must use for a step to have an effect: bytes read and written, reads and
// writes per second.
var leastDisk = rates{1 << 20, 1 << 20, 32, 32}

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

// most returns the larger rate of each kind.
func (r rates) most(other rates) rates {
	for i := range r {
		r[i] = max(r[i], other[i])
	}
	return r
}

// after returns the rates that are left after a number of steps: at least [leastDisk].
func (r rates) after(steps int) rates {
	for i, least := range leastDisk {
		above := max(r[i]-least, 0)
		r[i] = least + above*int64(stepsOf[kindDisk]-min(steps, stepsOf[kindDisk]))/int64(stepsOf[kindDisk])
	}
	return r
}

// usesDisks reports whether batch is known to read or write more than almost nothing.
func (v *view) usesDisks() bool {
	var sum rates
	for _, r := range v.disks {
		sum = sum.plus(r)
	}
	return sum.over(leastDisk)
}

func (r rates) plus(other rates) rates {
	for i := range r {
		r[i] += min(other[i], maxRate)
	}
	return r
}

// over reports whether any rate is larger than the other's.
func (r rates) over(other rates) bool {
	for i := range r {
		if r[i] > other[i] {
			return true
		}
	}
	return false
}

// throttles reports whether one more step of disk takes anything.
func (st *State) throttles(v *view) bool {
	var sum rates
	for path, r := range v.disks {
		if s := st.Batch[path]; s != nil && s.Rates != (rates{}) {
			r = s.Rates
		}
		sum = sum.plus(r)
	}
	return sum.over(leastDisk)
}

// applyDisk limits what batch pods read and write on every disk, and returns the cgroups that it limited. The steps are parts of each pod's
// rates at the first step.
func (st *State) applyDisk(d draft, v *view, steps int) map[string]bool {
	if steps == 0 {
		return nil
	}
	done := make(map[string]bool, len(v.disksOf))
	for _, path := range v.diskPaths() {
		now, known := v.disks[path]
		if was := st.Batch[path]; !known && (was == nil || was.Rates == (rates{})) {
			continue
		}
		s := st.shareOf(path)
		if s.Disk = true; s.Rates == (rates{}) {
			s.Rates = now.most(leastDisk)
		}
		left := s.Rates.after(steps)
		d.Each(path, func(c *tick.Cgroup) { c.IOMax = tighterDisks(c.IOMax, left) })
		done[path] = true
	}
	return done
}

// tighterDisks tightens the existing limits, and adds limits for all disks.
func tighterDisks(list []tick.DiskLimit, left rates) []tick.DiskLimit {
	list = slices.Clone(list)
	if !slices.ContainsFunc(list, func(one tick.DiskLimit) bool { return one.Disk == tick.AllDisks }) {
		list = append(list, tick.DiskLimit{Disk: tick.AllDisks})
	}
	for i := range list {
		one := &list[i]
		for j, at := range []**int64{&one.ReadBytesPerSecond, &one.WriteBytesPerSecond, &one.ReadsPerSecond, &one.WritesPerSecond} {
			*at = policy.Tighter(*at, left[j])
		}
	}
	return list
}

// freeDisk undoes the steps' limits of a cgroup's disks.
func (d draft) freeDisk(path string) {
	d.Each(path, func(c *tick.Cgroup) {
		if !slices.ContainsFunc(c.IOMax, func(one tick.DiskLimit) bool { return one.Disk == tick.AllDisks }) {
			c.IOMax = append(slices.Clone(c.IOMax), disk.NoLimit(tick.AllDisks))
		}
	})
}

// diskPaths returns the cgroups of batch pods, sorted.
func (v *view) diskPaths() []string {
	paths := make([]string, 0, len(v.disksOf))
	for path := range v.disksOf {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}
