// Package sloconfig reads Koordinator's configuration: the ConfigMap slo-controller-config, merged for one node. It is
// pure. Names, units, defaults and the order of merging are Koordinator's (apis/configuration and pkg/util/sloconfig of its
// repository), so that a ConfigMap has the same meaning as there.
package sloconfig

// Strategies are the ConfigMap's settings for one node, merged: the value of the key "koordinator" in sample.config. A nil field
// without a default was not set.
type Strategies struct {
	// From is the ConfigMap, as in "koordinator-system/slo-controller-config", or the file with its name; "defaults" if there is
	// neither.
	From string `json:"from"`
	// Entries are the names of the node entries that were merged, by the ConfigMap's key.
	Entries map[string]string `json:"entries,omitempty"`

	Colocation Colocation  `json:"colocation"`
	Threshold  Threshold   `json:"resourceThreshold"`
	QOS        ResourceQOS `json:"resourceQOS"`
	Burst      CPUBurst    `json:"cpuBurst"`
	System     System      `json:"system"`

	// ColocationDisabled means that the cluster's own strategy has enable false, which no node entry or annotation overrides.
	ColocationDisabled bool `json:"colocationDisabled,omitempty"`
}

// These are the ways to calculate batch resources.
const (
	CalculateUsage           = "usage"
	CalculateRequest         = "request" // only for memory
	CalculateMaxUsageRequest = "maxUsageRequest"
)

// MidReclaimStatic is the mode in which mid resources are a fixed part of the node's.
const MidReclaimStatic = "static"

// These select which of a node's memory counts as used in the NodeMetric.
const (
	UsageWithoutPageCache = "usageWithoutPageCache"
	UsageWithHotPageCache = "usageWithHotPageCache"
	UsageWithPageCache    = "usageWithPageCache"
)

// Colocation is colocation-config: how much of the node is offered, and when that is published.
type Colocation struct {
	Enable                         *bool                  `json:"enable,omitempty"`
	MetricAggregateDurationSeconds *int64                 `json:"metricAggregateDurationSeconds,omitempty"`
	MetricReportIntervalSeconds    *int64                 `json:"metricReportIntervalSeconds,omitempty"`
	MetricAggregatePolicy          *MetricAggregatePolicy `json:"metricAggregatePolicy,omitempty"`
	MetricMemoryCollectPolicy      *string                `json:"metricMemoryCollectPolicy,omitempty"`
	// The reclaim thresholds may be over 100: then the offer exceeds the node's resources.
	CPUReclaimThresholdPercent     *int64   `json:"cpuReclaimThresholdPercent,omitempty"`
	CPUCalculatePolicy             *string  `json:"cpuCalculatePolicy,omitempty"`
	MemoryReclaimThresholdPercent  *int64   `json:"memoryReclaimThresholdPercent,omitempty"`
	MemoryCalculatePolicy          *string  `json:"memoryCalculatePolicy,omitempty"`
	DegradeTimeMinutes             *int64   `json:"degradeTimeMinutes,omitempty"`
	UpdateTimeThresholdSeconds     *int64   `json:"updateTimeThresholdSeconds,omitempty"`
	ResourceDiffThreshold          *float64 `json:"resourceDiffThreshold,omitempty"`
	MidCPUThresholdPercent         *int64   `json:"midCPUThresholdPercent,omitempty"`
	MidMemoryThresholdPercent      *int64   `json:"midMemoryThresholdPercent,omitempty"`
	MidUnallocatedPercent          *int64   `json:"midUnallocatedPercent,omitempty"`
	MidReclaimMode                 *string  `json:"midReclaimMode,omitempty"`
	MidStaticCPUReservedPercent    *int64   `json:"midStaticCPUReservedPercent,omitempty"`
	MidStaticMemoryReservedPercent *int64   `json:"midStaticMemoryReservedPercent,omitempty"`
	BatchCPUThresholdPercent       *int64   `json:"batchCPUThresholdPercent,omitempty"`
	BatchMemoryThresholdPercent    *int64   `json:"batchMemoryThresholdPercent,omitempty"`
}

// MetricAggregatePolicy lists the times over which the NodeMetric aggregates, in Go's format ("5m").
type MetricAggregatePolicy struct {
	Durations []string `json:"durations,omitempty"`
}

