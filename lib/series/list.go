package series

func gauge(name, help string, labels ...string) *Metric {
	return &Metric{Name: name, Kind: Gauge, Help: help, Labels: append([]string{"node"}, labels...)}
}

func counter(name, help string, labels ...string) *Metric {
	return &Metric{Name: name, Kind: Counter, Help: help, Labels: append([]string{"node"}, labels...)}
}

var (
	tickTimestamp = gauge("polder_tick_timestamp_seconds", "Time of the newest tick that a tool has read.", "tool")
	ticks         = counter("polder_ticks_total", "Ticks that a tool has read; for collect, written.", "tool")
	droppedTicks  = counter("polder_dropped_ticks_total", "Ticks dropped because the next stage was slow.", "tool")
	errorsTotal   = counter("polder_errors_total", "Errors in the tools' sections of the ticks.", "tool")
)

const batchStarvedHelp = "Whether batch in a class below the services' has work and gets less than its floor on a full machine."

const servicesWaitedHelp = "Time in which services waited for a CPU, all services added up; of a service without PSI the run delays " +
	"of its threads, at most 1 second per second."

// These metrics come from collect's section.
var (
	sourceErrors        = counter("polder_source_errors_total", "Errors of collect's readings, by source.", "source")
	nodeCPUs            = gauge("polder_node_cpus", "Online logical CPUs.")
	nodeCPUUsage        = gauge("polder_node_cpu_usage_cores", "CPU time used by the node.")
	nodeCPUSteal        = gauge("polder_node_cpu_steal_cores", "CPU time that the hypervisor took from CPUs with something to run.")
	nodeLoad1           = gauge("polder_node_load1", "Load averaged over a minute.")
	nodeLoad5           = gauge("polder_node_load5", "Load averaged over 5 minutes.")
	nodePressure        = gauge("polder_node_stall_ratio", "Part of the last 10 seconds in which some or all tasks waited for a resource (PSI).", "resource", "tasks")
	nodeMemoryTotal     = gauge("polder_node_memory_total_bytes", "Memory of the node.")
	nodeMemoryAvail     = gauge("polder_node_memory_available_bytes", "Memory that is available without swapping.")
	nodeMemoryFree      = gauge("polder_node_memory_free_bytes", "Memory not used for anything.")
	nodeMemoryLow       = gauge("polder_node_memory_low_watermark_bytes", "Free memory under which the kernel reclaims in the background.")
	nodeKswapdSteal     = gauge("polder_node_memory_kswapd_steal_pages_per_second", "Pages that kswapd reclaims.")
	diskUse             = gauge("polder_disk_use_ratio", "Part of the time in which a disk had any request in progress.", "disk")
	diskQueue           = gauge("polder_disk_queue", "Reads and writes in progress on a disk, on average.", "disk")
	diskBytes           = gauge("polder_disk_bytes_per_second", "Bytes that a disk read and wrote.", "disk", "direction")
	diskOperations      = gauge("polder_disk_operations_per_second", "A disk's reads and writes.", "disk", "direction")
	diskLatency         = gauge("polder_disk_latency_seconds", "Mean time of a disk's reads and writes, in the queue and in the disk.", "disk", "direction")
	numaCPUUsage        = gauge("polder_numa_cpu_usage_cores", "CPU time used on a NUMA node.", "numa")
	numaMemoryTotal     = gauge("polder_numa_memory_total_bytes", "Memory of a NUMA node.", "numa")
	numaMemoryFree      = gauge("polder_numa_memory_free_bytes", "Memory of a NUMA node not used for anything.", "numa")
	pods                = gauge("polder_pods", "Pods of a class.", "qos")
	podsCPUUsage        = gauge("polder_pods_cpu_usage_cores", "CPU time used by the pods of a class whose use is known.", "qos")
	podsLoad1           = gauge("polder_pods_load1", "Runnable threads of the pods of a class, averaged over a minute.", "qos")
	podsRefaults        = gauge("polder_pods_memory_refault_bytes_per_second", "Memory of the pods of a class that was refaulted shortly after it had been reclaimed.", "qos")
	memoryEvents        = counter("polder_batch_memory_events_total", "Memory events of a cgroup above batch pods: high, max, oom, oomKill (memory.events).", "cgroup", "event")
	podsDiskBytes       = gauge("polder_pods_disk_bytes_per_second", "Bytes that the pods of a class read and wrote on disks.", "qos", "direction")
	linkReceived        = gauge("polder_link_received_bytes_per_second", "Bytes that a link receives.", "link")
	linkSent            = gauge("polder_link_sent_bytes_per_second", "Bytes that a link sends.", "link")
	podsMemory          = gauge("polder_pods_memory_bytes", "Memory used by the pods of a class, without pages that could be reclaimed at once (working set).", "qos")
	requestedCPU        = gauge("polder_reclaimed_requested_cpu_cores", "Reclaimed CPU that pods request.")
	requestedMemory     = gauge("polder_reclaimed_requested_memory_bytes", "Reclaimed memory that pods request.")
	batchTime           = counter("polder_batch_cpu_seconds_total", "CPU time that batch pods used.")
	batchPodTime        = counter("polder_batch_pod_cpu_seconds_total", "CPU time of each present batch pod.", "namespace", "pod", "class")
	batchBeyondRequests = counter("polder_batch_beyond_requests_cpu_seconds_total", "CPU time that batch pods used beyond what they request.")
	batchThrottled      = counter("polder_batch_throttled_seconds_total", "Time in which a quota throttled batch.")
	batchSqueezed       = counter("polder_batch_squeezed_seconds_total", "Time in which batch was held back, by cause.", "cause")
	batchStarved        = gauge("polder_batch_starved", batchStarvedHelp)
	servicesTime        = counter("polder_services_seconds_total", "Time in which services' waiting for a CPU was known, all services added up.")
	servicesWaited      = counter("polder_services_waited_seconds_total", servicesWaitedHelp)
	freeTime            = counter("polder_left_cpu_seconds_total", "CPU time that batch used or that was idle.")
	agentState          = gauge("polder_fleet_agent_state", "1 for the state of the node's agent, as the cluster has it (collect fleet).", "state")
	fleetNodes          = gauge("polder_fleet_nodes", "Nodes of the fleet by the state of their agents, as the node's tick has it.", "state")
	fleetProtection     = gauge("polder_fleet_protection_active", "Whether no new action is taken on any node, because too many agents are not ready at once (evict fleet).")
	fleetHeld           = gauge("polder_fleet_held", "Whether no new action is taken on this node (evict fleet).")
	fleetWaiting        = gauge("polder_fleet_waiting_nodes", "Nodes whose pods shall be evicted and that wait because of the rate.")
	reclaimedCPU        = gauge("polder_reclaimed_cpu_cores", "CPU that is offered to reclaimed pods.")
	reclaimedMemory     = gauge("polder_reclaimed_memory_bytes", "Memory that is offered to reclaimed pods.")
	shadowCPU           = gauge("polder_shadow_reclaimed_cpu_cores", "CPU that advise's shadow policy would offer to reclaimed pods.", "policy")
	shadowMemory        = gauge("polder_shadow_reclaimed_memory_bytes", "Memory that advise's shadow policy would offer to reclaimed pods.", "policy")
	shadowDifference    = counter("polder_shadow_difference_cpu_seconds_total", "CPU time by which advise's shadow policy would have offered more, or less, than the policy that decides.", "policy", "direction")
	reclaimedNUMACPU    = gauge("polder_reclaimed_numa_cpu_cores", "A NUMA node's part of the reclaimed CPU.", "numa")
	reclaimedNUMAMem    = gauge("polder_reclaimed_numa_memory_bytes", "A NUMA node's part of the reclaimed memory.", "numa")
	poolCPUs            = gauge("polder_pool_cpus", "Logical CPUs of a pool.", "pool")
	adviceReasons       = gauge("polder_advice_reasons", "Things that bound the newest advice: floors, hold-downs, missing inputs.")
)

