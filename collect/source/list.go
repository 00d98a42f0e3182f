package source

// All is every source, in the order of reading: a source may use the values of those above it.
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