// These are the ways to suppress batch pods.
const (
	SuppressCPUSet   = "cpuset"
	SuppressCFSQuota = "cfsQuota"
)

// Against these values the satisfaction of batch pods is measured.
const (
	EvictByRealLimit   = "evictByRealLimit"
	EvictByAllocatable = "evictByAllocatable"
)

// Threshold is resource-threshold-config: suppression and eviction of batch pods.
type Threshold struct {
	Enable                                 *bool   `json:"enable,omitempty"`
	CPUSuppressThresholdPercent            *int64  `json:"cpuSuppressThresholdPercent,omitempty"`
	CPUSuppressMinPercent                  *int64  `json:"cpuSuppressMinPercent,omitempty"`
	CPUSuppressPolicy                      *string `json:"cpuSuppressPolicy,omitempty"`
	MemoryEvictThresholdPercent            *int64  `json:"memoryEvictThresholdPercent,omitempty"`
	MemoryEvictLowerPercent                *int64  `json:"memoryEvictLowerPercent,omitempty"`
	MemoryAllocatableEvictThresholdPercent *int64  `json:"memoryAllocatableEvictThresholdPercent,omitempty"`
	MemoryAllocatableEvictLowerPercent     *int64  `json:"memoryAllocatableEvictLowerPercent,omitempty"`
	CPUEvictBESatisfactionUpperPercent     *int64  `json:"cpuEvictBESatisfactionUpperPercent,omitempty"`
	CPUEvictBESatisfactionLowerPercent     *int64  `json:"cpuEvictBESatisfactionLowerPercent,omitempty"`
	CPUEvictBEUsageThresholdPercent        *int64  `json:"cpuEvictBEUsageThresholdPercent,omitempty"`
	CPUEvictTimeWindowSeconds              *int64  `json:"cpuEvictTimeWindowSeconds,omitempty"`
	CPUEvictThresholdPercent               *int64  `json:"cpuEvictThresholdPercent,omitempty"`
	CPUEvictLowerPercent                   *int64  `json:"cpuEvictLowerPercent,omitempty"`
	CPUAllocatableEvictThresholdPercent    *int64  `json:"cpuAllocatableEvictThresholdPercent,omitempty"`
	CPUAllocatableEvictLowerPercent        *int64  `json:"cpuAllocatableEvictLowerPercent,omitempty"`
	CPUEvictPolicy                         *string `json:"cpuEvictPolicy,omitempty"`
	EvictEnabledPriorityThreshold          *int64  `json:"evictEnabledPriorityThreshold,omitempty"`
	AllocatableEvictPriorityThreshold      *int64  `json:"allocatableEvictPriorityThreshold,omitempty"`
}

// These are the policies of [CPUBurst].
const (
	BurstNone      = "none"
	BurstCPU       = "cpuBurstOnly"
	BurstCFSQuota  = "cfsQuotaBurstOnly"
	BurstAutomatic = "auto"
)

// CPUBurst is cpu-burst-config, and a pod's annotation koordinator.sh/cpuBurst.
type CPUBurst struct {
	Policy                     *string `json:"policy,omitempty"`
	CPUBurstPercent            *int64  `json:"cpuBurstPercent,omitempty"`
	CFSQuotaBurstPercent       *int64  `json:"cfsQuotaBurstPercent,omitempty"`
	CFSQuotaBurstPeriodSeconds *int64  `json:"cfsQuotaBurstPeriodSeconds,omitempty"`
	SharePoolThresholdPercent  *int64  `json:"sharePoolThresholdPercent,omitempty"`
}

// ResourceQOS is resource-qos-config, with the settings of each class.
type ResourceQOS struct {
	Policies *QOSPolicies `json:"policies,omitempty"`

	LSR    *ClassQOS `json:"lsrClass,omitempty"`
	LS     *ClassQOS `json:"lsClass,omitempty"`
	BE     *ClassQOS `json:"beClass,omitempty"`
	System *ClassQOS `json:"systemClass,omitempty"`
	Root   *RootQOS  `json:"cgroupRoot,omitempty"`
}

// RootQOS is the supported part of the root cgroup's settings: how the kernel shares disks by cost.
type RootQOS struct {
	BlkIO *BlkIOQOS `json:"blkioQOS,omitempty"`
}

