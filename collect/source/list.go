package source

// All is every source, in the order of reading: a source may use what those above it have read.
var All = []Source{
	Topology,
	CPU,
	Memory,
	NUMA,
	PSI,
	Disks,
	Cgroup,
	Load,
	Wait,
	Pods,
	Partitions,
	Tiers,
	BatchMemory,
	Capacity,
	Node,
	Config,
	Kubelet,
	Resctrl,
	Links,
}
