// Package settings is the table of advise's settings: one row for each, with its flag, default and bounds, the policy that has it, and its
// equivalent in the objects of Katalyst and of Koordinator.
package settings

import (
	"fmt"
	"strings"

	"polder/advise/class"
	"polder/advise/cold"
	"polder/advise/disk"
	"polder/advise/guard"
	"polder/advise/harvest"
	"polder/advise/katalyst"
	"polder/advise/koordinator"
	"polder/advise/layers"
	"polder/advise/limits"
	"polder/advise/network"
	"polder/advise/policy"
	"polder/lib/customconfig"
	"polder/lib/stage"
)

// Policies are the policies that can be selected; the first is the default.
var Policies = []policy.Policy{katalyst.Policy, koordinator.Policy, harvest.Policy}

// PolicyNames returns their names.
func PolicyNames() []string {
	names := make([]string, len(Policies))
	for i, p := range Policies {
		names[i] = p.Name
	}
	return names
}

// Settings are the values. Each one's row has its meaning, default and bounds: see [Settings.Rows].
type Settings struct {
	Policy string
	// Shared and Network belong to all policies. The same fields of Katalyst and Harvest have only their defaults for what is empty here.
	layers.Shared
	Network network.Settings

	Katalyst katalyst.Settings
	Harvest  harvest.Settings
}

// Defaults returns the default settings.
func Defaults() Settings {
	return Settings{
		Policy:   Policies[0].Name,
		Shared:   layers.Defaults(),
		Katalyst: katalyst.Defaults(),
		Harvest:  harvest.Defaults(),
	}
}

// ForKatalyst returns the settings of policy katalyst; from has the source of each setting that is set, by its name.
func (s *Settings) ForKatalyst(from map[string]string) katalyst.Settings {
	k := s.Katalyst
	k.Shared, k.Sources = s.Shared.Or(k.Shared), from
	return k
}

// ForKoordinator returns the settings of policy koordinator.
func (s *Settings) ForKoordinator() koordinator.Settings {
	return s.Shared.Or(koordinator.Defaults())
}

// ForHarvest returns the settings of policy harvest.
func (s *Settings) ForHarvest() harvest.Settings {
	h := s.Harvest
	h.Shared = s.Shared.Or(h.Shared)
	return h
}

// Group is a group of rows below one heading of the manual.
type Group struct {
	Title string // empty if they belong to the heading before
	Rows  []Row
}

// Groups returns all settings of s, in the order of the manual.
func (s *Settings) Groups() []Group {
	return []Group{
		{"", s.commonRows()},
		{"Network", s.networkRows()},
		{"Policy katalyst", forPolicy(katalyst.Policy, s.katalystRows())},
		{"Policy harvest", forPolicy(harvest.Policy, s.harvestRows())},
	}
}

// Rows returns all settings of s, in the order of the manual.
func (s *Settings) Rows() []Row {
	var rows []Row
	for _, g := range s.Groups() {
		rows = append(rows, g.Rows...)
	}
	return rows
}

// forPolicy marks the rows of one policy.
func forPolicy(p policy.Policy, rows []Row) []Row {
	for i := range rows {
		rows[i].Policy = p.Name
	}
	return rows
}

// AddFlags adds a flag for each setting.
func (s *Settings) AddFlags(f *stage.Flags) {
	for _, g := range s.Groups() {
		if g.Title != "" {
			f.Category(g.Title)
		}
		for _, r := range g.Rows {
			f.Value(r.Value, r.Name, r.Default, r.Usage)
			if len(r.Words) > 0 {
				f.Words(r.Words...)
			}
		}
	}
}

