package apply

import (
	"maps"

	"polder/isolate/plan"
)

// weightsToRestore returns the settings that restore the weight of cgroups that are no longer idle: the kernel changed it when isolate made
// them idle. It does not do so if the advice contains a weight for them.
func (a *Applier) weightsToRestore(changing []*item) []plan.Setting {
	var out []plan.Setting
	for _, it := range changing {
		if it.Name != "cpu.idle" || it.Observed != "1" {
			continue
		}
		if f, rec := a.changedWeight(it); rec != nil {
			if s, ok := a.restoredWeight(f, rec, it.Version); ok {
				out = append(out, s)
			}
		}
	}
	return out
}

// lostWeights returns the settings that restore the weight of cgroups that are no longer idle, as desired, and still have the weight that
// the kernel gives a cgroup with that change: isolate ended, or a write failed, before it wrote the weight, or another program wrote
// cpu.idle. Each weight is settled once it has another value, or was restored: the kernel's default after that is another program's value.
func (a *Applier) lostWeights() []plan.Setting {
	var out []plan.Setting
	for i := range a.items {
		it := &a.items[i]
		if it.Name != "cpu.idle" || it.err != nil {
			continue
		}
		f, rec := a.changedWeight(it)
		switch {
		case rec == nil:
		case it.Observed == "1" || !it.isAsDesired: // it is idle, or will be
			delete(a.settledWeights, f)
		case a.settledWeights[f] != rec:
			s, ok := a.restoredWeight(f, rec, it.Version)
			if ok && s.Observed == plan.DefaultWeight(it.Version) && s.Observed != rec.Original {
				out = append(out, s)
			} else if ok {
				a.settleWeight(f, rec)
			}
		}
	}
	return out
}

// settleWritten settles the lost weights that were written.
func (a *Applier) settleWritten(lost []plan.Setting) {
	for _, s := range lost {
		if text, err := a.Hierarchy.ReadFile(s.Controller, s.Cgroup, s.Name); err == nil && text != s.Observed {
			a.settleWeight(s.File, a.records[s.File])
		}
	}
}

func (a *Applier) settleWeight(f plan.File, rec *record) {
	if len(a.settledWeights) > len(a.records) { // some records were pruned
		maps.DeleteFunc(a.settledWeights, func(f plan.File, rec *record) bool { return a.records[f] != rec })
	}
	a.settledWeights[f] = rec
}

// changedWeight returns the weight that the kernel changed together with an item's cpu.idle. The record is nil if it did not, if the
// original weight is unknown because the cgroup was idle before, or if the advice contains a weight.
func (a *Applier) changedWeight(it *item) (plan.File, *record) {
	f := it.File
	f.Name = plan.WeightFile(it.Version)
	rec, idle := a.records[f], a.records[it.File]
	if rec == nil || !rec.IsSideEffect || idle == nil || idle.Original != "0" || a.files[f] != nil {
		return f, nil
	}
	return f, rec
}

// restoredWeight returns the setting that restores a weight; false if the cgroup is another one or cannot be read.
func (a *Applier) restoredWeight(f plan.File, rec *record, version int) (plan.Setting, bool) {
	if rec.Inode != a.inode(f) {
		return plan.Setting{}, false
	}
	s, err := plan.RestoreSetting(f, "cpuWeight", rec.Original, version)
	if err == nil {
		s.Observed, err = a.Hierarchy.ReadFile(f.Controller, f.Cgroup, f.Name)
	}
	return s, err == nil
}
