package evictconfig

import "time"

// Fleet are the settings of the fleet controller, evict fleet. No configuration object of Katalyst sets them.
type Fleet struct {
	// TaintAfter and EvictAfter are how long a node's agent must not have been ready.
	TaintAfter, EvictAfter time.Duration
	// NodesPerMinute bounds the nodes whose pods are evicted.
	NodesPerMinute int
	OptOut         []string
}

// Rows returns all settings of f. The defaults are Katalyst's rate, one node per 10 seconds, and the guide's times.
func (f *Fleet) Rows() []Row {
	return []Row{
		span("taint-after", &f.TaintAfter, 10*time.Minute, upToWeek, "taint a node whose agent has not been ready for this long"),
		span("evict-after", &f.EvictAfter, 20*time.Minute, upToWeek, "evict its reclaimed pods when that has lasted for this long"),
		// 600 is ten nodes per second: a larger value is no limit.
		count("nodes-per-minute", &f.NodesPerMinute, 6, from1(600), "evict from at most this many nodes a minute"),
		optOut(&f.OptOut),
	}
}

// fleetPairs are like [Pairs].
var fleetPairs = []Pair{{"taint-after", "evict-after", "pods would be evicted before the node is tainted against new ones"}}

// FleetDefaults returns the settings with the default of each row.
func FleetDefaults() Fleet {
	var f Fleet
	for _, row := range f.Rows() {
		row.reset()
	}
	return f
}

// Check calls bad with a setting's name for each invalid setting.
func (f *Fleet) Check(addError func(name string, err error)) {
	checkRows(f.Rows(), fleetPairs, addError)
}
