// Package tick is the contract between the tools: one line of JSON for one node at one instant.
//
// A [Tick] has one section a tool. A tool reads lines with a [Reader], decodes the sections that it needs, and
// splices its own section into the line with [Line.Splice]; every other byte is forwarded as it came. The JSON Schema
// of the contract is [Schema].
//
// Quantities carry their unit in their name. A pointer is nil where the value could not be read: missing is not zero.
package tick

import "time"

// Version is the value of a tick's "v".
const Version = 1

// Names of the sections, which are also the JSON keys.
const (
	SectionSample    = "sample"
	SectionAdvice    = "advice"
	SectionIsolation = "isolation"
	SectionEviction  = "eviction"
	SectionReport    = "report"
)

// Tick is all that was seen, decided and done on one node at one instant.
type Tick struct {
	V    int       `json:"v"`
	Node string    `json:"node"`
	Time time.Time `json:"time"`

	Sample    *Sample    `json:"sample,omitempty"`
	Advice    *Advice    `json:"advice,omitempty"`
	Isolation *Isolation `json:"isolation,omitempty"`
	Eviction  *Eviction  `json:"eviction,omitempty"`
	Report    *Report    `json:"report,omitempty"`
}

// Sample is what collect saw.
type Sample struct {
	// IntervalSeconds is the time that the rates cover; nil where there is no earlier reading, and so are the rates.
	IntervalSeconds *float64 `json:"intervalSeconds,omitempty"`
	// DroppedTicks counts the ticks that collect gave up since it started because the next stage was slow.
	DroppedTicks int64 `json:"droppedTicks,omitempty"`

	Topology  *Topology    `json:"topology,omitempty"`
	CPU       *NodeCPU     `json:"cpu,omitempty"`
	Memory    *NodeMemory  `json:"memory,omitempty"`
	NUMANodes []NUMASample `json:"numaNodes,omitempty"`
	Pods      []Pod        `json:"pods,omitempty"`

	// Capacity and Allocatable are the node object's, or the machine's own where there is no cluster.
	Capacity    *Resources `json:"capacity,omitempty"`
	Allocatable *Resources `json:"allocatable,omitempty"`

	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Config is the dynamic configuration in force, as resolved for this node.
	Config Raw `json:"config,omitempty"`

	Errors []SourceError `json:"errors,omitempty"`
}

// SourceError says what could not be read this time.
type SourceError struct {
	Source string `json:"source"`
	Error  string `json:"error"`
}

// Topology is the machine's shape. CPU lists are in the kernel's list format ("0-10,12-21") and name online CPUs alone.
type Topology struct {
	CPUs      string         `json:"cpus"`
	Cores     []string       `json:"cores,omitempty"`
	Sockets   []string       `json:"sockets,omitempty"`
	L3        []string       `json:"l3,omitempty"`
	NUMANodes []TopologyNUMA `json:"numaNodes,omitempty"`
}

// TopologyNUMA is a NUMA node; CPUs is empty for a node of memory alone.
type TopologyNUMA struct {
	ID          int      `json:"id"`
	CPUs        string   `json:"cpus"`
	MemoryBytes *float64 `json:"memoryBytes,omitempty"`
}

// NodeCPU is the whole node's CPU use and load.
type NodeCPU struct {
	UsageMilliCPU *float64  `json:"usageMilliCPU,omitempty"`
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

// Pressure is PSI as the kernel gives it (Documentation/accounting/psi.rst).
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
}

// Classes of pods, after the dialects' names are mapped.
const (
	QoSDedicated = "dedicated"
	QoSShared    = "shared"
	QoSReclaimed = "reclaimed"
	QoSSystem    = "system"
)

// Sources of a pod's class.
const (
	QoSFromKatalyst    = "katalyst"
	QoSFromKoordinator = "koordinator"
	QoSFromKubernetes  = "kubernetes"
	QoSFromRule        = "rule"
)

// Pod is a pod; on a machine without Kubernetes, a cgroup that the classification rules name.
type Pod struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`

	QoS                 string `json:"qos"`
	QoSSource           string `json:"qosSource,omitempty"`
	Priority            *int64 `json:"priority,omitempty"`
	KoordinatorPriority *int64 `json:"koordinatorPriority,omitempty"`

	StartTime   string            `json:"startTime,omitempty"`
	Phase       string            `json:"phase,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`

	Requests *Resources `json:"requests,omitempty"`
	Limits   *Resources `json:"limits,omitempty"`

	// Cgroup is the pod's cgroup from the root of the hierarchy, as in "/kubepods/burstable/pod…".
	Cgroup string `json:"cgroup,omitempty"`

	UsageMilliCPU *float64 `json:"usageMilliCPU,omitempty"`
	Load1         *float64 `json:"load1,omitempty"`
	Load5         *float64 `json:"load5,omitempty"`
	Threads       *float64 `json:"threads,omitempty"`
	Memory        *Memory  `json:"memory,omitempty"`

	Containers []Container `json:"containers,omitempty"`
}

