package koordinator

import (
	"fmt"
	"slices"
	"strings"

	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// merge joins the entries of one cgroup into one, and sorts them by path: parents come before their children. The parts of the policy
// desire different keys; if two desire the same one, the stricter value applies and a reason names it.
func merge(entries []tick.Cgroup, a *tick.Advice) []tick.Cgroup {
	if len(entries) == 0 {
		return nil
	}
	entries = slices.DeleteFunc(entries, func(c tick.Cgroup) bool { return !strings.HasPrefix(c.Cgroup, "/") })
	slices.SortStableFunc(entries, func(a, b tick.Cgroup) int { return strings.Compare(a.Cgroup, b.Cgroup) })
	merged := entries[:0]
	for _, c := range entries {
		if n := len(merged); n > 0 && merged[n-1].Cgroup == c.Cgroup {
			mergeInto(&merged[n-1], &c, a)
		} else {
			merged = append(merged, c)
		}
	}
	return merged
}

// dropUndoneQuotas removes quotas from entries that only undo an earlier one, if others desire one of the same cgroup.
func dropUndoneQuotas(entries, others []tick.Cgroup, isUndone func(cgroup string) bool) {
	for i := range others {
		if others[i].CPUMaxMilliCPU == nil || !isUndone(others[i].Cgroup) {
			continue
		}
		for j := range entries {
			if entries[j].Cgroup == others[i].Cgroup {
				entries[j].CPUMaxMilliCPU = nil
			}
		}
	}
}

// mergeInto adds c's keys to into.
func mergeInto(into, c *tick.Cgroup, a *tick.Advice) {
	addConflict := func(key string, x, y, holds any) {
		a.Reasons = append(a.Reasons, fmt.Sprintf("cgroup %s: %s is desired as %v and as %v: %v applies", c.Cgroup, key, x, y, holds))
	}
	mergeLists(into, c, addConflict)
	for _, value := range []struct {
		key  string
		into **int64
		from *int64
	}{
		{"cpuMaxMilliCPU", &into.CPUMaxMilliCPU, c.CPUMaxMilliCPU},
		{"cpuBurstMilliCPU", &into.CPUBurstMilliCPU, c.CPUBurstMilliCPU},
		{"cpuWeight", &into.CPUWeight, c.CPUWeight},
		{"cpuWeightFactor", &into.CPUWeightFactor, c.CPUWeightFactor},
		{"memoryMinBytes", &into.MemoryMinBytes, c.MemoryMinBytes},
		{"memoryLowBytes", &into.MemoryLowBytes, c.MemoryLowBytes},
		{"memoryHighBytes", &into.MemoryHighBytes, c.MemoryHighBytes},
		{"memoryMaxBytes", &into.MemoryMaxBytes, c.MemoryMaxBytes},
		{"memoryWmarkRatioPercent", &into.MemoryWmarkRatioPercent, c.MemoryWmarkRatioPercent},
		{"memoryWmarkScalePermille", &into.MemoryWmarkScalePermille, c.MemoryWmarkScalePermille},
		{"memoryWmarkMinAdjPercent", &into.MemoryWmarkMinAdjPercent, c.MemoryWmarkMinAdjPercent},
		{"memoryPriority", &into.MemoryPriority, c.MemoryPriority},
		{"ioWeight", &into.IOWeight, c.IOWeight},
	} {
		switch x, y := *value.into, value.from; {
		case y == nil:
		case x == nil:
			*value.into = y
		case *x != *y:
			if isLimit := strings.Contains(value.key, "Max") || strings.Contains(value.key, "High"); isLimit {
				*value.into = policy.Tighter(x, *y)
			} else {
				*value.into = new(min(*x, *y))
			}
			addConflict(value.key, *x, *y, **value.into)
		}
	}
	into.IOMax = slices.Concat(into.IOMax, c.IOMax) // isolate takes the tighter limits of a disk
	into.IOCost = slices.Concat(into.IOCost, c.IOCost)
	into.CPUMaxTighterOnly = into.CPUMaxTighterOnly || c.CPUMaxTighterOnly
	into.MemoryTighterOnly = into.MemoryTighterOnly || c.MemoryTighterOnly
	mergeSwitches(into, c, addConflict)
}

// mergeLists takes the narrower of two lists.
func mergeLists(into, c *tick.Cgroup, addConflict func(key string, x, y, holds any)) {
	for _, list := range []struct {
		key  string
		into *string
		from string
	}{{"cpusetCPUs", &into.CPUSetCPUs, c.CPUSetCPUs}, {"cpusetMems", &into.CPUSetMems, c.CPUSetMems}} {
		switch x, y := *list.into, list.from; {
		case y == "" || x == y:
		case x == "":
			*list.into = y
		default:
			*list.into = narrower(x, y)
			addConflict(list.key, x, y, *list.into)
		}
	}
}

// mergeSwitches switches on what one of the two desires on.
func mergeSwitches(into, c *tick.Cgroup, addConflict func(key string, x, y, holds any)) {
	for _, flag := range []struct {
		key  string
		into **bool
		from *bool
	}{{"cpuIdle", &into.CPUIdle, c.CPUIdle}, {"memoryOOMGroup", &into.MemoryOOMGroup, c.MemoryOOMGroup}, {"memoryUsePriorityOOM", &into.MemoryUsePriorityOOM, c.MemoryUsePriorityOOM}} {
		switch x, y := *flag.into, flag.from; {
		case y == nil:
		case x == nil:
			*flag.into = y
		case *x != *y:
			*flag.into = new(true)
			addConflict(flag.key, *x, *y, true)
		}
	}
}

// narrower returns the intersection of two lists, or the shorter one if that is empty, because an empty list would mean all.
func narrower(x, y string) string {
	set, err := cpus.Parse(x)
	if err != nil {
		return y
	}
	other, err := cpus.Parse(y)
	if err != nil {
		return x
	}
	if common := set.Intersection(other); !common.IsEmpty() {
		return common.String()
	}
	if other.Size() < set.Size() {
		return y
	}
	return x
}
