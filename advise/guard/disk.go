package guard

import (
	"slices"

	"polder/advise/disk"
	"polder/advise/policy"
	"polder/lib/tick"
)

// leastDisk is what no step of disk takes, and what batch must do at least for a step to be of any use: bytes read and written, reads and
// writes in a second.
var leastDisk = rates{1 << 20, 1 << 20, 32, 32}

// maxRate is what no disk does.
const maxRate = 1 << 50

// rates are what a batch pod reads and writes on disks.
type rates [4]int64

// ratesOf are those of a pod, and whether they are known.
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

// most are the larger ones of each kind.
func (r rates) most(other rates) rates {
	for i := range r {
		r[i] = max(r[i], other[i])
	}
	return r
}

// after is what is left of the rates after so many steps: at least [leastDisk].
func (r rates) after(steps int) rates {
	for i, least := range leastDisk {
		above := max(r[i]-least, 0)
		r[i] = least + above*int64(stepsOf[kindDisk]-min(steps, stepsOf[kindDisk]))/int64(stepsOf[kindDisk])
	}
	return r
}

// usesDisks reports whether batch is known to read or write more than next to nothing.
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

// over reports whether any of the rates is over another's.
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

// applyDisk limits what batch pods read and write on every disk, and returns the cgroups of which it did. What each did at the first step
// is what the steps take parts of.
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

// tighterDisks tightens the limits that there are, and adds those of all disks.
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

// freeDisk gives back what the steps took of a cgroup's disks.
func (d draft) freeDisk(path string) {
	d.Each(path, func(c *tick.Cgroup) {
		if !slices.ContainsFunc(c.IOMax, func(one tick.DiskLimit) bool { return one.Disk == tick.AllDisks }) {
			c.IOMax = append(slices.Clone(c.IOMax), disk.NoLimit(tick.AllDisks))
		}
	})
}

// diskPaths are the cgroups of batch pods, sorted.
func (v *view) diskPaths() []string {
	paths := make([]string, 0, len(v.disksOf))
	for path := range v.disksOf {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}
