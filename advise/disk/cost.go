package disk

import (
	"fmt"
	"slices"
	"strings"

	"polder/advise/policy"
	"polder/lib/phrase"
	"polder/lib/reason"
	"polder/lib/tick"
)

// mergeCosts returns the costs of the settings, and of the policy's own configuration for the disks that the settings do not name.
func mergeCosts(strategy, settings []tick.DiskCost) []tick.DiskCost {
	strategy = slices.DeleteFunc(slices.Clone(strategy), func(d tick.DiskCost) bool {
		return slices.ContainsFunc(settings, func(s tick.DiskCost) bool { return s.Disk == d.Disk })
	})
	return slices.Concat(strategy, settings)
}

// adviseCosts makes the kernel share disks by costs (io.cost). The costs are the root cgroup's, not a pod's: costs that are no longer
// desired are restored to their original values.
func (st *State) adviseCosts(t *tick.Tick, a *tick.Advice, desired []tick.DiskCost) {
	desired = slices.Clone(desired[:min(len(desired), maxDisks)])
	if len(desired) > 0 && t.Sample.CgroupVersion != 2 {
		a.Reasons = append(a.Reasons, fmt.Sprintf("disk costs: cgroup version %d has no io.cost: disks are shared as before", t.Sample.CgroupVersion))
		desired = nil
	}
	names := make([]string, len(desired))
	for i := range desired {
		names[i] = desired[i].Disk
	}
	if dropped := without(st.Costs, names); len(dropped) > 0 {
		st.UndoCosts, st.UndoCostsAt = slices.Concat(st.UndoCosts, dropped), t.Time
	}
	slices.Sort(st.UndoCosts)
	st.UndoCosts = without(slices.Compact(st.UndoCosts), names)
	if t.Time.Sub(st.UndoCostsAt) >= policy.UndoFor {
		st.UndoCosts = nil
	}
	st.Costs = names
	if len(names) > 0 {
		a.Reasons = append(a.Reasons, fmt.Sprintf(reason.DiskCosts+"%s (%s)",
			phrase.Count(len(names), "disk"), policy.Quote(strings.Join(names, ", "))))
	}
	for _, disk := range st.UndoCosts {
		desired = append(desired, tick.DiskCost{Disk: disk})
	}
	if len(desired) == 0 {
		return
	}
	d := policy.NewDraft(a)
	d.Each("/", func(c *tick.Cgroup) { c.IOCost = desired })
	d.Finish(a)
}
