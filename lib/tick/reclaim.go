package tick

// ReclaimClock means that cgroups have memory.reclaim; it is the time of the sample by the kernel's own clock. That time identifies the
// requests based on the sample: it is never set back, and no two boots share it.
type ReclaimClock struct {
	// Boot is the boot ID (/proc/sys/kernel/random/boot_id), and BootSeconds the time since boot (/proc/uptime).
	Boot        string  `json:"boot"`
	BootSeconds float64 `json:"bootSeconds"`
}

// MemoryReclaim requests one reclaim of memory. It is an action, not a desired state: isolate executes it once per boot and time,
// and never for a time that is not later than the last one.
type MemoryReclaim struct {
	// Boot and BootSeconds are those of the sample on which the request is based.
	Boot        string          `json:"boot"`
	BootSeconds float64         `json:"bootSeconds"`
	Cgroups     []CgroupReclaim `json:"cgroups"`
}

// CgroupReclaim is the amount to reclaim from one cgroup and its descendants.
type CgroupReclaim struct {
	Cgroup string `json:"cgroup"`
	Bytes  int64  `json:"bytes"`
}

// These are the states of a [Reclaim].
const (
	// ReclaimDone: all of it was reclaimed. ReclaimPartial: the kernel found no more, which is no error. ReclaimTimeout: the time ran out.
	ReclaimDone    = "done"
	ReclaimPartial = "part"
	ReclaimTimeout = "timeout"
	// ReclaimDryRun: --dry-run. ReclaimSkipped: it did not begin, and will not: it was a repeat, too late, or during another one.
	ReclaimDryRun  = "would"
	ReclaimSkipped = "skipped"
	ReclaimFailed  = "failed"
)

// Reclaim is the result of a [MemoryReclaim] of an earlier tick, or of one of this tick that did not begin.
type Reclaim struct {
	// BootSeconds is the time of the request.
	BootSeconds float64 `json:"bootSeconds"`
	// Cgroup is empty if the whole request was skipped.
	Cgroup string `json:"cgroup,omitempty"`
	// Bytes were requested, and the kernel has reclaimed at least ReclaimedBytes.
	Bytes          int64   `json:"bytes"`
	ReclaimedBytes int64   `json:"reclaimedBytes"`
	Seconds        float64 `json:"seconds"`
	State          string  `json:"state"`
	// Reason is the reason why it was skipped or failed.
	Reason string `json:"why,omitempty"`
}

// MemoryEvents counts the events of a cgroup's memory limits since its creation, including its descendants (memory.events).
type MemoryEvents struct {
	// High counts how often tasks were throttled and reclaimed because memory.high was exceeded, and Max how often usage was about to
	// exceed memory.max.
	High float64 `json:"high"`
	Max  float64 `json:"max"`
	// OOM counts the allocations that were about to fail, OOMKill the processes that were killed.
	OOM     float64 `json:"oom"`
	OOMKill float64 `json:"oomKill"`
}

// CgroupMemory has the memory events of a cgroup above batch pods.
type CgroupMemory struct {
	Cgroup string        `json:"cgroup"`
	Events *MemoryEvents `json:"events,omitempty"`
}
