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
	Pools     []Pool     `json:"pools,omitempty"`
	Cgroups   []Cgroup   `json:"cgroups,omitempty"`
	// Fallback is what should hold when advise falls silent: the reclaimed side at its floor.
	Fallback []Cgroup `json:"fallback,omitempty"`
	// Reasons has one short sentence for each thing that bound the result.
	Reasons []string `json:"reasons,omitempty"`
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

// Cgroup is the wanted state of one cgroup: only the keys that are wanted are set.
type Cgroup struct {
	// Cgroup is the path from the root of the hierarchy, beginning with a slash.
	Cgroup         string `json:"cgroup"`
	CPUSetCPUs     string `json:"cpusetCPUs,omitempty"`
	CPUSetMems     string `json:"cpusetMems,omitempty"`
	CPUMaxMilliCPU *int64 `json:"cpuMaxMilliCPU,omitempty"`
	// CPUWeight is cgroup v2's cpu.weight, 1 to 10000.
	CPUWeight       *int64 `json:"cpuWeight,omitempty"`
	CPUIdle         *bool  `json:"cpuIdle,omitempty"`
	MemoryMinBytes  *int64 `json:"memoryMinBytes,omitempty"`
	MemoryLowBytes  *int64 `json:"memoryLowBytes,omitempty"`
	MemoryHighBytes *int64 `json:"memoryHighBytes,omitempty"`
	MemoryMaxBytes  *int64 `json:"memoryMaxBytes,omitempty"`
	// IOWeight is cgroup v2's default io.weight, 1 to 10000.
	IOWeight *int64 `json:"ioWeight,omitempty"`
}
