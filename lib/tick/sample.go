package tick

import (
	"slices"
	"strings"
	"time"
)

// Sample is what collect observed.
type Sample struct {
	// PeriodSeconds is collect's configured time between two ticks (--interval), even if this tick is late; nil with --once.
	PeriodSeconds *float64 `json:"periodSeconds,omitempty"`
	// IntervalSeconds is the time that the rates cover; it and the rates are nil if there is no earlier reading.
	IntervalSeconds *float64 `json:"intervalSeconds,omitempty"`
	// DroppedTicks counts the ticks that collect dropped since it started because the next stage was slow.
	DroppedTicks int64 `json:"droppedTicks,omitempty"`

	Topology  *Topology    `json:"topology,omitempty"`
	CPU       *NodeCPU     `json:"cpu,omitempty"`
	Memory    *NodeMemory  `json:"memory,omitempty"`
	NUMANodes []NUMASample `json:"numaNodes,omitempty"`
	IO        *NodeIO      `json:"io,omitempty"`
	Disks     []Disk       `json:"disks,omitempty"`
	Pods      []Pod        `json:"pods,omitempty"`

	// Capacity and Allocatable are the node object's, or the machine's own if there is no cluster. Their reclaimed amounts are
	// those under Koordinator's names when the object was read, which this pipe itself may have published.
	Capacity    *Resources `json:"capacity,omitempty"`
	Allocatable *Resources `json:"allocatable,omitempty"`

	// CgroupVersion is the version, 1 or 2, of the hierarchy that has the cpuset controller.
	CgroupVersion int `json:"cgroupVersion,omitempty"`
	// Partitions are the CPU partitions of cgroup version 2: only the cgroups in them may use their CPUs.
	Partitions []Partition `json:"partitions,omitempty"`
	// Tiers are kubelet's cgroups above the pods' cgroups, by name, as in "besteffort".
	Tiers []Tier `json:"tiers,omitempty"`
	// BatchCgroups are the cgroups above reclaimed pods that contain nothing else, outermost first; never the root, never kubelet's own ones.
	BatchCgroups []string `json:"batchCgroups,omitempty"`
	// BatchMemory has the memory events of the outermost of these, and of kubelet's cgroup of BestEffort pods.
	BatchMemory []CgroupMemory `json:"batchMemory,omitempty"`
	// MemoryReclaim is nil if cgroups have no memory.reclaim: on version 1, and before Linux 5.19.
	MemoryReclaim *ReclaimClock `json:"memoryReclaim,omitempty"`
	// Resctrl describes how the machine's cache and memory bandwidth can be divided; nil if resctrl is not mounted.
	Resctrl *Resctrl `json:"resctrl,omitempty"`
	// Links are the machine's network links, without the loopback.
	Links []Link `json:"links,omitempty"`
	// Kubelet is the state that the node's kubelet keeps on disk; nil if there is none.
	Kubelet *Kubelet `json:"kubelet,omitempty"`

	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Config is the dynamic configuration in force, as resolved for this node.
	Config Raw `json:"config,omitempty"`

	// Agent and Fleet are set only in the ticks of collect fleet, whose Pods are the node's reclaimed ones.
	Agent *Agent `json:"agent,omitempty"`
	Fleet *Fleet `json:"fleet,omitempty"`

	Errors []SourceError `json:"errors,omitempty"`
}

// Kubelet is the state that kubelet's CPU manager keeps on disk.
type Kubelet struct {
	// CPUManagerPolicy is "none" or "static", or the name of a later kubelet's policy.
	CPUManagerPolicy string `json:"cpuManagerPolicy,omitempty"`
	// ExclusiveCPUs are the CPUs that it assigned to containers exclusively: nothing else may run there.
	ExclusiveCPUs string `json:"exclusiveCPUs,omitempty"`
}

// Partition is the root of a CPU partition (cpuset.cpus.partition is root or isolated).
type Partition struct {
	Cgroup string `json:"cgroup"`
	// CPUs are all of its CPUs, including those of the partitions in it.
	CPUs string `json:"cpus"`
}

