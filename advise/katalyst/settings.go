package katalyst

import "time"

// Settings are the policy's numbers; CPU in milli-CPU, memory in bytes.
type Settings struct {
	// ReserveMilliCPU and ReserveMemoryBytes are kept free for bursts of the shared pods (Katalyst's
	// reserved-resource-for-allocate). Negative means the default: 4 cores and 5Gi, and on a small machine a tenth of it.
	ReserveMilliCPU    int64
	ReserveMemoryBytes int64
	// FloorMilliCPU is what the reclaimed side keeps however busy the services are (min-reclaimed-resource). Negative
	// means the default: 4 cores, and on a small machine a tenth of it.
	FloorMilliCPU int64
	// Hold is how long the shared pool must have been larger than needed before it shrinks, and the least time between
	// two steps down.
	Hold time.Duration
	// ShrinkStepMilliCPU is the most by which the shared pool shrinks in one step.
	ShrinkStepMilliCPU int64
	// UnknownMilliCPU and UnknownMemoryBytes stand for a container of which nothing is known.
	UnknownMilliCPU    int64
	UnknownMemoryBytes int64
	// PoolMinCPUs is the number of CPUs under which a machine is too small for pools: there the reclaimed pods are held
	// by quota.
	PoolMinCPUs int
	// ReservedCPUs is a list of CPUs that belong to no pool (the system's own).
	ReservedCPUs string
}

// Defaults are Katalyst's (v0.1.0), but for PoolMinCPUs, which is ours.
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
	}
}

const (
	defaultReserveMilliCPU    = 4000
	defaultReserveMemoryBytes = 5 << 30
	defaultFloorMilliCPU      = 4000
)

// resolved are the settings for one machine.
type resolved struct {
	reserveMilliCPU, floorMilliCPU int64
	reserveMemoryBytes             int64
}

func (s Settings) resolve(small bool, machineMilliCPU, machineBytes int64) resolved {
	pick := func(set, normal, machine int64) int64 {
		switch {
		case set >= 0:
			return set
		case small:
			return min(normal, machine/10)
		}
		return normal
	}
	return resolved{
		reserveMilliCPU:    pick(s.ReserveMilliCPU, defaultReserveMilliCPU, machineMilliCPU),
		floorMilliCPU:      pick(s.FloorMilliCPU, defaultFloorMilliCPU, machineMilliCPU),
		reserveMemoryBytes: pick(s.ReserveMemoryBytes, defaultReserveMemoryBytes, machineBytes),
	}
}

func (r resolved) floorCPUs() int { return int(ceilCPUs(float64(r.floorMilliCPU))) }