// commonRows returns the settings of all policies.
func (s *Settings) commonRows() []Row {
	reserved := cpuList("reserved-cpus", &s.ReservedCPUs, "`CPUS` that belong to no pool, such as 0-1,24").withDefaultText("none")
	reserved.Koordinator = "`reservedCPUs` of the node's annotation `node.koordinator.sh/reservation` adds to it"
	diskMax := diskLimits("batch-disk-max", &s.Disk.Limits,
		"maximum of batch's reads and writes per second, by disk\n"+
			"For example `all=read:100Mi,write:50Mi;/var/lib/db=reads:200,writes:100`: a disk is a name of /sys/block, a mount point, or all. "+
			"read and write are bytes, reads and writes operations.").withDefaultText("none")
	diskCost := diskCosts("disk-cost", &s.Disk.Costs,
		"`DISKS` to be shared by the cost of reads and writes\n"+
			"It is io.cost of cgroup version 2, with which weights work with any scheduler: all, or disks with semicolons between them, each alone or with "+
			"targets with the names of io.cost.qos, as in `vda=rpct:95,rlat:5000;vdb`.").withDefaultText("none")
	diskMax.Koordinator = "`blkioQOS` of `beClass` adds to it"
	diskCost.Koordinator = "`blkioQOS` of `cgroupRoot`, for the disks that are not named here"
	return []Row{
		oneOf("policy", &s.Policy, PolicyNames(), "the algorithm ("+strings.Join(PolicyNames(), ", ")+")\n--list describes each."),
		reserved,
		oneOf("batch-class", &s.Class.Class, class.Names,
			"scheduling class of batch ("+strings.Join(class.Names, ", ")+"; default idle)\n"+
				"Cgroups in idle run only while no sibling has a task to run. Policy koordinator leaves pods of a cluster to schedIdle by default.").
			withDefaultText("idle; under policy koordinator on a plain host only"),
		factor("service-weight", &s.Class.ServiceWeightFactor,
			"`FACTOR` of the CPU weights of services beside batch\n"+
				"Services of a plain host wait less for batch then. It is in force while they use less than 80 % of the machine, for all "+
				"cgroups beside batch's that contain pods; 1 does not change their weights."),
		onOff("resched-on-wait", &s.Class.ReschedOnWait,
			"reschedule a CPU when a task waits for batch (on, off)\n"+
				"After an interrupt the kernel may run a batch task instead of the service, until the next timer interrupt "+
				"(up to 4 ms). While services run beside top-level batch cgroups in the idle class, isolate loads a BPF "+
				"program that detects this and makes the kernel schedule again within microseconds. This needs CAP_BPF "+
				"and CAP_PERFMON."),
		resched("resched-interval", &s.Class.ReschedInterval,
			"reschedule each CPU every `SPAN`\n"+
				"Where --resched-on-wait is off or not possible, isolate wakes a thread on each CPU at this interval, after which the "+
				"service continues: at most one span after it was interrupted, at a cost of 1.2 % of a CPU each. 0s means never.").
			withDefaultText(fmt.Sprintf("%s with fewer than %d CPUs", class.SmallMachineInterval, class.SmallMachineCPUs)),
		oneOf("guard", &s.Guard.Mode, guard.Modes,
			"limit batch while services wait ("+strings.Join(guard.Modes, ", ")+"; default on for harvest)\n"+
				"It takes CPUs, quota and memory from batch. It is off by default under the other policies.").
			withDefaultText("on under policy harvest, off under the others"),
		oneOf("guard-disk", &s.Guard.Disk, guard.Modes,
			"with the guard, throttle batch's disks first ("+strings.Join(guard.Modes, ", ")+"; default off)\n"+
				"It needs cgroup v2. On a file system that batch and services share, limits of batch can make services wait longer.").
			withDefaultText("off"),
		permille("guard-target", &s.Guard.TargetPermille,
			"how long a service may wait, in thousandths of the time (default learned)\n"+
				"The default is each service's waiting while batch used little.").withDefaultText("each service's waiting while batch used little"),
		permille("guard-margin", &s.Guard.MarginPermille,
			"added to the learned target, in thousandths of the time\nThe learned target is each service's waiting while batch used little."),
		oneOf("batch-memory", &s.Limits.Batch, limits.BatchModes,
			"cap batch's memory at what is free ("+strings.Join(limits.BatchModes, ", ")+"; default cap for harvest)\n"+
				"The cap is for all batch together: what is offered and free. It is none by default under the other policies.").
			withDefaultText("cap under policy harvest, none under the others"),
		oneOf("service-memory", &s.Limits.Services, limits.ServiceModes,
			"memory.low for services ("+strings.Join(limits.ServiceModes, ", ")+"; default protect for harvest)\n"+
				"It covers their working set, on cgroup version 2. It is none by default under the other policies.").
			withDefaultText("protect under policy harvest, none under the others"),
		oneOf("batch-reclaim", &s.Cold.Mode, cold.Modes,
			"reclaim memory that batch does not use ("+strings.Join(cold.Modes, ", ")+")\n"+
				"cold reclaims a part of each batch pod's memory every 6 s, as long as the pod does not wait for it. It needs cgroup version 2 and Linux 5.19."),
		oneOf("batch-disk", &s.Disk.Share, disk.Shares,
			"batch's share of the disks ("+strings.Join(disk.Shares, ", ")+"; default idle for harvest)\n"+
				"idle is the smallest weight: batch gets what services leave idle. The kernel uses weights with the scheduler BFQ or with io.cost.").
			withDefaultText("idle under policy harvest, none under the others"),
		diskMax,
		diskCost,
	}
}

