package tick

import "strings"

// Isolation is what isolate did.
type Isolation struct {
	// Applied counts the values written this tick, Unchanged those that were as desired already.
	Applied   int `json:"applied"`
	Unchanged int `json:"unchanged"`
	// Missing counts the cgroups of the advice that do not exist (any more).
	Missing int `json:"missing,omitempty"`
	// Unavailable are the desired keys that this machine has no file or mount for. Errors has the reason for each, when it is first met.
	Unavailable []string         `json:"unavailable,omitempty"`
	Writes      []Write          `json:"writes,omitempty"`
	Errors      []IsolationError `json:"errors,omitempty"`
	// Reclaims are the reclaims that have ended since the tick before, and those that were not begun.
	Reclaims []Reclaim `json:"reclaims,omitempty"`
	DryRun   bool      `json:"dryRun,omitempty"`
	// Fallback means that the advice's fallback was applied since the tick before, because none came for --stale-after.
	Fallback bool `json:"fallback,omitempty"`
	// Refused is why nothing was done with this tick: too old, or of another node.
	Refused string `json:"refused,omitempty"`
	// DroppedTicks counts the ticks that were not passed on since the start because the next stage was slow.
	DroppedTicks int64 `json:"droppedTicks,omitempty"`
}

// Write is one changed value of one cgroup. Key is the name in [Cgroup] ("cpusetCPUs"); Old and New are the file's text.
type Write struct {
	Cgroup string `json:"cgroup"`
	Key    string `json:"key"`
	Old    string `json:"old"`
	New    string `json:"new"`
	// OldMilliCPU and NewMilliCPU are the values of a quota's or a burst's texts with the cgroup's period, [Unlimited] for no limit; nil
	// for other keys, and where a text is not a number.
	OldMilliCPU *int64 `json:"oldMilliCPU,omitempty"`
	NewMilliCPU *int64 `json:"newMilliCPU,omitempty"`
}

// IsolationError is one value that could not be applied.
type IsolationError struct {
	Cgroup string `json:"cgroup"`
	Key    string `json:"key,omitempty"`
	Error  string `json:"error"`
}

// Eviction is what evict measured and decided.
type Eviction struct {
	Pressures []PressureFinding `json:"pressures,omitempty"`
	Taints    []Taint           `json:"taints,omitempty"`
	Evictions []PodEviction     `json:"evictions,omitempty"`
	DryRun    bool              `json:"dryRun,omitempty"`
	// Refused is why nothing was done with this tick: too old, or of another node.
	Refused string `json:"refused,omitempty"`
	// Errors names the inputs that a rule lacked, and the parts of the section that could not be decided.
	Errors []string `json:"errors,omitempty"`
	// Queued counts the pods that a soft finding names and whose eviction waits.
	Queued int `json:"queued,omitempty"`
	// Fleet is in the section of evict fleet alone.
	Fleet *FleetEviction `json:"fleet,omitempty"`
	// DroppedTicks counts the ticks that were not passed on since the start because the next stage was slow.
	DroppedTicks int64 `json:"droppedTicks,omitempty"`
}

// PressureFinding is one rule's measure this tick.
type PressureFinding struct {
	Rule  string `json:"rule"`
	Scope string `json:"scope"`
	// Part is the measured part of the scope where a rule measures several: a pool, a NUMA node, a signal.
	Part      string  `json:"part,omitempty"`
	Value     float64 `json:"value"`
	Threshold float64 `json:"threshold"`
	// Since is when the threshold was first met without a break; empty where it is not met.
	Since string `json:"since,omitempty"`
	Met   bool   `json:"met"`
	// Hard means that a met threshold causes an eviction, not only a taint.
	Hard bool `json:"hard,omitempty"`
	// Below means that the threshold is met where the value is under it, as free memory is, not over it.
	Below bool `json:"below,omitempty"`
	// DryRun means that the rule is measured and reported without consequences.
	DryRun bool `json:"dryRun,omitempty"`
}

// Units of a finding's value and threshold.
const (
	UnitMilliCPU = "milliCPU"
	UnitBytes    = "bytes"
	UnitPercent  = "percent"
	UnitPages    = "pages/s"
)

// Unit is the unit of the value and the threshold.
func (p *PressureFinding) Unit() string { return UnitOf(p.Scope, p.Part) }

// UnitOf is the unit of what a scope and its part measure; empty for a number of threads or a ratio.
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

// Taint should be on the node now.
type Taint struct {
	Key    string `json:"key"`
	Effect string `json:"effect"`
}

// States of an eviction.
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

// States of a report's target.
const (
	TargetWritten   = "written"
	TargetUnchanged = "unchanged"
	TargetPending   = "pending"
	TargetFailed    = "failed"
)

// Report is what report did.
type Report struct {
	Targets []Target `json:"targets"`
	// Refused is why nothing was reported of this tick: too old, or of another node.
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