// ClassQOS is a class's settings. A part that is nil or not enabled changes nothing.
type ClassQOS struct {
	CPU     *CPUQOS     `json:"cpuQOS,omitempty"`
	Memory  *MemoryQOS  `json:"memoryQOS,omitempty"`
	Resctrl *ResctrlQOS `json:"resctrlQOS,omitempty"`
	BlkIO   *BlkIOQOS   `json:"blkioQOS,omitempty"`
	Network *NetworkQOS `json:"networkQOS,omitempty"`
}

// CPUQOS is a class's CPU scheduling. SchedIdle 1 is cpu.idle (SCHED_IDLE), which mainline kernels have.
type CPUQOS struct {
	Enable    *bool  `json:"enable,omitempty"`
	SchedIdle *int64 `json:"schedIdle,omitempty"`
}

// MemoryQOS is a class's protection and throttling of memory, and a pod's annotation koordinator.sh/memoryQOS beside its policy.
type MemoryQOS struct {
	Enable            *bool  `json:"enable,omitempty"`
	MinLimitPercent   *int64 `json:"minLimitPercent,omitempty"`
	LowLimitPercent   *int64 `json:"lowLimitPercent,omitempty"`
	ThrottlingPercent *int64 `json:"throttlingPercent,omitempty"`
	WmarkRatio        *int64 `json:"wmarkRatio,omitempty"`
	WmarkScalePermill *int64 `json:"wmarkScalePermill,omitempty"`
	WmarkMinAdj       *int64 `json:"wmarkMinAdj,omitempty"`
	PriorityEnable    *int64 `json:"priorityEnable,omitempty"`
	Priority          *int64 `json:"priority,omitempty"`
	OOMKillGroup      *int64 `json:"oomKillGroup,omitempty"`
}

// ResctrlQOS is a class's part of the last-level cache and of the memory bandwidth.
type ResctrlQOS struct {
	Enable               *bool  `json:"enable,omitempty"`
	CATRangeStartPercent *int64 `json:"catRangeStartPercent,omitempty"`
	CATRangeEndPercent   *int64 `json:"catRangeEndPercent,omitempty"`
	MBAPercent           *int64 `json:"mbaPercent,omitempty"`
}

// BlockDevice is the type of a [Block] that is a disk; the others are of LVM and of pods' volumes.
const BlockDevice = "device"

// BlkIOQOS is a class's limits and weight on disks.
type BlkIOQOS struct {
	Enable *bool   `json:"enable,omitempty"`
	Blocks []Block `json:"blocks,omitempty"`
}

// Block is one disk, as in "/dev/sdb".
type Block struct {
	Name string `json:"name,omitempty"`
	Type string `json:"type,omitempty"`
	IO   IOCfg  `json:"ioCfg,omitzero"`
}

// IOCfg are limits per second, where 0 means none, and a weight of 1 to 100. Only for [ResourceQOS.Root] Koordinator also reads the
// latency in microseconds above which a disk counts as saturated, the percentile of reads or writes that is measured, and a model of the
// disk's capacity per second.
type IOCfg struct {
	ReadIOPS        *int64 `json:"readIOPS,omitempty"`
	WriteIOPS       *int64 `json:"writeIOPS,omitempty"`
	ReadBPS         *int64 `json:"readBPS,omitempty"`
	WriteBPS        *int64 `json:"writeBPS,omitempty"`
	IOWeightPercent *int64 `json:"ioWeightPercent,omitempty"`

	ReadLatency         *int64 `json:"readLatency,omitempty"`
	WriteLatency        *int64 `json:"writeLatency,omitempty"`
	ReadLatencyPercent  *int64 `json:"readLatencyPercent,omitempty"`
	WriteLatencyPercent *int64 `json:"writeLatencyPercent,omitempty"`
	EnableUserModel     *bool  `json:"enableUserModel,omitempty"`
	ModelReadBPS        *int64 `json:"modelReadBPS,omitempty"`
	ModelWriteBPS       *int64 `json:"modelWriteBPS,omitempty"`
	ModelReadSeqIOPS    *int64 `json:"modelReadSeqIOPS,omitempty"`
	ModelWriteSeqIOPS   *int64 `json:"modelWriteSeqIOPS,omitempty"`
	ModelReadRandIOPS   *int64 `json:"modelReadRandIOPS,omitempty"`
	ModelWriteRandIOPS  *int64 `json:"modelWriteRandIOPS,omitempty"`
}
