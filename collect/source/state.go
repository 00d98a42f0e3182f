package source

import (
	"polder/collect/host"
	"polder/collect/loadavg"
	"polder/lib/customconfig"
	"polder/lib/sloconfig"
)

// StateVersion is the version of State's format.
const StateVersion = 1

// State is what is kept between two runs. Times are seconds since the machine's boot, and invalid after a reboot.
type State struct {
	BootID   string    `json:"bootID"`
	Seconds  float64   `json:"seconds"`
	CPUTimes *CPUState `json:"cpuTimes,omitempty"`
	// KswapdStealPages is nil where it could not be read.
	Kswapd  *CounterState          `json:"kswapd,omitempty"`
	Cgroups map[string]CgroupState `json:"cgroups,omitempty"`
	Tiers   map[string]CgroupState `json:"tiers,omitempty"`
	Disks   *DisksState            `json:"disks,omitempty"`
	// Config is the cluster's configuration in force, by kind; it stays valid after a reboot.
	Config map[string]*customconfig.Chosen `json:"config,omitempty"`
	// Strategies come from Koordinator's ConfigMap; nil where it is not watched.
	Strategies *sloconfig.Saved `json:"strategies,omitempty"`
}

// CPUState is a reading of /proc/stat.
type CPUState struct {
	Seconds float64 `json:"seconds"`
	// HasSteal is false in states of versions that did not save the steal time.
	HasSteal bool           `json:"hasSteal,omitempty"`
	CPUs     []host.CPUTime `json:"cpus"`
}

// CounterState is a reading of a counter.
type CounterState struct {
	Seconds float64 `json:"seconds"`
	Value   uint64  `json:"value"`
}

// DisksState is a reading of /proc/diskstats.
type DisksState struct {
	Seconds float64                   `json:"seconds"`
	Disks   map[string]host.DiskCount `json:"disks"`
}

// CgroupState is a reading of a container's cgroup.
type CgroupState struct {
	// Inode distinguishes the cgroup from a later one of the same name.
	Inode            uint64          `json:"inode,omitempty"`
	Seconds          float64         `json:"seconds"`
	UsageNanoseconds *uint64         `json:"usageNanoseconds,omitempty"`
	Periods          *uint64         `json:"periods,omitempty"`
	ThrottledPeriods *uint64         `json:"throttledPeriods,omitempty"`
	Load             loadavg.Average `json:"load"`
	// Walk is the progress of a sample of the load that is not complete; nil where there is none.
	Walk *pass `json:"walk,omitempty"`
}

// Save returns what a later run needs to continue.
func (c *Collector) Save() *State {
	s := &State{BootID: c.env.Host.BootID(), Seconds: c.last}
	for _, r := range c.readers {
		if k, ok := r.(StateKeeper); ok {
			k.Save(s)
		}
	}
	return s
}

// Load restores what an earlier run saved. It reports false where the state cannot be used: it is from another boot or from
// the future. The next reading has rates if the state is at most withinSeconds old.
func (c *Collector) Load(s *State, withinSeconds float64) bool {
	if c.env.Cluster != nil {
		c.env.Cluster.LoadConfig(s.Config)
		c.env.Cluster.LoadStrategies(s.Strategies)
	}
	c.clock.startRound()
	at := c.clock.Seconds()
	if s.BootID != c.env.Host.BootID() || s.Seconds <= 0 || s.Seconds > at {
		return false
	}
	if at-s.Seconds > withinSeconds {
		s.CPUTimes, s.Kswapd = nil, nil
		for name, g := range s.Cgroups {
			g.UsageNanoseconds, g.Periods, g.ThrottledPeriods = nil, nil, nil
			s.Cgroups[name] = g
		}
		s.Tiers, s.Disks = nil, nil
	} else {
		c.last = s.Seconds
	}
	for _, r := range c.readers {
		if k, ok := r.(StateKeeper); ok {
			k.Load(s)
		}
	}
	return true
}
