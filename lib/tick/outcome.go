package tick

import "strings"

// Isolation is the result of isolate.
type Isolation struct {
	// Applied counts the values written this tick, Unchanged those that were as desired already.
	Applied   int `json:"applied"`
	Unchanged int `json:"unchanged"`
	// Missing counts the cgroups of the advice that do not exist.
	Missing int `json:"missing,omitempty"`
	// Unavailable are the desired keys for which this machine has no file or mount. Errors has the reason for each, when it first occurs.
	Unavailable []string         `json:"unavailable,omitempty"`
	Writes      []Write          `json:"writes,omitempty"`
	Errors      []IsolationError `json:"errors,omitempty"`
	// Reclaims are the reclaims that have ended since the previous tick, and those that did not begin.
	Reclaims []Reclaim `json:"reclaims,omitempty"`
	// ReschedOnWait means that isolate makes the kernel reschedule a CPU when a task waits behind batch.
	ReschedOnWait bool `json:"reschedOnWait,omitempty"`
	// ReschedIntervalSeconds is how often isolate makes the kernel reschedule each CPU; nil means not at all.
	ReschedIntervalSeconds *float64 `json:"reschedIntervalSeconds,omitempty"`
	DryRun                 bool     `json:"dryRun,omitempty"`
	// Fallback means that the advice's fallback was applied since the previous tick, because no advice came for --stale-after.
	Fallback bool `json:"fallback,omitempty"`
	// Refused is why isolate did not act on this tick: too old, or of another node.
	Refused string `json:"refused,omitempty"`
	// DroppedTicks counts the ticks that were not forwarded since the start because the next stage was slow.
	DroppedTicks int64 `json:"droppedTicks,omitempty"`
}

// Write is one changed value of one cgroup. Key is the name in [Cgroup] ("cpusetCPUs"); Old and New are the file's text.
type Write struct {
	Cgroup string `json:"cgroup"`
	Key    string `json:"key"`
	Old    string `json:"old"`
	New    string `json:"new"`
	// OldMilliCPU and NewMilliCPU are the values of a quota's or a burst's texts with the cgroup's period, [Unlimited] for no limit; nil
	// for other keys, and if a text is not a number.
	OldMilliCPU *int64 `json:"oldMilliCPU,omitempty"`
	NewMilliCPU *int64 `json:"newMilliCPU,omitempty"`
}

// IsolationError is one value that could not be applied.
type IsolationError struct {
	Cgroup string `json:"cgroup"`
	Key    string `json:"key,omitempty"`
	Error  string `json:"error"`
}

// Eviction contains evict's measurements and decisions.
type Eviction struct {
	Pressures []PressureFinding `json:"pressures,omitempty"`
	Taints    []Taint           `json:"taints,omitempty"`
	Evictions []PodEviction     `json:"evictions,omitempty"`
	DryRun    bool              `json:"dryRun,omitempty"`
	// Refused is why evict did not act on this tick: too old, or of another node.
	Refused string `json:"refused,omitempty"`
	// Errors names the missing inputs of rules, and the parts of the section that could not be decoded.
	Errors []string `json:"errors,omitempty"`
	// Queued counts the pods that a soft finding names and whose eviction waits.
	Queued int `json:"queued,omitempty"`
	// Fleet is only in the section of evict fleet.
	Fleet *FleetEviction `json:"fleet,omitempty"`
	// DroppedTicks counts the ticks that were not forwarded since the start because the next stage was slow.
	DroppedTicks int64 `json:"droppedTicks,omitempty"`
}

// PressureFinding is one rule's measurement in this tick.
type PressureFinding struct {
	Rule  string `json:"rule"`
	Scope string `json:"scope"`
	// Part is the measured part of the scope if a rule measures several: a pool, a NUMA node, a signal.
	Part      string  `json:"part,omitempty"`
	Value     float64 `json:"value"`
	Threshold float64 `json:"threshold"`
	// Since is the beginning of the unbroken time in which the threshold is met; empty if it is not met.
	Since string `json:"since,omitempty"`
	Met   bool   `json:"met"`
	// Hard means that a met threshold causes an eviction, not only a taint.
	Hard bool `json:"hard,omitempty"`
	// Below means that the threshold is met if the value is below it, as for free memory, not above it.
	Below bool `json:"below,omitempty"`
	// DryRun means that the rule is measured and reported, but has no effect.
	DryRun bool `json:"dryRun,omitempty"`
}

// These are the units of a finding's value and threshold.
const (
	UnitMilliCPU = "milliCPU"
	UnitBytes    = "bytes"
	UnitPercent  = "percent"
	UnitPages    = "pages/s"
)

// Unit returns the unit of the value and the threshold.
func (p *PressureFinding) Unit() string { return UnitOf(p.Scope, p.Part) }

// UnitOf returns the unit of a scope and its part; empty for a number of threads or a ratio.
func UnitOf(scope, part string) string {
	switch {
	case strings.HasSuffix(scope, "percent"), part == "psi":
		return UnitPercent
	case part == "kswapd":
		return UnitPages
	case strings.HasSuffix(scope, "millicpu"), strings.HasSuffix(scope, "-cpu"), scope == "cpu":
		return UnitMilliCPU
	case strings.HasSuffix(scope, "memory"):
		return UnitBytes
	}
	return ""
}

// Taint is a taint that the node should have.
type Taint struct {
	Key    string `json:"key"`
	Effect string `json:"effect"`
}

// These are the states of an eviction.
const (
	StateWouldEvict = "wouldEvict"
	StateRequested  = "requested"
	StateCreated    = "created"
	StateSucceeded  = "succeeded"
	StateFailed     = "failed"
)

// PodEviction is one pod's eviction.
type PodEviction struct {
	UID                string `json:"uid"`
	Namespace          string `json:"namespace,omitempty"`
	Name               string `json:"name"`
	Rule               string `json:"rule"`
	Scope              string `json:"scope"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
	State              string `json:"state"`
	Error              string `json:"error,omitempty"`
}

// These are the states of a report's target.
const (
	TargetWritten   = "written"
	TargetUnchanged = "unchanged"
	TargetPending   = "pending"
	TargetFailed    = "failed"
)

// Report is the result of report.
type Report struct {
	Targets []Target `json:"targets"`
	// Refused is why report did not report this tick: too old, or of another node.
	Refused string `json:"refused,omitempty"`
}

// Target is the result of one of report's targets.
type Target struct {
	Target  string `json:"target"`
	State   string `json:"state"`
	Changed bool   `json:"changed,omitempty"`
	// Note is why the target gets something other than the ticks' figures.
	Note  string `json:"note,omitempty"`
	Error string `json:"error,omitempty"`
}
