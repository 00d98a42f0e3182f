package tick

import "slices"

// These are names of pools. A dedicated pod's pool is PoolDedicatedPrefix + namespace + "/" + name; any other name is that of a pool
// of shared pods that name it.
const (
	PoolShare           = "share"
	PoolReclaim         = "reclaim"
	PoolReserve         = "reserve"
	PoolDedicatedPrefix = "dedicated/"
)

// GuardStepDisk is the kind of the guard's steps that limit batch's use of disks.
const GuardStepDisk = "disk"

// Advice is what advise decided.
type Advice struct {
	Policy    string     `json:"policy"`
	Reclaimed *Reclaimed `json:"reclaimed,omitempty"`
	// Mid is the offer to pods of Koordinator's mid priority.
	Mid *Reclaimed `json:"mid,omitempty"`
	// Withdrawn is why nothing is offered any more, so that the published offer is withdrawn at once; empty otherwise. An advice
	// without Reclaimed and without Withdrawn leaves the offer unchanged.
	Withdrawn string   `json:"withdrawn,omitempty"`
	Pools     []Pool   `json:"pools,omitempty"`
	Cgroups   []Cgroup `json:"cgroups,omitempty"`
	// Fallback is the desired state when no more advice comes: the reclaimed side at its floor.
	Fallback []Cgroup `json:"fallback,omitempty"`
	// Resctrl are the desired groups of /sys/fs/resctrl; other groups are not changed.
	Resctrl []ResctrlGroup `json:"resctrl,omitempty"`
	// Network is the desired shaping of the uplinks, which isolate --only network applies; nil if there is no advice for it.
	Network *Network `json:"network,omitempty"`
	// MemoryReclaim is memory to reclaim once; nil if there is none.
	MemoryReclaim *MemoryReclaim `json:"memoryReclaim,omitempty"`
	// ReschedOnWait means that a CPU is to be rescheduled as soon as batch in the idle class begins to run there while another
	// task waits for it. Where that is not possible, ReschedIntervalSeconds applies.
	ReschedOnWait bool `json:"reschedOnWait,omitempty"`
	// ReschedIntervalSeconds is how often each CPU is to be rescheduled; nil or 0 means that the kernel's timer interrupt suffices.
	ReschedIntervalSeconds *float64 `json:"reschedIntervalSeconds,omitempty"`
	// BatchStarved reports whether batch pods in a scheduling class below the services' get less than their floor on a full machine, and
	// less than half of the time in which their threads are runnable, where that is known; nil if there are none, or if their use is unknown.
	BatchStarved *bool `json:"batchStarved,omitempty"`
	// GuardSteps are the kinds of the guard's steps in force, oldest first, as in "CPUs", "quota": what it takes from batch while services
	// wait (docs/guard.md). Empty if there is no step.
	GuardSteps []string `json:"guardSteps,omitempty"`
	// Reasons has one short sentence for each limit that determined the result.
	Reasons []string `json:"reasons,omitempty"`
	// Shadow is the decision of a second policy. No tool acts on it.
	Shadow *Shadow `json:"shadow,omitempty"`
}

// Shadow is the part of a second policy's advice that is compared with the first one's.
type Shadow struct {
	Policy    string     `json:"policy"`
	Reclaimed *Reclaimed `json:"reclaimed,omitempty"`
	Withdrawn string     `json:"withdrawn,omitempty"`
	Pools     []Pool     `json:"pools,omitempty"`
	Reasons   []string   `json:"reasons,omitempty"`
}

// Reclaimed is the offer to reclaimed pods.
type Reclaimed struct {
	MilliCPU    *int64          `json:"milliCPU,omitempty"`
	MemoryBytes *int64          `json:"memoryBytes,omitempty"`
	NUMANodes   []ReclaimedNUMA `json:"numaNodes,omitempty"`
}

// Clone returns a copy whose amounts can be replaced; nil stays nil.
func (r *Reclaimed) Clone() *Reclaimed {
	if r == nil {
		return nil
	}
	clone := *r
	clone.NUMANodes = slices.Clone(r.NUMANodes)
	return &clone
}

