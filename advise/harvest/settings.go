package harvest

import (
	"time"

	"polder/advise/cold"
	"polder/advise/disk"
	"polder/advise/guard"
	"polder/advise/limits"
)

// Settings are the policy's numbers. Parts are of the machine: 0.05 is a twentieth of it.
type Settings struct {
	// Price is what a short offer is worth against a wrong one: the growth for which room is left is the one that costs least, where
	// each part of the machine costs itself, and each span in which services grew by more costs so many machines.
	Price float64
	// Margin is the least growth for which room is left, and FirstMargin the one that is expected before any was seen.
	Margin, FirstMargin float64
	// Hold is how long an offer must have been too small before it rises, and Step the most by which it rises then, and by which it falls
	// in a minute while the services have room.
	Hold time.Duration
	Step float64
	// NewPod is for how long a pod's request counts where it uses less.
	NewPod time.Duration
	// Burst is the part of the services' growths within two ticks that the idle cores are enough for, and BurstHold how long fewer
	// must have been enough before batch gets one back.
	Burst     float64
	BurstHold time.Duration
	// MinCPUs is the number of CPUs under which there are no idle cores, and batch is limited by its scheduling class alone.
	MinCPUs int
	// ReservedCPUs is a list of CPUs that batch never runs on (the system's own).
	ReservedCPUs string
	// BatchClass is the scheduling class of batch pods, one of [class.Names]; empty is the default.
	BatchClass string
	// Guard takes from batch while services wait; it is on unless it is switched off.
	Guard guard.Settings
	// Limits cap batch pods' memory and protect the services'; both are on unless they are switched off.
	Limits limits.Settings
	// Cold takes memory back that batch pods hold and do not use; it is off unless it is switched on.
	Cold cold.Settings
	// Disk gives batch pods the idle share of the disks, and limits what they read and write; the share is on unless it is switched off.
	Disk disk.Settings
}

// Defaults are of two public traces: docs/policy-harvest.md has how they were chosen, and the figures.
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
		MinCPUs:     8,
		Guard:       guard.Settings{MarginPermille: guard.DefaultMarginPermille},
	}
}
