package tick

// ReclaimClock shows that cgroups have memory.reclaim, and when the sample was taken by the kernel's own clock. That time identifies the
// requests that are decided by the sample: it is never set back, and no two boots share it.
type ReclaimClock struct {
	// Boot is the boot (/proc/sys/kernel/random/boot_id), and BootSeconds the time since its start (/proc/uptime).
	Boot        string  `json:"boot"`
	BootSeconds float64 `json:"bootSeconds"`
}

// MemoryReclaim requests to reclaim memory once. It is an action, not a desired state: isolate carries it out once for a boot and a
// time, and never for a time that is not later than the last one.
type MemoryReclaim struct {
	// Boot and BootSeconds are those of the sample from which it was decided.
	Boot        string         `json:"boot"`
	BootSeconds float64        `json:"bootSeconds"`
	Cgroups     []MemoryToTake `json:"cgroups"`
}

// MemoryToTake is the amount to reclaim from one cgroup and those below it.
type MemoryToTake struct {
	Cgroup string `json:"cgroup"`
	Bytes  int64  `json:"bytes"`
}

// States of a [Reclaim].
const (
	// ReclaimDone: all of it was reclaimed. ReclaimPart: the kernel found no more, which is no error. ReclaimTimeout: the time for it was
	// over.
	ReclaimDone    = "done"
	ReclaimPart    = "part"
	ReclaimTimeout = "timeout"
	// ReclaimWould: --dry-run. ReclaimSkipped: it was not begun, and will not be: a repeat, too late, or during another one.
	ReclaimWould   = "would"
	ReclaimSkipped = "skipped"
	ReclaimFailed  = "failed"
)

// Reclaim is the outcome of a [MemoryReclaim] that an earlier tick requested, or of one that this tick requests and that was not begun.
type Reclaim struct {
	// BootSeconds is the time of the request.
	BootSeconds float64 `json:"bootSeconds"`
	// Cgroup is empty where the whole request was skipped.
	Cgroup string `json:"cgroup,omitempty"`
	// Bytes were requested, and the kernel has reclaimed at least ReclaimedBytes.
	Bytes          int64   `json:"bytes"`
	ReclaimedBytes int64   `json:"reclaimedBytes"`
	Seconds        float64 `json:"seconds"`
	State          string  `json:"state"`
	// Why is the reason why it was skipped or has failed.
	Why string `json:"why,omitempty"`
}

// MemoryEvents counts the events of a cgroup's memory limits since the cgroup was created, including those below it (memory.events).
type MemoryEvents struct {
	// High counts the times that tasks were slowed down and reclaimed because memory.high was exceeded, and Max those that memory.max was
	// about to be.
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