// These are the names of tiers.
const (
	TierPods       = "kubepods" // above the other two, and the pods of class Guaranteed
	TierBurstable  = "burstable"
	TierBestEffort = "besteffort"
)

// Tier is one of kubelet's cgroups above the pods' cgroups.
type Tier struct {
	Name   string `json:"name"`
	Cgroup string `json:"cgroup"`
	// CPUSetCPUs is the effective CPU list, and CPUMaxMilliCPU the quota, [Unlimited] if there is none.
	CPUSetCPUs     string   `json:"cpusetCPUs,omitempty"`
	CPUMaxMilliCPU *int64   `json:"cpuMaxMilliCPU,omitempty"`
	UsageMilliCPU  *float64 `json:"usageMilliCPU,omitempty"`
	// CPUIdle means that cpu.idle is 1: kubelet then cannot write the cgroup's weight, and exits with an error when it starts.
	CPUIdle bool `json:"cpuIdle,omitempty"`
}

// Tier returns kubelet's cgroup by its tier's name; nil if the sample has none.
func (s *Sample) Tier(name string) *Tier {
	for i := range s.Tiers {
		if t := &s.Tiers[i]; t.Name == name && strings.HasPrefix(t.Cgroup, "/") && len(t.Cgroup) > 1 {
			return t
		}
	}
	return nil
}

// Resctrl is what /sys/fs/resctrl/info contains (Documentation/filesystems/resctrl.rst), with the caches that schemata name.
type Resctrl struct {
	// Vendor is "intel" or "amd": they count memory bandwidth differently.
	Vendor string `json:"vendor,omitempty"`
	// CBMMask is the mask of all ways, in hexadecimal digits, MinCBMBits the fewest that a group may have.
	CBMMask    string `json:"cbmMask,omitempty"`
	MinCBMBits int64  `json:"minCBMBits,omitempty"`
	// CLOSIDs is the number of groups, including the root group.
	CLOSIDs int64 `json:"closids,omitempty"`
	// L3 and MB are the IDs of the domains in the root's schemata; empty if the machine cannot divide that resource.
	L3 []int64 `json:"l3,omitempty"`
	MB []int64 `json:"mb,omitempty"`
	// CDP means that the cache is divided for code and for data (mounted with cdp), MBps that memory bandwidth is in MiB/s
	// (mounted with mba_MBps).
	CDP  bool `json:"cdp,omitempty"`
	MBps bool `json:"mbps,omitempty"`
	// MBMin and MBGranularity are the least share of the bandwidth and its step, in percent.
	MBMin         int64 `json:"mbMinPercent,omitempty"`
	MBGranularity int64 `json:"mbGranularityPercent,omitempty"`
}

// Interval returns the time between two ticks, like [Line.Interval]: the period, or the time that the rates cover; 0 if both are unknown.
func (s *Sample) Interval() time.Duration {
	if s == nil {
		return 0
	}
	for _, v := range []*float64{s.PeriodSeconds, s.IntervalSeconds} {
		if v != nil && *v > 0 && *v < MaxIntervalSeconds {
			return time.Duration(*v * float64(time.Second))
		}
	}
	return 0
}

// IsUnread reports whether collect could not read a source.
func (s *Sample) IsUnread(source string) bool {
	return slices.ContainsFunc(s.Errors, func(e SourceError) bool { return e.Source == source })
}

// IsNodeUnread reports whether the Node object could not be read, and never was: its allocatable, labels and annotations are unknown then,
// which does not mean that it has none. An error beside any of them is about another part of the object, or they are those of the last
// reading.
func (s *Sample) IsNodeUnread() bool {
	return s.Allocatable == nil && s.Labels == nil && s.Annotations == nil && s.IsUnread("node")
}

// SourceError is a part of a source that could not be read this time.
type SourceError struct {
	Source string `json:"source"`
	Error  string `json:"error"`
}

