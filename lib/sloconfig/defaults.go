package sloconfig

// Defaults returns the strategies if the ConfigMap sets nothing: nothing is enabled. Every field that the tools read has a value,
// except those whose absence has a meaning.
func Defaults() Strategies {
	return Strategies{
		From: "defaults",
		Colocation: Colocation{
			Enable:                         new(false),
			MetricAggregateDurationSeconds: new(int64(300)),
			MetricReportIntervalSeconds:    new(int64(60)),
			MetricAggregatePolicy:          &MetricAggregatePolicy{Durations: []string{"5m", "10m", "30m"}},
			MetricMemoryCollectPolicy:      new(UsageWithoutPageCache),
			CPUReclaimThresholdPercent:     new(int64(60)),
			CPUCalculatePolicy:             new(CalculateUsage),
			MemoryReclaimThresholdPercent:  new(int64(65)),
			MemoryCalculatePolicy:          new(CalculateUsage),
			DegradeTimeMinutes:             new(int64(15)),
			UpdateTimeThresholdSeconds:     new(int64(300)),
			ResourceDiffThreshold:          new(0.1),
			MidCPUThresholdPercent:         new(int64(100)),
			MidMemoryThresholdPercent:      new(int64(100)),
			MidUnallocatedPercent:          new(int64(0)),
			MidReclaimMode:                 new(""),
			MidStaticCPUReservedPercent:    new(int64(0)),
			MidStaticMemoryReservedPercent: new(int64(0)),
		},
		Threshold: Threshold{
			Enable:                          new(false),
			CPUSuppressThresholdPercent:     new(int64(65)),
			CPUSuppressPolicy:               new(SuppressCPUSet),
			MemoryEvictThresholdPercent:     new(int64(70)),
			CPUEvictBEUsageThresholdPercent: new(int64(90)),
			CPUEvictPolicy:                  new(EvictByRealLimit),
		},
		QOS: ResourceQOS{
			LSR: class(95, 20, -25, 100), LS: class(95, 20, -25, 100), BE: class(95, 20, 50, 30), System: class(0, 50, 0, 100),
		},
		Burst: CPUBurst{
			Policy:                     new(BurstNone),
			CPUBurstPercent:            new(int64(1000)),
			CFSQuotaBurstPercent:       new(int64(300)),
			CFSQuotaBurstPeriodSeconds: new(int64(-1)),
			SharePoolThresholdPercent:  new(int64(50)),
		},
	}
}

// Within returns a setting within bounds, or its default if it is not set.
func Within(v *int64, otherwise, minimum, maximum int64) int64 {
	if v == nil {
		return otherwise
	}
	return min(max(*v, minimum), maximum)
}

// IsTrue reports whether a switch is set, and on.
func IsTrue(on *bool) bool { return on != nil && *on }

// Shipped returns the strategies of Koordinator's own manifests, which enable colocation and thresholds. They are in force if the
// policy is used with neither a cluster nor a file.
func Shipped() Strategies {
	s := Defaults()
	s.Colocation.Enable, s.Threshold.Enable = new(true), new(true)
	return s
}

func class(ratio, scale, adjust, cache int64) *ClassQOS {
	off := func() *bool { return new(false) }
	zero := func() *int64 { return new(int64(0)) }
	return &ClassQOS{
		CPU: &CPUQOS{Enable: off(), SchedIdle: zero()},
		Memory: &MemoryQOS{
			Enable: off(), MinLimitPercent: zero(), LowLimitPercent: zero(), ThrottlingPercent: zero(),
			WmarkRatio: &ratio, WmarkScalePermill: &scale, WmarkMinAdj: &adjust, PriorityEnable: zero(), Priority: zero(), OOMKillGroup: zero(),
		},
		Resctrl: &ResctrlQOS{Enable: off(), CATRangeStartPercent: zero(), CATRangeEndPercent: &cache, MBAPercent: new(int64(100))},
	}
}