// adminQoS names a field of Katalyst's AdminQoSConfiguration.
func adminQoS(field, resource string) string {
	return "reclaimedResourceConfig." + field + "." + resource
}

// katalystRows returns policy katalyst's own settings.
func (s *Settings) katalystRows() []Row {
	k := &s.Katalyst
	reserveCPU := milliCPU("reserve-cpu", &k.ReserveMilliCPU,
		"`CPU` kept free for bursts of services, such as 2 or 500m (default 4)\nOn a small machine the default is a tenth of it.")
	reserveMemory := bytes("reserve-memory", &k.ReserveMemoryBytes,
		"memory kept free for services (default 5Gi)\nOn a small machine the default is a tenth of it.")
	floorCPU := milliCPU("floor-cpu", &k.FloorMilliCPU,
		"`CPU` that batch always keeps (default 4)\nOn a small machine the default is a tenth of it.")
	reserveCPU.Katalyst = adminQoS(customconfig.FieldReserve, "cpu")
	reserveMemory.Katalyst = adminQoS(customconfig.FieldReserve, "memory")
	floorCPU.Katalyst = adminQoS(customconfig.FieldFloor, "cpu")
	overlap := oneOf("share-overlap", &k.Overlap, katalyst.Overlaps,
		"services also on the reclaim pool's CPUs ("+strings.Join(katalyst.Overlaps, ", ")+"; default short)\n"+
			"short is for plain hosts: while services need more than the floor leaves them, they and batch run on the CPUs of both, "+
			"services before batch, which is in a lower scheduling class.")
	overlap.Katalyst = customconfig.FieldOverlap
	return []Row{
		reserveCPU.withDefaultText("4, a tenth of a small machine"),
		reserveMemory.withDefaultText("5Gi, a tenth of a small machine"),
		floorCPU.withDefaultText("4, a tenth of a small machine"),
		duration("hold", &k.Hold, "how long the shared pool is too large before it shrinks"),
		milliCPU("shrink-step", &k.ShrinkStepMilliCPU, "maximum of CPUs by which the shared pool shrinks in one step"),
		milliCPU("unknown-cpu", &k.UnknownMilliCPU, "`CPU` of a service's container whose use is unknown"),
		bytes("unknown-memory", &k.UnknownMemoryBytes, "memory of such a container"),
		overlap.withDefaultText("short"),
		whole("pool-min-cpus", &k.PoolMinCPUs, "fewer CPUs have no pools: class or quota limits batch"),
		oneOf("limit", &k.Limit, []string{katalyst.LimitClass, katalyst.LimitQuota},
			"what limits batch without pools (class, quota; default class)\n"+
				"The default is class if batch has one. Machines with few CPUs have no pools, see --pool-min-cpus.").
			withDefaultText("class if batch has one"),
	}
}

// harvestRows returns policy harvest's own settings.
func (s *Settings) harvestRows() []Row {
	h := &s.Harvest
	return []Row{
		number("harvest-price", &h.Price,
			"how much an oversized offer counts against unused CPU\n"+
				"Higher is safer: a higher price gives a larger margin and a smaller offer."),
		part("harvest-margin", &h.Margin, "minimum growth of services to leave room for\nIt is a part of the machine."),
		part("harvest-first-margin", &h.FirstMargin, "growth that is expected before the first observation"),
		part("harvest-step", &h.Step,
			"maximum of one rise of the offer\nIt is also the maximum by which it falls in a minute while the services have enough CPUs."),
		duration("harvest-hold", &h.Hold, "how long the offer must be too small before it rises"),
		duration("harvest-new-pod", &h.NewPod, "how long a new pod's requests count if it uses less"),
		part("harvest-burst", &h.Burst, "part of services' bursts that the buffer must cover"),
		duration("harvest-burst-hold", &h.BurstHold, "how long a CPU is not needed before batch gets it"),
		whole("harvest-min-cpus", &h.MinCPUs, "fewer CPUs have no buffer: the class limits batch"),
	}
}
