package sloconfig

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"polder/lib/fields"
)

// These bound values that Koordinator does not bound, so that no product of them with a machine's size or a second overflows.
const (
	maxPercent = 100_000
	maxSeconds = 100_000_000 // three years
	maxMinutes = 1_000_000
)

// These are the maximum number of aggregates, and the longest one.
const (
	maxDurations = 10
	maxDuration  = 24 * time.Hour
)

// Number is a setting that is a whole number, with its bounds.
type Number struct {
	Name             string
	Value            **int64
	Minimum, Maximum int64
}

// Numbers returns all numbers of m.
func (m *MemoryQOS) Numbers() []Number {
	return []Number{
		{"minLimitPercent", &m.MinLimitPercent, 0, 100},
		{"lowLimitPercent", &m.LowLimitPercent, 0, 100},
		{"throttlingPercent", &m.ThrottlingPercent, 0, 100},
		{"wmarkRatio", &m.WmarkRatio, 0, 100},
		{"wmarkScalePermill", &m.WmarkScalePermill, 1, 1000},
		{"wmarkMinAdj", &m.WmarkMinAdj, -25, 50},
		{"priorityEnable", &m.PriorityEnable, 0, 1},
		{"priority", &m.Priority, 0, 12},
		{"oomKillGroup", &m.OOMKillGroup, 0, 1},
	}
}

// checks collects faults.
type checks struct{ faults []*fault }

func (c *checks) addFault(field, format string, a ...any) {
	c.faults = append(c.faults, &fault{field: field, err: fmt.Errorf(format, a...)})
}

// within checks a number; nil means not set.
func (c *checks) within(field string, v *int64, minimum, maximum int64) {
	if v != nil && (*v < minimum || *v > maximum) {
		c.addFault(field, "%d: want %d to %d", *v, minimum, maximum)
	}
}

func (c *checks) oneOf(field string, v *string, words ...string) {
	if v != nil && !slices.Contains(words, *v) {
		c.addFault(field, "%q: want %s", fields.Clip(*v), strings.Join(words, ", "))
	}
}

// lessThan checks that a lower threshold is under the upper one.
func (c *checks) lessThan(field string, lower, upper *int64, of string) {
	if lower != nil && upper != nil && *lower >= *upper {
		c.addFault(field, "%d: want less than %s, which is %d", *lower, of, *upper)
	}
}

// decodeStrategy decodes a strategy, or a part of one. An empty policy means what it does in Koordinator.
func decodeStrategy[T any](text []byte, own *T) error {
	err := decode(text, own)
	switch s := any(own).(type) {
	case *Colocation:
		for _, p := range []**string{&s.CPUCalculatePolicy, &s.MemoryCalculatePolicy} {
			if *p != nil && **p == "" {
				*p = new(CalculateUsage)
			}
		}
	case *Threshold:
		dropEmpty(&s.CPUSuppressPolicy)
		dropEmpty(&s.CPUEvictPolicy)
	case *CPUBurst:
		dropEmpty(&s.Policy)
	}
	return err
}

// dropEmpty drops a policy that is an empty text: Koordinator omits it when it merges strategies, so it is not set.
func dropEmpty(p **string) {
	if *p != nil && **p == "" {
		*p = nil
	}
}

func (c *Colocation) check() []*fault {
	var v checks
	v.within("metricAggregateDurationSeconds", c.MetricAggregateDurationSeconds, 1, maxSeconds)
	v.within("metricReportIntervalSeconds", c.MetricReportIntervalSeconds, 1, maxSeconds)
	if p := c.MetricAggregatePolicy; p != nil {
		const field = "metricAggregatePolicy.durations"
		if len(p.Durations) > maxDurations {
			v.addFault(field, "%d of them: want %d at most", len(p.Durations), maxDurations)
		}
		for _, text := range p.Durations[:min(len(p.Durations), maxDurations)] {
			if d, err := time.ParseDuration(text); err != nil || d <= 0 || d > maxDuration {
				v.addFault(field, "%q: want a time span up to %s, such as 5m", fields.Clip(text), maxDuration)
			}
		}
	}
	v.oneOf("metricMemoryCollectPolicy", c.MetricMemoryCollectPolicy, UsageWithoutPageCache, UsageWithHotPageCache, UsageWithPageCache)
	v.within("cpuReclaimThresholdPercent", c.CPUReclaimThresholdPercent, 0, maxPercent)
	v.oneOf("cpuCalculatePolicy", c.CPUCalculatePolicy, CalculateUsage, CalculateMaxUsageRequest, CalculateRequest) // the last is usage: see doubts
	v.within("memoryReclaimThresholdPercent", c.MemoryReclaimThresholdPercent, 0, maxPercent)
	v.oneOf("memoryCalculatePolicy", c.MemoryCalculatePolicy, CalculateUsage, CalculateRequest, CalculateMaxUsageRequest)
	v.within("degradeTimeMinutes", c.DegradeTimeMinutes, 1, maxMinutes)
	v.within("updateTimeThresholdSeconds", c.UpdateTimeThresholdSeconds, 1, maxSeconds)
	if d := c.ResourceDiffThreshold; d != nil && (math.IsNaN(*d) || *d <= 0 || *d > maxPercent) {
		v.addFault("resourceDiffThreshold", "%s: want over 0, such as 0.1", strconv.FormatFloat(*d, 'g', -1, 64))
	}
	v.within("midCPUThresholdPercent", c.MidCPUThresholdPercent, 0, 100)
	v.within("midMemoryThresholdPercent", c.MidMemoryThresholdPercent, 0, 100)
	v.within("midUnallocatedPercent", c.MidUnallocatedPercent, 0, 100)
	if c.MidReclaimMode != nil && *c.MidReclaimMode != "" {
		v.oneOf("midReclaimMode", c.MidReclaimMode, MidReclaimStatic)
	}
	v.within("midStaticCPUReservedPercent", c.MidStaticCPUReservedPercent, 0, maxPercent)
	v.within("midStaticMemoryReservedPercent", c.MidStaticMemoryReservedPercent, 0, maxPercent)
	v.within("batchCPUThresholdPercent", c.BatchCPUThresholdPercent, 0, maxPercent)
	v.within("batchMemoryThresholdPercent", c.BatchMemoryThresholdPercent, 0, maxPercent)
	return v.faults
}

