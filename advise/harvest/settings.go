package harvest

import (
	"time"

	"polder/advise/disk"
	"polder/advise/guard"
	"polder/advise/layers"
	"polder/advise/limits"
)

// Settings are the policy's numbers. Parts are parts of the machine: 0.05 is a twentieth of it.
type Settings struct {
	// Price is the cost of a wrong offer relative to a small one: the policy leaves room for the growth with the lowest cost, where room costs
	// its own size, and each span in which services grew by more costs Price machines.
	Price float64
	// Margin is the smallest growth for which room is left, and FirstMargin the growth that is expected before any was observed.
	Margin, FirstMargin float64
	// Hold is how long an offer must have been too small before it rises, and Step the most by which it rises then, and by which it falls per
	// minute while the services have headroom.
	Hold time.Duration
	Step float64
	// NewPod is for how long a pod's request counts if its use is lower.
	NewPod time.Duration
	// Burst is the part of the services' growths within two ticks that the idle cores must cover, and BurstHold how long fewer must have been
	// enough before batch gets one back.
	Burst     float64
	BurstHold time.Duration
	// MinCPUs is the number of CPUs below which there are no idle cores, and only the scheduling class limits batch.
	MinCPUs int
	// The guard, the cap of batch's memory, the protection of the services' and the idle share of the disks are on by default.
	layers.Shared
}

// Defaults are derived from two public traces: docs/policy-harvest.md describes how, with the figures.
func Defaults() Settings {
	return Settings{
		Price:       2.2,
		Margin:      0.02,
		FirstMargin: 0.03,
		Hold:        5 * time.Minute,
		Step:        0.05,
		NewPod:      10 * time.Minute,
		Burst:       0.99,
		BurstHold:   30 * time.Second,
		MinCPUs:     16,
		Shared: layers.Shared{
			Guard:  guard.Settings{Mode: guard.On, MarginPermille: guard.DefaultMarginPermille},
			Limits: limits.Settings{Own: true, Batch: limits.Cap, Services: limits.ProtectIfPossible},
			Disk:   disk.Settings{Share: disk.Idle},
		},
	}
}
