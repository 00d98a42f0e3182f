package tick

// Names of pools. A dedicated pod's pool is PoolDedicatedPrefix + namespace + "/" + name; any other name is that of a pool of shared
// pods that name it.
const (
	PoolShare           = "share"
	PoolReclaim         = "reclaim"
	PoolReserve         = "reserve"
	PoolDedicatedPrefix = "dedicated/"
)

// Advice is what advise decided.
type Advice struct {
	Policy    string     `json:"policy"`
	Reclaimed *Reclaimed `json:"reclaimed,omitempty"`
	// Mid is what may be offered to pods of Koordinator's mid priority.
	Mid *Reclaimed `json:"mid,omitempty"`
	// Withdrawn is why nothing is offered any more, so that what was published is withdrawn at once; empty otherwise. An advice without
	// Reclaimed and without this leaves the offer as it is.
	Withdrawn string   `json:"withdrawn,omitempty"`
	Pools     []Pool   `json:"pools,omitempty"`
	Cgroups   []Cgroup `json:"cgroups,omitempty"`
	// Fallback is the desired state when no advice comes any more: the reclaimed side at its floor.
	Fallback []Cgroup `json:"fallback,omitempty"`
	// Resctrl are the desired groups of /sys/fs/resctrl; those that are not named are left alone.
	Resctrl []ResctrlGroup `json:"resctrl,omitempty"`
	// Network is the desired shaping of the uplinks, which isolate --only network applies; nil where nothing is advised for it.
	Network *Network `json:"network,omitempty"`
	// MemoryReclaim is memory to reclaim once; nil where there is none.
	MemoryReclaim *MemoryReclaim `json:"memoryReclaim,omitempty"`
	// BatchStarved reports whether batch pods that are in a class below the services' get less than their floor on a full machine; nil where
	// there are none, or that is not known.
	BatchStarved *bool `json:"batchStarved,omitempty"`
	// Reasons has one short sentence for each thing that bound the result.
	Reasons []string `json:"reasons,omitempty"`
	// Shadow is what a second policy would have decided. Nothing acts on it.
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

// Reclaimed is what may be offered to reclaimed pods.
type Reclaimed struct {
	MilliCPU    *int64          `json:"milliCPU,omitempty"`
	MemoryBytes *int64          `json:"memoryBytes,omitempty"`
	NUMANodes   []ReclaimedNUMA `json:"numaNodes,omitempty"`
}

// ReclaimedNUMA is a NUMA node's part of what may be offered.
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
	// CPUWeight is cgroup v2's cpu.weight, 1 to 10000. Beside a true CPUIdle it is what holds where the kernel has no idle class.
	CPUWeight       *int64 `json:"cpuWeight,omitempty"`
	CPUIdle         *bool  `json:"cpuIdle,omitempty"`
	MemoryMinBytes  *int64 `json:"memoryMinBytes,omitempty"`
	MemoryLowBytes  *int64 `json:"memoryLowBytes,omitempty"`
	MemoryHighBytes *int64 `json:"memoryHighBytes,omitempty"`
	MemoryMaxBytes  *int64 `json:"memoryMaxBytes,omitempty"`
	// MemoryTighterOnly means that MemoryHighBytes and MemoryMaxBytes count only as far as they are under what the cgroup had before isolate
	// changed it, and MemoryMinBytes and MemoryLowBytes only as far as they are over that: what kubelet or an administrator set is neither
	// widened nor taken back.
	MemoryTighterOnly bool `json:"memoryTighterOnly,omitempty"`
	// MemoryOOMGroup is memory.oom.group: the OOM killer ends all or none.
	MemoryOOMGroup *bool `json:"memoryOOMGroup,omitempty"`
	// Only the kernels of Anolis and Alibaba Cloud Linux have files for the following: asynchronous reclaim begins at so many percent
	// of the limit, and ends so many permille lower; the node's watermarks are moved by so many percent for the cgroup; the OOM
	// killer's priority, 0 to 12, and whether it counts below the cgroup.
	MemoryWmarkRatioPercent  *int64 `json:"memoryWmarkRatioPercent,omitempty"`
	MemoryWmarkScalePermille *int64 `json:"memoryWmarkScalePermille,omitempty"`
	MemoryWmarkMinAdjPercent *int64 `json:"memoryWmarkMinAdjPercent,omitempty"`
	MemoryPriority           *int64 `json:"memoryPriority,omitempty"`
	MemoryUsePriorityOOM     *bool  `json:"memoryUsePriorityOOM,omitempty"`
	// IOWeight is cgroup v2's default io.weight, 1 to 10000; [Unlimited] is what the cgroup had before isolate changed it.
	IOWeight *int64 `json:"ioWeight,omitempty"`
	// IOMax limits what is read and written on single disks. A limit counts only as far as it is under what the cgroup had before isolate
	// changed it. On version 1 it holds for the processes of the cgroup itself, not for those below.
	IOMax []DiskLimit `json:"ioMax,omitempty"`
	// IOCost has the kernel share disks by what reads and writes cost, so that IOWeight counts. It is the root's alone ("/"), which takes no
	// other key, and version 2's.
	IOCost []DiskCost `json:"ioCost,omitempty"`
}

