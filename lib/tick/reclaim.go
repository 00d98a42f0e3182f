package tick

// ReclaimClock shows that cgroups have memory.reclaim, and when the sample was taken by the kernel's own clock. That time is the name of
// what is asked for by it: it is never set back, and no two runs of a kernel share it.
type ReclaimClock struct {
	// Boot is the run of the kernel (/proc/sys/kernel/random/boot_id), and BootSeconds the time since its start (/proc/uptime).
	Boot        string  `json:"boot"`
	BootSeconds float64 `json:"bootSeconds"`
}

// MemoryReclaim asks for memory to be taken back once. It is an action and no state: isolate does it once for a run of the kernel and a
// time, and never for a time that is not later than the last one.
type MemoryReclaim struct {
	// Boot and BootSeconds are those of the sample that it was decided by.
	Boot        string         `json:"boot"`
	BootSeconds float64        `json:"bootSeconds"`
	Cgroups     []MemoryToTake `json:"cgroups"`
}

// MemoryToTake is what is taken back of one cgroup and those below it.
type MemoryToTake struct {
	Cgroup string `json:"cgroup"`
	Bytes  int64  `json:"bytes"`
}

// States of a [Reclaim].
const (
	// ReclaimDone: all of it was taken back. ReclaimPart: the kernel found no more, which is no error. ReclaimTimeout: the time for it was
	// over.
	ReclaimDone    = "done"
	ReclaimPart    = "part"
	ReclaimTimeout = "timeout"
	// ReclaimWould: --dry-run. ReclaimSkipped: it was not begun, and will not be: a repeat, too late, or while another one was under way.
	ReclaimWould   = "would"
	ReclaimSkipped = "skipped"
	ReclaimFailed  = "failed"
)

// Reclaim is what became of a [MemoryReclaim] that an earlier tick asked for, or of one that this tick asks for and that was not begun.
type Reclaim struct {
	// BootSeconds is the time that it was asked for by.
	BootSeconds float64 `json:"bootSeconds"`
	// Cgroup is empty where the whole of it was skipped.
	Cgroup string `json:"cgroup,omitempty"`
	// Bytes were asked for, and ReclaimedBytes the kernel took back at least.
	Bytes          int64   `json:"bytes"`
	ReclaimedBytes int64   `json:"reclaimedBytes"`
	Seconds        float64 `json:"seconds"`
	State          string  `json:"state"`
	// Why is why it was skipped or has failed.
	Why string `json:"why,omitempty"`
}

// MemoryEvents counts what became of a cgroup's limits of memory since the cgroup was made, those below it included (memory.events).
type MemoryEvents struct {
	// High counts the times that tasks were slowed down and reclaimed because memory.high was exceeded, and Max those that memory.max was
	// about to be.
	High float64 `json:"high"`
	Max  float64 `json:"max"`
	// OOM counts the allocations that were about to fail, OOMKill the processes that were killed.
	OOM     float64 `json:"oom"`
	OOMKill float64 `json:"oomKill"`
}

// CgroupMemory is what a cgroup above batch pods went through.
type CgroupMemory struct {
	Cgroup string        `json:"cgroup"`
	Events *MemoryEvents `json:"events,omitempty"`
}
