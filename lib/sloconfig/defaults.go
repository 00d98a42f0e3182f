package sloconfig

// Defaults are what holds where the ConfigMap is silent: nothing is enabled. Every field that the tools read has a value, but
// those whose absence means something.
func Defaults() Strategies {
	return Strategies{
		From: "defaults",
		Colocation: Colocation{
			Enable:                         ptr(false),
			MetricAggregateDurationSeconds: ptr(int64(300)),
			MetricReportIntervalSeconds:    ptr(int64(60)),
			MetricAggregatePolicy:          &MetricAggregatePolicy{Durations: []string{"5m", "10m", "30m"}},
			MetricMemoryCollectPolicy:      ptr(UsageWithoutPageCache),
			CPUReclaimThresholdPercent:     ptr(int64(60)),
			CPUCalculatePolicy:             ptr(CalculateUsage),
			MemoryReclaimThresholdPercent:  ptr(int64(65)),
			MemoryCalculatePolicy:          ptr(CalculateUsage),
			DegradeTimeMinutes:             ptr(int64(15)),
			UpdateTimeThresholdSeconds:     ptr(int64(300)),
			ResourceDiffThreshold:          ptr(0.1),
			MidCPUThresholdPercent:         ptr(int64(100)),
			MidMemoryThresholdPercent:      ptr(int64(100)),
			MidUnallocatedPercent:          ptr(int64(0)),
			MidReclaimMode:                 ptr(""),
			MidStaticCPUReservedPercent:    ptr(int64(0)),
			MidStaticMemoryReservedPercent: ptr(int64(0)),
		},
		Threshold: Threshold{
			Enable:                          ptr(false),
			CPUSuppressThresholdPercent:     ptr(int64(65)),
			CPUSuppressPolicy:               ptr(SuppressCPUSet),
			MemoryEvictThresholdPercent:     ptr(int64(70)),
			CPUEvictBEUsageThresholdPercent: ptr(int64(90)),
			CPUEvictPolicy:                  ptr(EvictByRealLimit),
		},
		QOS: ResourceQOS{
			LSR: class(95, 20, -25, 100), LS: class(95, 20, -25, 100), BE: class(95, 20, 50, 30), System: class(0, 50, 0, 100),
		},
		Burst: CPUBurst{
			Policy:                     ptr(BurstNone),
			CPUBurstPercent:            ptr(int64(1000)),
			CFSQuotaBurstPercent:       ptr(int64(300)),
			CFSQuotaBurstPeriodSeconds: ptr(int64(-1)),
			SharePoolThresholdPercent:  ptr(int64(50)),
		},
	}
}

// Shipped are the strategies of Koordinator's own manifests, which enable colocation and thresholds: what holds where there is
// neither a cluster nor a file, and somebody asks for the policy all the same.
func Shipped() Strategies {
	s := Defaults()
	s.Colocation.Enable, s.Threshold.Enable = ptr(true), ptr(true)
	return s
}

func class(ratio, scale, adjust, cache int64) *ClassQOS {
	off := func() *bool { return ptr(false) }
	zero := func() *int64 { return ptr(int64(0)) }
	return &ClassQOS{
		CPU: &CPUQOS{Enable: off(), SchedIdle: zero()},
		Memory: &MemoryQOS{Enable: off(), MinLimitPercent: zero(), LowLimitPercent: zero(), ThrottlingPercent: zero(),
			WmarkRatio: &ratio, WmarkScalePermill: &scale, WmarkMinAdj: &adjust, PriorityEnable: zero(), Priority: zero(), OOMKillGroup: zero()},
		Resctrl: &ResctrlQOS{Enable: off(), CATRangeStartPercent: zero(), CATRangeEndPercent: &cache, MBAPercent: ptr(int64(100))},
	}
}

func ptr[T any](v T) *T { return &v }