// DiskCost is io.cost.qos and io.cost.model of one disk (Documentation/admin-guide/cgroup-v2.rst). What is not set the kernel chooses where
// nothing is, and keeps where something is.
type DiskCost struct {
	// Disk is a name of /sys/block, a mount point of something on the disk, or [AllDisks].
	Disk string `json:"disk"`
	// Enabled reports whether the disk is shared so; nil is what there was before isolate changed it, of the model too.
	Enabled *bool `json:"enabled,omitempty"`
	// The percentile of reads, or writes, that shall not take longer than the latency: while more do, all are slowed down.
	ReadPercentile           *float64 `json:"readPercentile,omitempty"`
	ReadLatencyMicroseconds  *float64 `json:"readLatencyMicroseconds,omitempty"`
	WritePercentile          *float64 `json:"writePercentile,omitempty"`
	WriteLatencyMicroseconds *float64 `json:"writeLatencyMicroseconds,omitempty"`
	// MinPercent and MaxPercent bound the pace, as parts of the model's figures.
	MinPercent *float64 `json:"minPercent,omitempty"`
	MaxPercent *float64 `json:"maxPercent,omitempty"`
	// Model is what the disk can do; nil is the kernel's guess, or what there was.
	Model *DiskModel `json:"model,omitempty"`
}

// DiskModel is what a disk can do in a second.
type DiskModel struct {
	ReadBytesPerSecond        int64 `json:"readBytesPerSecond"`
	SequentialReadsPerSecond  int64 `json:"sequentialReadsPerSecond"`
	RandomReadsPerSecond      int64 `json:"randomReadsPerSecond"`
	WriteBytesPerSecond       int64 `json:"writeBytesPerSecond"`
	SequentialWritesPerSecond int64 `json:"sequentialWritesPerSecond"`
	RandomWritesPerSecond     int64 `json:"randomWritesPerSecond"`
}

// AllDisks stands for every disk that has a device behind it and stands on no other: not loop devices, volumes and arrays, whose work
// comes to those. A disk that is named by itself beside it has its own limits alone.
const AllDisks = "all"

// DiskLimit is what a cgroup may read and write on one disk in a second. A limit that is not set stays as it is, and [Unlimited] is what
// the cgroup had before isolate changed it.
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
	// Schemata are the lines that shall hold, as in "L3:0=7;1=7" and "MB:0=100;1=100".
	Schemata []string `json:"schemata,omitempty"`
	// Cgroups are those whose tasks belong into the group, with those below them.
	Cgroups []string `json:"cgroups,omitempty"`
	// IfExists means that a group that is not there is not made. Without schemata such a group is only named, so that it is reported where
	// resctrl is not mounted.
	IfExists bool `json:"ifExists,omitempty"`
}