// These metrics come from the sections of isolate, evict and report.
var (
	isolationWrites    = counter("polder_isolation_writes_total", "Values written to cgroups, by key.", "key")
	isolationUnchanged = gauge("polder_isolation_unchanged_values", "Values of the newest advice that were already as desired.")
	isolationMissing   = gauge("polder_isolation_missing_cgroups", "Cgroups of the advice that do not exist.")
	memoryReclaimed    = counter("polder_memory_reclaimed_bytes_total", "Cold memory of batch that was reclaimed, at least.")
	reclaims           = counter("polder_memory_reclaims_total", "Reclaims of cold memory that reached a state, one a cgroup.", "state")
	isolationFallbacks = counter("polder_isolation_fallbacks_total", "Times that the fallback was applied, because no advice came.")
	networkSent        = counter("polder_network_class_sent_bytes_total", "Bytes that a class of packets sent over a link, since the class was created.", "link", "class")
	networkDropped     = counter("polder_network_class_dropped_packets_total", "Packets of a class that a full queue dropped, since the class was created.", "link", "class")
	networkBacklog     = gauge("polder_network_class_backlog_bytes", "Bytes of a class that wait for the link.", "link", "class")
	pressureValue      = gauge("polder_pressure_value", "The value that a rule measured, in its scope's unit.", "rule", "scope", "part", "level")
	pressureThreshold  = gauge("polder_pressure_threshold", "The threshold with which the value is compared.", "rule", "scope", "part", "level")
	pressureMet        = gauge("polder_pressure_met", "Whether the rule's condition is met.", "rule", "scope", "part", "level")
	ruleDryRun         = gauge("polder_rule_dry_run", "Whether a rule is only measured, without consequences.", "rule")
	taint              = gauge("polder_taint", "1 for each taint that should be on the node.", "key", "effect")
	evictions          = counter("polder_evictions_total", "Evictions that reached a state.", "rule", "state")
	evictionQueue      = gauge("polder_eviction_queue_pods", "Pods that a soft finding names and whose eviction waits.")
	targetState        = gauge("polder_report_target_state", "1 for the state of a target of report.", "target", "state")
	targetWrites       = counter("polder_report_writes_total", "Ticks that report that a target was written since the previous one.", "target")
)