// ReclaimedNUMA is a NUMA node's part of the offer.
type ReclaimedNUMA struct {
	ID          int    `json:"id"`
	MilliCPU    *int64 `json:"milliCPU,omitempty"`
	MemoryBytes *int64 `json:"memoryBytes,omitempty"`
}

// Pool is a set of CPUs that a class of pods runs on.
type Pool struct {
	Name string `json:"name"`
	CPUs string `json:"cpus"`
}

// Unlimited in a Max or High key of a [Cgroup] means no limit.
const Unlimited = -1

// Cgroup is the desired state of one cgroup: only the keys that are desired are set.
type Cgroup struct {
	// Cgroup is the path from the root of the hierarchy, beginning with a slash.
	Cgroup         string `json:"cgroup"`
	CPUSetCPUs     string `json:"cpusetCPUs,omitempty"`
	CPUSetMems     string `json:"cpusetMems,omitempty"`
	CPUMaxMilliCPU *int64 `json:"cpuMaxMilliCPU,omitempty"`
	// CPUBurstMilliCPU is the time that may be accumulated for a burst, in milli-CPU of one period (cpu.max.burst): 500 in a period of
	// 100 ms are 50 ms. The kernel accepts no more than the quota.
	CPUBurstMilliCPU *int64 `json:"cpuBurstMilliCPU,omitempty"`
	// CPUWeight is cgroup v2's cpu.weight, 1 to 10000. Beside a true CPUIdle it applies if the kernel has no idle class.
	CPUWeight *int64 `json:"cpuWeight,omitempty"`
	// CPUMaxTighterOnly means that CPUMaxMilliCPU applies only if it is lower than the cgroup's original quota.
	CPUMaxTighterOnly bool `json:"cpuMaxTighterOnly,omitempty"`
	// CPUWeightFactor multiplies the cgroup's original weight (cpu.weight, or cpu.shares of version 1), up to the kernel's largest; 1
	// means the original one. It has no effect beside CPUWeight, and isolate needs a journal for it, which has the original value.
	CPUWeightFactor *int64 `json:"cpuWeightFactor,omitempty"`
	CPUIdle         *bool  `json:"cpuIdle,omitempty"`
	MemoryMinBytes  *int64 `json:"memoryMinBytes,omitempty"`
	MemoryLowBytes  *int64 `json:"memoryLowBytes,omitempty"`
	MemoryHighBytes *int64 `json:"memoryHighBytes,omitempty"`
	MemoryMaxBytes  *int64 `json:"memoryMaxBytes,omitempty"`
	// MemoryTighterOnly means that MemoryHighBytes and MemoryMaxBytes apply only if they are lower than the cgroup's original values, and
	// MemoryMinBytes and MemoryLowBytes only if they are higher: isolate neither relaxes nor reverts what kubelet or an administrator
	// set.
	MemoryTighterOnly bool `json:"memoryTighterOnly,omitempty"`
	// MemoryOOMGroup is memory.oom.group: the OOM killer kills all processes or none.
	MemoryOOMGroup *bool `json:"memoryOOMGroup,omitempty"`
	// Only the kernels of Anolis and Alibaba Cloud Linux have files for the following: the percentage of the limit at which
	// asynchronous reclaim begins, and by how many permille lower it ends; the percentage by which the node's watermarks are moved
	// for the cgroup; the OOM killer's priority, 0 to 12, and whether it applies below the cgroup.
	MemoryWmarkRatioPercent  *int64 `json:"memoryWmarkRatioPercent,omitempty"`
	MemoryWmarkScalePermille *int64 `json:"memoryWmarkScalePermille,omitempty"`
	MemoryWmarkMinAdjPercent *int64 `json:"memoryWmarkMinAdjPercent,omitempty"`
	MemoryPriority           *int64 `json:"memoryPriority,omitempty"`
	MemoryUsePriorityOOM     *bool  `json:"memoryUsePriorityOOM,omitempty"`
	// IOWeight is cgroup v2's default io.weight, 1 to 10000; [Unlimited] means the original value.
	IOWeight *int64 `json:"ioWeight,omitempty"`
	// IOMax limits reads and writes on single disks. A limit applies only if it is lower than the original value. On version 1 it applies
	// to the processes of the cgroup itself, not to those of its descendants.
	IOMax []DiskLimit `json:"ioMax,omitempty"`
	// IOCost makes the kernel share disks by the cost of reads and writes, so that IOWeight has effect. Only the root ("/") may have it,
	// which accepts no other key, and only on version 2.
	IOCost []DiskCost `json:"ioCost,omitempty"`
}

