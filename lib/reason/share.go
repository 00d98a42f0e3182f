package reason

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"polder/lib/phrase"
	"polder/lib/tick"
)

// Share is the sum from which policy katalyst computes what the services of a shared pool have. Amounts are in milli-CPU.
type Share struct {
	// Pool is the pool's name.
	Pool string
	// ReserveMilliCPU is kept in reserve: of ReserveOfMilliCPU where several pools divide that, which otherwise is 0.
	ReserveMilliCPU, ReserveOfMilliCPU int64
	ReserveFrom                        string // the source of the setting
	NeedMilliCPU                       float64
	Containers                         int
	SystemMilliCPU                     float64 // less than a half is omitted
	SumMilliCPU                        float64
	Size                               Amount
	Bound                              string // why the size is not the sum, empty if it is
}

// String returns the reason.
func (s Share) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: reserve %dm", s.Pool, s.ReserveMilliCPU)
	if s.ReserveOfMilliCPU > 0 {
		fmt.Fprintf(&b, " of %dm", s.ReserveOfMilliCPU)
	}
	fmt.Fprintf(&b, " (%s) + need %.0fm of %s", s.ReserveFrom, s.NeedMilliCPU, phrase.Count(s.Containers, "container"))
	if s.SystemMilliCPU >= 0.5 {
		fmt.Fprintf(&b, " + system %.0fm", s.SystemMilliCPU)
	}
	fmt.Fprintf(&b, " = %.0fm -> %s", s.SumMilliCPU, s.Size)
	if s.Size.IsWhole {
		b.WriteString(" in whole cores")
	}
	return b.String() + After(s.Bound)
}

// After returns a clause that follows a reason; empty for an empty one.
func After(clause string) string {
	if clause == "" {
		return ""
	}
	return "; " + clause
}

var share = regexp.MustCompile(`^` + tick.PoolShare + `: reserve (\d+)m(?: of (\d+)m)? \((.*?)\)` +
	` \+ need (\d+)m of (\d+) containers?(?: \+ system (\d+)m)? = (\d+)m -> (\d+)(?: (CPUs) in whole cores|(m))(?:; (.*))?$`)

// ParseShare reads the sum of the pool share.
func ParseShare(text string) (s Share, ok bool) {
	m := share.FindStringSubmatch(text)
	if m == nil {
		return s, false
	}
	return Share{
		Pool: tick.PoolShare, ReserveMilliCPU: number(m[1]), ReserveOfMilliCPU: number(m[2]), ReserveFrom: m[3],
		NeedMilliCPU: float64(number(m[4])), Containers: int(number(m[5])), SystemMilliCPU: float64(number(m[6])),
		SumMilliCPU: float64(number(m[7])), Size: amountOf(m[8], m[10]), Bound: m[11],
	}, true
}

// HoldDown is a bound of a [Share]: services keep what they got for another while.
type HoldDown struct {
	Size            Amount
	Remaining, Hold time.Duration // Remaining is rounded up to seconds
	HoldFrom        string        // the source of the setting
}

// Shrink is a bound of a [Share]: a pool that needs fewer CPUs shrinks in steps.
type Shrink struct {
	Need, Step int    // CPUs
	StepFrom   string // the source of the setting
}

// Floor is a bound of a [Share]: services need more than there is beside the floor of the reclaimed pods.
type Floor struct {
	Floor     Amount
	FloorFrom string // the source of the setting
	// Need is what one of several shared pools needs, and Divided what they divide, in CPUs; 0 if there is only one.
	Need, Divided int
}

// Off is a bound of a [Share]: nothing is reclaimed, so that services have all but the floor.
type Off struct {
	Floor     Amount
	FloorFrom string // the source of the setting
	IsSeveral bool   // there are several shared pools
}

func (b HoldDown) String() string {
	seconds := (b.Remaining + time.Second - 1) / time.Second
	return fmt.Sprintf("hold-down: %s for %ds more (hold %s: %s)", b.Size, seconds, b.Hold, b.HoldFrom)
}

func (b Shrink) String() string {
	return fmt.Sprintf("%d CPUs are needed: it shrinks by %d per step (shrink-step: %s)", b.Need, b.Step, b.StepFrom)
}

func (b Floor) String() string {
	switch {
	case b.Divided > 0:
		return fmt.Sprintf("%d CPUs are needed, the shared pools divide %d: the reclaimed pool keeps its floor of %s (%s)",
			b.Need, b.Divided, b.Floor, b.FloorFrom)
	case b.Floor.IsWhole:
		return fmt.Sprintf("the reclaimed pool keeps its floor of %s (%s)", b.Floor, b.FloorFrom)
	}
	return fmt.Sprintf("the reclaimed pods keep their floor of %s (%s)", b.Floor, b.FloorFrom)
}

func (b Off) String() string {
	who := "it has"
	if b.IsSeveral {
		who = "the shared pools have"
	}
	return fmt.Sprintf("nothing is reclaimed, so %s all but the floor of %s (%s)", who, b.Floor, b.FloorFrom)
}

// The expressions also have the wordings of version 0.1.
var (
	holdDown = regexp.MustCompile(`^(?:hold-down:|held at) (\d+)( CPUs|m) for (\d+)s more \(hold ([^:]+): (.*)\)$`)
	shrink   = regexp.MustCompile(`^(\d+) CPUs (?:are needed:|would do,) it shrinks by (\d+) (?:per|a) step \(shrink-step: (.*)\)$`)
	floor    = regexp.MustCompile(`^(?:(\d+) CPUs are needed, the shared pools divide (\d+): )?` +
		`the reclaimed (?:pool keeps its|pods keep their) floor of (\d+)( CPUs|m) \((.*)\)$`)
	off = regexp.MustCompile(`^nothing is reclaimed, so (?:it has|(the shared pools have)) all but the floor of (\d+)( CPUs|m) \((.*)\)$`)
)

// ParseBound reads a [HoldDown], [Shrink], [Floor] or [Off]; nil for another clause.
func ParseBound(text string) fmt.Stringer {
	if m := holdDown.FindStringSubmatch(text); m != nil {
		if hold, err := time.ParseDuration(m[4]); err == nil {
			return HoldDown{amountOf(m[1], m[2]), time.Duration(min(number(m[3]), 1e9)) * time.Second, hold, m[5]}
		}
	}
	if m := shrink.FindStringSubmatch(text); m != nil {
		return Shrink{int(number(m[1])), int(number(m[2])), m[3]}
	}
	if m := floor.FindStringSubmatch(text); m != nil {
		return Floor{amountOf(m[3], m[4]), m[5], int(number(m[1])), int(number(m[2]))}
	}
	if m := off.FindStringSubmatch(text); m != nil {
		return Off{amountOf(m[2], m[3]), m[4], m[1] != ""}
	}
	return nil
}