// Topology is the machine's topology. CPU lists are in the kernel's list format ("0-10,12-21") and contain only online CPUs.
type Topology struct {
	CPUs      string         `json:"cpus"`
	Cores     []string       `json:"cores,omitempty"`
	Sockets   []string       `json:"sockets,omitempty"`
	L3        []string       `json:"l3,omitempty"`
	NUMANodes []TopologyNUMA `json:"numaNodes,omitempty"`
}

// TopologyNUMA is a NUMA node; CPUs is empty for a node with only memory.
type TopologyNUMA struct {
	ID          int      `json:"id"`
	CPUs        string   `json:"cpus"`
	MemoryBytes *float64 `json:"memoryBytes,omitempty"`
}

// NodeCPU is the whole node's CPU use and load.
type NodeCPU struct {
	UsageMilliCPU *float64 `json:"usageMilliCPU,omitempty"`
	// StealMilliCPU is the time that the hypervisor of a virtual machine took from CPUs that had something to run. It is not in the use.
	StealMilliCPU *float64  `json:"stealMilliCPU,omitempty"`
	Load1         *float64  `json:"load1,omitempty"`
	Load5         *float64  `json:"load5,omitempty"`
	Load15        *float64  `json:"load15,omitempty"`
	Pressure      *Pressure `json:"pressure,omitempty"`
}

// NodeMemory is the whole node's memory.
type NodeMemory struct {
	TotalBytes        *float64 `json:"totalBytes,omitempty"`
	FreeBytes         *float64 `json:"freeBytes,omitempty"`
	AvailableBytes    *float64 `json:"availableBytes,omitempty"`
	CacheBytes        *float64 `json:"cacheBytes,omitempty"`
	LowWatermarkBytes *float64 `json:"lowWatermarkBytes,omitempty"`
	// WatermarkScaleFactor is the kernel's vm.watermark_scale_factor, in ten-thousandths.
	WatermarkScaleFactor *float64  `json:"watermarkScaleFactor,omitempty"`
	KswapdStealPages     *float64  `json:"kswapdStealPages,omitempty"`
	KswapdStealPerSecond *float64  `json:"kswapdStealPerSecond,omitempty"`
	Pressure             *Pressure `json:"pressure,omitempty"`
}

// Pressure is PSI as the kernel reports it (Documentation/accounting/psi.rst).
type Pressure struct {
	Some *PressureLine `json:"some,omitempty"`
	Full *PressureLine `json:"full,omitempty"`
}

// PressureLine is one line of a pressure file: shares of time in percent, and the total.
type PressureLine struct {
	Avg10             float64 `json:"avg10"`
	Avg60             float64 `json:"avg60"`
	Avg300            float64 `json:"avg300"`
	TotalMicroseconds float64 `json:"totalMicroseconds"`
}

// NUMASample is one NUMA node's use.
type NUMASample struct {
	ID            int         `json:"id"`
	UsageMilliCPU *float64    `json:"usageMilliCPU,omitempty"`
	Memory        *NUMAMemory `json:"memory,omitempty"`
}

// NUMAMemory is one NUMA node's memory.
type NUMAMemory struct {
	TotalBytes *float64 `json:"totalBytes,omitempty"`
	FreeBytes  *float64 `json:"freeBytes,omitempty"`
}

// Resources is an amount of CPU and memory, and of their reclaimed kinds.
type Resources struct {
	MilliCPU             *float64 `json:"milliCPU,omitempty"`
	MemoryBytes          *float64 `json:"memoryBytes,omitempty"`
	ReclaimedMilliCPU    *float64 `json:"reclaimedMilliCPU,omitempty"`
	ReclaimedMemoryBytes *float64 `json:"reclaimedMemoryBytes,omitempty"`
	// MidMilliCPU and MidMemoryBytes are Koordinator's mid resources.
	MidMilliCPU    *float64 `json:"midMilliCPU,omitempty"`
	MidMemoryBytes *float64 `json:"midMemoryBytes,omitempty"`
}