// warnings returns values that Koordinator's node resource controller accepts and its webhook does not. A policy that exists only for
// memory has the controller's meaning.
func (c *Colocation) warnings() []*fault {
	var v checks
	if p := c.CPUCalculatePolicy; p != nil && *p == CalculateRequest {
		v.addFault("cpuCalculatePolicy", "%q applies only to memory: %s is used", *p, CalculateUsage)
		c.CPUCalculatePolicy = new(CalculateUsage)
	}
	if d := c.ResourceDiffThreshold; d != nil && *d > 1 {
		v.addFault("resourceDiffThreshold", "%s is over 1: what is offered may more than double before it is published", strconv.FormatFloat(*d, 'g', -1, 64))
	}
	over := func(field string, p *int64) {
		if p != nil && *p > 100 {
			v.addFault(field, "%d is over 100: the threshold of mid resources applies", *p)
		}
	}
	over("midStaticCPUReservedPercent", c.MidStaticCPUReservedPercent)
	over("midStaticMemoryReservedPercent", c.MidStaticMemoryReservedPercent)
	return v.faults
}

func (t *Threshold) check() []*fault {
	var v checks
	v.within("cpuSuppressThresholdPercent", t.CPUSuppressThresholdPercent, 0, 100)
	v.within("cpuSuppressMinPercent", t.CPUSuppressMinPercent, 0, 100)
	v.oneOf("cpuSuppressPolicy", t.CPUSuppressPolicy, SuppressCPUSet, SuppressCFSQuota)
	v.within("memoryEvictThresholdPercent", t.MemoryEvictThresholdPercent, 0, 100)
	v.within("memoryEvictLowerPercent", t.MemoryEvictLowerPercent, 0, 100)
	v.lessThan("memoryEvictLowerPercent", t.MemoryEvictLowerPercent, t.MemoryEvictThresholdPercent, "memoryEvictThresholdPercent")
	v.within("memoryAllocatableEvictThresholdPercent", t.MemoryAllocatableEvictThresholdPercent, 0, maxPercent)
	v.within("memoryAllocatableEvictLowerPercent", t.MemoryAllocatableEvictLowerPercent, 0, maxPercent)
	v.lessThan("memoryAllocatableEvictLowerPercent", t.MemoryAllocatableEvictLowerPercent, t.MemoryAllocatableEvictThresholdPercent, "memoryAllocatableEvictThresholdPercent")
	v.within("cpuEvictBESatisfactionUpperPercent", t.CPUEvictBESatisfactionUpperPercent, 0, 100)
	v.within("cpuEvictBESatisfactionLowerPercent", t.CPUEvictBESatisfactionLowerPercent, 0, 100)
	lower, upper := t.CPUEvictBESatisfactionLowerPercent, t.CPUEvictBESatisfactionUpperPercent
	if lower != nil && upper != nil && *lower > *upper {
		v.addFault("cpuEvictBESatisfactionLowerPercent", "%d: want at most cpuEvictBESatisfactionUpperPercent, which is %d", *lower, *upper)
	}
	v.within("cpuEvictBEUsageThresholdPercent", t.CPUEvictBEUsageThresholdPercent, 0, 100)
	v.within("cpuEvictTimeWindowSeconds", t.CPUEvictTimeWindowSeconds, 1, maxSeconds)
	v.within("cpuEvictThresholdPercent", t.CPUEvictThresholdPercent, 0, 100)
	v.within("cpuEvictLowerPercent", t.CPUEvictLowerPercent, 0, 100)
	v.lessThan("cpuEvictLowerPercent", t.CPUEvictLowerPercent, t.CPUEvictThresholdPercent, "cpuEvictThresholdPercent")
	v.within("cpuAllocatableEvictThresholdPercent", t.CPUAllocatableEvictThresholdPercent, 0, maxPercent)
	v.within("cpuAllocatableEvictLowerPercent", t.CPUAllocatableEvictLowerPercent, 0, maxPercent)
	v.lessThan("cpuAllocatableEvictLowerPercent", t.CPUAllocatableEvictLowerPercent, t.CPUAllocatableEvictThresholdPercent, "cpuAllocatableEvictThresholdPercent")
	v.oneOf("cpuEvictPolicy", t.CPUEvictPolicy, EvictByRealLimit, EvictByAllocatable)
	v.within("evictEnabledPriorityThreshold", t.EvictEnabledPriorityThreshold, math.MinInt32, math.MaxInt32)
	v.within("allocatableEvictPriorityThreshold", t.AllocatableEvictPriorityThreshold, 0, 7999)
	return v.faults
}