// All contains every metric that is derived from ticks, in the order of a page.
var All = []*Metric{
	tickTimestamp, ticks, droppedTicks, errorsTotal, sourceErrors,
	nodeCPUs, nodeCPUUsage, nodeCPUSteal, nodeLoad1, nodeLoad5, nodePressure,
	nodeMemoryTotal, nodeMemoryAvail, nodeMemoryFree, nodeMemoryLow, nodeKswapdSteal,
	diskUse, diskQueue, diskBytes, diskOperations, diskLatency,
	numaCPUUsage, numaMemoryTotal, numaMemoryFree, linkReceived, linkSent,
	pods, podsCPUUsage, podsLoad1, podsMemory, podsRefaults, memoryEvents, podsDiskBytes, requestedCPU, requestedMemory,
	batchTime, batchPodTime, batchBeyondRequests, batchThrottled, freeTime, servicesTime, servicesWaited,
	reclaimedCPU, reclaimedMemory, shadowCPU, shadowMemory, shadowDifference, reclaimedNUMACPU, reclaimedNUMAMem,
	poolCPUs, batchSqueezed, batchStarved, adviceReasons,
	isolationWrites, isolationUnchanged, isolationMissing, isolationFallbacks, memoryReclaimed, reclaims, networkSent,
	networkDropped, networkBacklog,
	pressureValue, pressureThreshold, pressureMet, ruleDryRun, taint, evictions, evictionQueue,
	agentState, fleetNodes, fleetProtection, fleetHeld, fleetWaiting,
	targetState, targetWrites,
}

// Volatile are the metrics that change with every tick, whatever it contains.
var Volatile = []*Metric{tickTimestamp, ticks}
