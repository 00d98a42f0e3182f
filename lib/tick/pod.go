package tick

import "slices"

// These are the classes of pods, after the dialects' names are mapped.
const (
	QoSDedicated = "dedicated"
	QoSShared    = "shared"
	QoSReclaimed = "reclaimed"
	QoSSystem    = "system"
)

// These are the sources of a pod's class.
const (
	QoSFromKatalyst    = "katalyst"
	QoSFromKoordinator = "koordinator"
	QoSFromKubernetes  = "kubernetes"
	QoSFromRule        = "rule"
)

// These are the values of [Pod.Missing].
const (
	// MissingCgroup: the cluster has the pod, but its cgroup was not found.
	MissingCgroup = "cgroup"
	// MissingCluster: a pod's cgroup exists, but the cluster does not have the pod.
	MissingCluster = "cluster"
)

// Ended reports whether the pod has ended, so that it no longer uses resources.
func (p *Pod) Ended() bool { return p.Phase == "Succeeded" || p.Phase == "Failed" }

// IsClassUnknown reports whether the pod's class is only assumed, because the cluster does not have the pod. Of a pod that was deleted
// while its cgroup still exists the class stays known.
func (p *Pod) IsClassUnknown() bool {
	switch p.QoSSource {
	case QoSFromKatalyst, QoSFromKoordinator, QoSFromKubernetes:
		return false
	}
	return p.Missing == MissingCluster
}

// IsBatch reports whether the pod runs on what services leave unused.
func (p *Pod) IsBatch() bool { return p.QoS == QoSReclaimed && !p.IsClassUnknown() }

// IsService reports whether the pod is a service: each one that is known not to be batch, of class dedicated, shared or system.
func (p *Pod) IsService() bool { return p.QoS != QoSReclaimed && !p.IsClassUnknown() }

// IsIdle reports whether the pod is known not to use anything: it has no cgroup, or it is a pod of Kubernetes of which no container has
// one. It holds because collect lists each cgroup that may be a container's, with or without its name, and leaves out only the sandbox's
// and those that Kubernetes did not create. A pod without a cluster may be a cgroup without containers.
func (p *Pod) IsIdle() bool {
	runs := func(c Container) bool { return c.Cgroup != "" }
	hasParts := p.Namespace != "" && (p.Cgroup != "" || len(p.Containers) > 0)
	return p.Missing == MissingCgroup || hasParts && !slices.ContainsFunc(p.Containers, runs)
}

// AnnotationEvict is Polder's own annotation of pods: with the value false it protects a pod from eviction, unless the setting opt-out of
// evict names others. collect always passes it on.
const AnnotationEvict = "polder/evict"

// Pod is a pod; on a machine without Kubernetes, a cgroup that the classification rules name.
type Pod struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`

	QoS       string `json:"qos"`
	QoSSource string `json:"qosSource,omitempty"`
	// KubernetesQOS is the class in Kubernetes: Guaranteed, Burstable or BestEffort.
	KubernetesQOS       string `json:"kubernetesQOS,omitempty"`
	Priority            *int64 `json:"priority,omitempty"`
	KoordinatorPriority *int64 `json:"koordinatorPriority,omitempty"`

	// Missing names the side on which the pod does not exist (yet or any more): MissingCgroup or MissingCluster.
	Missing string `json:"missing,omitempty"`
	// OwnerKind is the kind of the object that controls the pod: ReplicaSet, DaemonSet, Node, …
	OwnerKind string `json:"ownerKind,omitempty"`
	// Static means that the pod comes from a file on the node (a mirror pod: a Node owns it); Terminating means that its deletion has begun.
	Static      bool `json:"static,omitempty"`
	Terminating bool `json:"terminating,omitempty"`

	StartTime   string            `json:"startTime,omitempty"`
	Phase       string            `json:"phase,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`

	Requests *Resources `json:"requests,omitempty"`
	Limits   *Resources `json:"limits,omitempty"`

	// Cgroup is the path of the pod's cgroup from the root of the hierarchy, as in "/kubepods/burstable/pod…".
	Cgroup string `json:"cgroup,omitempty"`

	UsageMilliCPU *float64 `json:"usageMilliCPU,omitempty"`
	Load1         *float64 `json:"load1,omitempty"`
	Load5         *float64 `json:"load5,omitempty"`
	Threads       *float64 `json:"threads,omitempty"`
	Memory        *Memory  `json:"memory,omitempty"`
	// CPUPressure, MemoryPressure and IOPressure are the PSI of the pod's cgroup, only on version 2. For reclaimed pods collect
	// does not read those of CPU and I/O.
	CPUPressure    *Pressure `json:"cpuPressure,omitempty"`
	MemoryPressure *Pressure `json:"memoryPressure,omitempty"`
	IOPressure     *Pressure `json:"ioPressure,omitempty"`
	// CPUWaitPermille is how long the pod waited for a CPU, in thousandths of the time since the previous reading (2 s on average). With
	// CPUPressure it is the growth of the "some" total of cpu.pressure: the time in which at least one thread waited, at most 1000.
	// Without it, on version 1 and on version 2 without PSI, it is the sum of the growth of its threads' run delays: 2000 if two threads
	// waited all the time. For reclaimed pods collect does not read it.
	CPUWaitPermille *float64 `json:"cpuWaitPermille,omitempty"`

	// MemoryEvents are those of the pod's cgroup, only on version 2.
	MemoryEvents *MemoryEvents `json:"memoryEvents,omitempty"`

	// IO has the pod's reads and writes on disks, over the last 5 s or more.
	IO *IO `json:"io,omitempty"`

	Containers []Container `json:"containers,omitempty"`
	// Errors are the errors in the pod's own labels, annotations or quantities; the valid parts count.
	Errors []string `json:"errors,omitempty"`
}

// Container is one container of a pod.
type Container struct {
	Name   string `json:"name,omitempty"`
	ID     string `json:"id,omitempty"`
	Cgroup string `json:"cgroup,omitempty"`

	// CPUSetCPUs is the effective CPU list, not the requested one. Like the number of threads it is read every 2 s.
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

// Memory is a cgroup's memory. All fields except the usage may be up to 5 s old if the usage has not changed since.
type Memory struct {
	UsageBytes      *float64 `json:"usageBytes,omitempty"`
	WorkingSetBytes *float64 `json:"workingSetBytes,omitempty"`
	RSSBytes        *float64 `json:"rssBytes,omitempty"`
	CacheBytes      *float64 `json:"cacheBytes,omitempty"`
	// RefaultBytesPerSecond is the memory that was refaulted shortly after it had been reclaimed (workingset_refault), only on version 2.
	RefaultBytesPerSecond *float64 `json:"refaultBytesPerSecond,omitempty"`
}

// NUMABytes is an amount of memory on one NUMA node.
type NUMABytes struct {
	ID    int     `json:"id"`
	Bytes float64 `json:"bytes"`
}
