package katalyst

import (
	"time"

	"polder/advise/class"
	"polder/advise/guard"
	"polder/advise/layers"
	"polder/advise/limits"
	"polder/lib/customconfig"
	"polder/lib/tick"
)

// Settings are the policy's numbers; CPU in milli-CPU, memory in bytes.
type Settings struct {
	// ReserveMilliCPU and ReserveMemoryBytes are kept free for bursts of the shared pods (Katalyst's reserved-resource-for-allocate). Negative
	// means the default: 4 cores and 5Gi, on a small machine a tenth of it.
	ReserveMilliCPU    int64
	ReserveMemoryBytes int64
	// FloorMilliCPU is what the reclaimed side keeps at any load of the services (min-reclaimed-resource). Negative means the default: 4
	// cores, on a small machine a tenth of it.
	FloorMilliCPU int64
	// Hold is how long the shared pool must have been larger than needed before it shrinks, and the least time between two steps down.
	Hold time.Duration
	// ShrinkStepMilliCPU is the most by which the shared pool shrinks in one step.
	ShrinkStepMilliCPU int64
	// UnknownMilliCPU and UnknownMemoryBytes are assumed for a container without any known value.
	UnknownMilliCPU    int64
	UnknownMemoryBytes int64
	// PoolMinCPUs is the number of CPUs below which a machine is too small for pools: there Limit applies.
	PoolMinCPUs int
	// Overlap selects whether shared pods also run on the reclaim pool's CPUs: one of [Overlaps], or empty for the configuration of the
	// cluster, and [OverlapShort] without one.
	Overlap string
	// The guard, the limits of memory and the share of the disks are off by default, because the guide has none of them.
	layers.Shared
	// Limit selects what limits reclaimed pods on a machine that is too small for pools: [LimitQuota], or, for pods that have one, their
	// scheduling class: [LimitClass], or empty.
	Limit string
	// Sources has the source of each value that is not a default, by the flag's name ("reserve-cpu").
	Sources map[string]string
}

// Values of [Settings.Limit].
const (
	LimitQuota = "quota"
	LimitClass = "class"
)

// isLimitedByQuota reports whether a reclaimed pod is limited by quota on a small machine.
func (s Settings) isLimitedByQuota(p *tick.Pod) bool {
	return s.isQuotaForAll() || class.Of(s.Class.Class, p) == class.None
}

// isQuotaForAll reports whether the settings limit every reclaimed pod on a small machine by quota.
func (s Settings) isQuotaForAll() bool {
	return s.Limit == LimitQuota || s.Class.Class == class.None
}

// Defaults returns Katalyst's defaults (v0.1.0), except PoolMinCPUs, which is ours.
func Defaults() Settings {
	return Settings{
		ReserveMilliCPU:    -1,
		ReserveMemoryBytes: -1,
		FloorMilliCPU:      -1,
		Hold:               30 * time.Second,
		ShrinkStepMilliCPU: 2000,
		UnknownMilliCPU:    4000,
		UnknownMemoryBytes: 8 << 30,
		PoolMinCPUs:        8,
		Shared: layers.Shared{
			Guard:  guard.Settings{MarginPermille: guard.DefaultMarginPermille},
			Limits: limits.Settings{Own: true},
		},
	}
}

const (
	defaultReserveMilliCPU    = 4000
	defaultReserveMemoryBytes = 5 << 30
	defaultFloorMilliCPU      = 4000
)

// source returns where a setting's value came from.
func (s Settings) source(name string) string {
	if from, ok := s.Sources[name]; ok {
		return from
	}
	return "default"
}

// clampedTo returns the settings for a machine: no default exceeds the machine.
func (s Settings) clampedTo(milliCPU, bytes int64) Settings {
	s.UnknownMilliCPU = min(s.UnknownMilliCPU, max(milliCPU, 0))
	if bytes > 0 {
		s.UnknownMemoryBytes = min(s.UnknownMemoryBytes, bytes)
	}
	return s
}

// resolved are the settings for one machine and tick, with the sources of those that the tick's configuration may set.
type resolved struct {
	reserveMilliCPU, floorMilliCPU, reserveMemoryBytes int64
	reserveFrom, floorFrom, reserveMemoryFrom          string
	overlap, overlapFrom                               string
	*dynamic
}

// resolve returns the effective settings for a machine: the value of the command line or the file, else that of the tick's configuration,
// else the default.
func (s Settings) resolve(dyn *dynamic, small bool, machineMilliCPU, machineBytes int64) resolved {
	pick := func(configured int64, name string, fromTick *int64, field string, defaultValue, machine int64) (int64, string) {
		switch {
		case configured >= 0:
			return configured, s.source(name)
		case fromTick != nil:
			return *fromTick, dyn.source(field)
		case small && machine/10 < defaultValue:
			return machine / 10, "default, a tenth of the machine"
		}
		if machine > 0 {
			defaultValue = min(defaultValue, machine)
		}
		return defaultValue, "default"
	}
	r := resolved{dynamic: dyn}
	r.reserveMilliCPU, r.reserveFrom = pick(s.ReserveMilliCPU, "reserve-cpu", dyn.reserve.MilliCPU, customconfig.FieldReserve, defaultReserveMilliCPU, machineMilliCPU)
	r.floorMilliCPU, r.floorFrom = pick(s.FloorMilliCPU, "floor-cpu", dyn.floor.MilliCPU, customconfig.FieldFloor, defaultFloorMilliCPU, machineMilliCPU)
	r.reserveMemoryBytes, r.reserveMemoryFrom = pick(s.ReserveMemoryBytes, "reserve-memory", dyn.reserve.Bytes, customconfig.FieldReserve, defaultReserveMemoryBytes, machineBytes)
	switch {
	case s.Overlap != "":
		r.overlap, r.overlapFrom = s.Overlap, s.source("share-overlap")
	case dyn.overlap != nil:
		r.overlap, r.overlapFrom = OverlapOff, dyn.source(customconfig.FieldOverlap)
		if *dyn.overlap {
			r.overlap = OverlapOn
		}
	default:
		r.overlap, r.overlapFrom = OverlapShort, "default"
	}
	return r
}

func (r resolved) floorCPUs() int { return int(ceilCPUs(float64(r.floorMilliCPU))) }