func (b *CPUBurst) check() []*fault {
	var v checks
	v.oneOf("policy", b.Policy, BurstNone, BurstCPU, BurstCFSQuota, BurstAutomatic)
	v.within("cpuBurstPercent", b.CPUBurstPercent, 1, 10_000)
	v.within("cfsQuotaBurstPercent", b.CFSQuotaBurstPercent, 100, maxPercent)
	v.within("cfsQuotaBurstPeriodSeconds", b.CFSQuotaBurstPeriodSeconds, -1, maxSeconds)
	v.within("sharePoolThresholdPercent", b.SharePoolThresholdPercent, 0, 100)
	return v.faults
}

// namedClass is a class with its name.
type namedClass struct {
	name string
	*ClassQOS
}

// classes returns the classes that are set.
func (q *ResourceQOS) classes() []namedClass {
	all := []namedClass{{"lsrClass", q.LSR}, {"lsClass", q.LS}, {"beClass", q.BE}, {"systemClass", q.System}}
	return slices.DeleteFunc(all, func(c namedClass) bool { return c.ClassQOS == nil })
}

func (q *ResourceQOS) check() []*fault {
	var v checks
	for _, c := range q.classes() {
		if p := c.CPU; p != nil {
			v.within(c.name+".cpuQOS.schedIdle", p.SchedIdle, 0, 1)
		}
		if m := c.Memory; m != nil {
			for _, n := range m.Numbers() {
				v.within(c.name+".memoryQOS."+n.Name, *n.Value, n.Minimum, n.Maximum)
			}
		}
		if r := c.Resctrl; r != nil {
			in := c.name + ".resctrlQOS."
			v.within(in+"catRangeStartPercent", r.CATRangeStartPercent, 0, 100)
			v.within(in+"catRangeEndPercent", r.CATRangeEndPercent, 0, 100)
			v.lessThan(in+"catRangeStartPercent", r.CATRangeStartPercent, r.CATRangeEndPercent, "catRangeEndPercent")
			v.within(in+"mbaPercent", r.MBAPercent, 1, 100)
		}
		if b := c.BlkIO; b != nil {
			v.blkio(c.name+".blkioQOS.", b)
		}
		if n := c.Network; n != nil {
			v.network(c.name+".networkQOS.", n)
		}
	}
	if q.Root != nil && q.Root.BlkIO != nil {
		v.blkio("cgroupRoot.blkioQOS.", q.Root.BlkIO)
	}
	if q.Policies != nil {
		v.oneOf("policies.netQOSPolicy", q.Policies.NetQOSPolicy, "", NetQOSPolicyTC, NetQOSPolicyTerway)
	}
	return v.faults
}

// unused returns the parts that are enabled, or have a value, without effect: cpu.idle is for batch pods, and resctrl
// has no group for system pods.
func (q *ResourceQOS) unused() (paths []string) {
	for _, c := range q.classes() {
		if p := c.CPU; p != nil && c.ClassQOS != q.BE && (IsTrue(p.Enable) || p.SchedIdle != nil) {
			paths = append(paths, c.name+".cpuQOS")
		}
		if r := c.Resctrl; r != nil && c.ClassQOS == q.System &&
			(IsTrue(r.Enable) || r.CATRangeStartPercent != nil || r.CATRangeEndPercent != nil || r.MBAPercent != nil) {
			paths = append(paths, c.name+".resctrlQOS")
		}
		if b := c.BlkIO; b != nil && c.ClassQOS != q.BE && (IsTrue(b.Enable) || len(b.Blocks) > 0) {
			paths = append(paths, c.name+".blkioQOS")
		} else if b != nil {
			paths = append(paths, b.unused(c.name+".blkioQOS.", false)...)
		}
		paths = append(paths, c.unusedNetwork(q)...)
	}
	if q.Root != nil && q.Root.BlkIO != nil {
		paths = append(paths, q.Root.BlkIO.unused("cgroupRoot.blkioQOS.", true)...)
	}
	return paths
}