// DiskCost is io.cost.qos and io.cost.model of one disk (Documentation/admin-guide/cgroup-v2.rst). For a value that is not set the kernel
// keeps the present one, or chooses one if there is none.
type DiskCost struct {
	// Disk is a name of /sys/block, a mount point of something on the disk, or [AllDisks].
	Disk string `json:"disk"`
	// Enabled reports whether the disk is shared this way; nil means the original state, also of the model.
	Enabled *bool `json:"enabled,omitempty"`
	// ReadPercentile percent of the reads should take at most the latency (writes likewise): otherwise the kernel slows all down.
	ReadPercentile           *float64 `json:"readPercentile,omitempty"`
	ReadLatencyMicroseconds  *float64 `json:"readLatencyMicroseconds,omitempty"`
	WritePercentile          *float64 `json:"writePercentile,omitempty"`
	WriteLatencyMicroseconds *float64 `json:"writeLatencyMicroseconds,omitempty"`
	// MinPercent and MaxPercent bound the pace, as percentages of the model's figures.
	MinPercent *float64 `json:"minPercent,omitempty"`
	MaxPercent *float64 `json:"maxPercent,omitempty"`
	// Model is what the disk can do; nil means the kernel's estimate, or the original model.
	Model *DiskModel `json:"model,omitempty"`
}

// DiskModel is a disk's performance per second.
type DiskModel struct {
	ReadBytesPerSecond        int64 `json:"readBytesPerSecond"`
	SequentialReadsPerSecond  int64 `json:"sequentialReadsPerSecond"`
	RandomReadsPerSecond      int64 `json:"randomReadsPerSecond"`
	WriteBytesPerSecond       int64 `json:"writeBytesPerSecond"`
	SequentialWritesPerSecond int64 `json:"sequentialWritesPerSecond"`
	RandomWritesPerSecond     int64 `json:"randomWritesPerSecond"`
}

// AllDisks stands for every disk that is a real device and not built on other disks: not loop devices, volumes and arrays, whose
// requests reach the real disks. A disk that is also named itself has only its own limits.
const AllDisks = "all"

// DiskLimit is the limit of a cgroup's reads and writes on one disk per second. A limit that is not set does not change, and [Unlimited]
// means the original value.
type DiskLimit struct {
	// Disk is a name of /sys/block, a mount point of something on the disk, or [AllDisks].
	Disk                string `json:"disk"`
	ReadBytesPerSecond  *int64 `json:"readBytesPerSecond,omitempty"`
	WriteBytesPerSecond *int64 `json:"writeBytesPerSecond,omitempty"`
	ReadsPerSecond      *int64 `json:"readsPerSecond,omitempty"`
	WritesPerSecond     *int64 `json:"writesPerSecond,omitempty"`
}

// ResctrlGroup is the desired state of one group of /sys/fs/resctrl (Documentation/filesystems/resctrl.rst).
type ResctrlGroup struct {
	// Group is its name: one path element, as in "BE".
	Group string `json:"group"`
	// Schemata are the desired lines, as in "L3:0=7;1=7" and "MB:0=100;1=100".
	Schemata []string `json:"schemata,omitempty"`
	// Cgroups are the cgroups whose tasks, and those of their descendants, belong into the group.
	Cgroups []string `json:"cgroups,omitempty"`
	// IfExists means that a missing group is not created. Without schemata such a group is only named, so that it is reported if resctrl
	// is not mounted.
	IfExists bool `json:"ifExists,omitempty"`
}