// Container is one container of a pod.
type Container struct {
	Name   string `json:"name,omitempty"`
	ID     string `json:"id,omitempty"`
	Cgroup string `json:"cgroup,omitempty"`

	// CPUSetCPUs is the CPU list in force, not the one asked for.
	CPUSetCPUs string `json:"cpusetCPUs,omitempty"`

	UsageMilliCPU *float64 `json:"usageMilliCPU,omitempty"`
	// Load1 and Load5 are the number of runnable threads, averaged as the kernel averages its own load: sampled
	// every 5 s, decaying over 1 and 5 minutes.
	Load1            *float64    `json:"load1,omitempty"`
	Load5            *float64    `json:"load5,omitempty"`
	Threads          *float64    `json:"threads,omitempty"`
	ThrottledPercent *float64    `json:"throttledPercent,omitempty"`
	Memory           *Memory     `json:"memory,omitempty"`
	NUMAMemory       []NUMABytes `json:"numaMemory,omitempty"`
	Requests         *Resources  `json:"requests,omitempty"`
	Limits           *Resources  `json:"limits,omitempty"`
}

// Memory is a cgroup's memory.
type Memory struct {
	UsageBytes      *float64 `json:"usageBytes,omitempty"`
	WorkingSetBytes *float64 `json:"workingSetBytes,omitempty"`
	RSSBytes        *float64 `json:"rssBytes,omitempty"`
	CacheBytes      *float64 `json:"cacheBytes,omitempty"`
}

// NUMABytes is an amount of memory on one NUMA node.
type NUMABytes struct {
	ID    int     `json:"id"`
	Bytes float64 `json:"bytes"`
}

// Names of pools. A dedicated pod's pool is PoolDedicatedPrefix + namespace + "/" + name.
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

// Isolation is what isolate did.
type Isolation struct {
	// Applied counts the values written this tick, Unchanged those that were as wanted already.
	Applied   int `json:"applied"`
	Unchanged int `json:"unchanged"`
	// Missing counts the cgroups of the advice that do not exist (any more).
	Missing int              `json:"missing,omitempty"`
	Writes  []Write          `json:"writes,omitempty"`
	Errors  []IsolationError `json:"errors,omitempty"`
	DryRun  bool             `json:"dryRun,omitempty"`
	// Fallback says that the advice's fallback was applied since the tick before, because none came for --stale-after.
	Fallback bool `json:"fallback,omitempty"`
	// Refused says why nothing was done with this tick: too old, or of another node.
	Refused string `json:"refused,omitempty"`
	// DroppedTicks counts the ticks that were not passed on since the start because the next stage was slow.
	DroppedTicks int64 `json:"droppedTicks,omitempty"`
}

// Write is one changed value of one cgroup. Key is the name in [Cgroup] ("cpusetCPUs"); Old and New are the file's text.
type Write struct {
	Cgroup string `json:"cgroup"`
	Key    string `json:"key"`
	Old    string `json:"old"`
	New    string `json:"new"`
}

// IsolationError is one value that could not be made true.
type IsolationError struct {
	Cgroup string `json:"cgroup"`
	Key    string `json:"key,omitempty"`
	Error  string `json:"error"`
}

// Eviction is what evict measured and decided.
type Eviction struct {
	Pressures []PressureFinding `json:"pressures,omitempty"`
	Taints    []Taint           `json:"taints,omitempty"`
	Evictions []PodEviction     `json:"evictions,omitempty"`
	DryRun    bool              `json:"dryRun,omitempty"`
	// Refused says why nothing was done with this tick: too old, or of another node.
	Refused string `json:"refused,omitempty"`
	// Errors says which inputs a rule missed, or what in the section could not be decided.
	Errors []string `json:"errors,omitempty"`
	// DroppedTicks counts the ticks that were not passed on since the start because the next stage was slow.
	DroppedTicks int64 `json:"droppedTicks,omitempty"`
}

// PressureFinding is one rule's measure this tick.
type PressureFinding struct {
	Rule      string  `json:"rule"`
	Scope     string  `json:"scope"`
	Value     float64 `json:"value"`
	Threshold float64 `json:"threshold"`
	// Since is when the threshold was first met without a break; empty where it is not met.
	Since string `json:"since,omitempty"`
	Met   bool   `json:"met"`
	// Hard says that a met threshold calls for an eviction, not for a taint alone.
	Hard bool `json:"hard,omitempty"`
}

// Taint should be on the node now.
type Taint struct {
	Key    string `json:"key"`
	Effect string `json:"effect"`
}

// States of an eviction.
const (
	StateWouldEvict = "wouldEvict"
	StateRequested  = "requested"
	StateCreated    = "created"
	StateSucceeded  = "succeeded"
	StateFailed     = "failed"
)

// PodEviction is one pod's eviction.
type PodEviction struct {
	UID                string `json:"uid"`
	Namespace          string `json:"namespace,omitempty"`
	Name               string `json:"name"`
	Rule               string `json:"rule"`
	Scope              string `json:"scope"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
	State              string `json:"state"`
	Error              string `json:"error,omitempty"`
}

// States of a report's target.
const (
	TargetWritten   = "written"
	TargetUnchanged = "unchanged"
	TargetPending   = "pending"
	TargetFailed    = "failed"
)

// Report is what report did.
type Report struct {
	Targets []Target `json:"targets"`
	// Refused says why nothing was reported of this tick: too old, or of another node.
	Refused string `json:"refused,omitempty"`
}

// Target is one place that is reported to.
type Target struct {
	Target  string `json:"target"`
	State   string `json:"state"`
	Changed bool   `json:"changed,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Ptr returns a pointer to v: the contract's optional values are pointers.
func Ptr[T any](v T) *T { return &v }
