// Package reason has the wordings of advise's reasons, and of evict's errors and messages, that report recognizes. One definition writes
// and reads each, so that a changed wording cannot break the reader. Reasons that are only quoted are written where they arise.
package reason

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// These are the beginnings of reasons.
const (
	// ColdMemory begins each reason about cold memory.
	ColdMemory = "cold memory: "
	// BatchClass precedes the scheduling class of batch pods and a colon.
	BatchClass = "batch class "
	// DiskWeight, DiskLimits and DiskCosts precede batch's weight on disks, its limits, and the disks that are shared by costs.
	DiskWeight = "batch disks: weight "
	DiskLimits = "batch disks: at most "
	DiskCosts  = "disk costs: io.cost on "
)

// These begin the reasons with the amount of CPU that is offered, or why none is. Policy katalyst's sum is a [Share].
const (
	BatchCPU       = "batch-cpu" // policy koordinator: and the formula
	Offer          = "offer: "   // policy harvest
	NotOffered     = "nothing is offered: "
	Negligible     = "the reclaimed amount is negligible and not offered"
	NoReclaimedCPU = "no CPU is left for the reclaimed pool"
)

// Mid begins the names of the resources for mid pods, and the reasons with their amounts.
const Mid = "mid-"

const notMeasured = ": not measured"

// NotMeasured returns evict's error about what is not measured because the sample or the advice lacks a value, and why.
func NotMeasured(what, why string) string { return what + ": " + why + notMeasured }

// IsNotMeasured reports whether an error is one of [NotMeasured].
func IsNotMeasured(text string) bool { return strings.HasSuffix(text, notMeasured) }

// These precede the threshold that a value passed in the message of an eviction. The message has the value, too. LoadBound is for
// a pool's load, and ToleranceRate, in Katalyst's words, for the suppression of batch.
const (
	Threshold     = "threshold of "
	LoadBound     = "the bound is "
	ToleranceRate = "the pod suppression tolerance rate "
)

// HasThreshold reports whether an eviction's message has a value and the threshold that it passed.
func HasThreshold(message string) bool {
	return slices.ContainsFunc([]string{Threshold, LoadBound, ToleranceRate}, func(s string) bool { return strings.Contains(message, s) })
}

// Frozen ends the message of an eviction that has succeeded by freezing the pod: it is reported for as long as the pod is frozen.
const Frozen = " (frozen until evict --thaw)"

// IsOffer reports whether a reason has the amount of CPU that is offered, or why none is.
func IsOffer(text string) bool {
	return beginsWith(text, BatchCPU, Offer, NotOffered, Negligible, NoReclaimedCPU)
}

// IsDisk reports whether a reason has what is advised for disks.
func IsDisk(text string) bool { return beginsWith(text, DiskWeight, DiskLimits, DiskCosts) }

func beginsWith(text string, beginnings ...string) bool {
	for _, b := range beginnings {
		if strings.HasPrefix(text, b) {
			return true
		}
	}
	return false
}

// Amount is an amount of CPU: in whole CPUs where there are pools, otherwise in milli-CPU.
type Amount struct {
	MilliCPU int64
	IsWhole  bool
}

// CPUs returns an amount of whole CPUs.
func CPUs(n int) Amount { return Amount{MilliCPU: int64(n) * 1000, IsWhole: true} }

// String returns the amount with its unit, as in "12 CPUs" and "1500m".
func (a Amount) String() string {
	if a.IsWhole {
		return fmt.Sprintf("%d CPUs", a.MilliCPU/1000)
	}
	return fmt.Sprintf("%dm", a.MilliCPU)
}

func amountOf(digits, unit string) Amount {
	if unit == "m" {
		return Amount{MilliCPU: number(digits)}
	}
	return CPUs(int(number(digits)))
}

// number is 0 for an optional term without digits.
func number(digits string) int64 {
	n, _ := strconv.ParseInt(digits, 10, 64) // the expressions accept digits alone; more than fit become the largest number
	return n
}

// SystemUse returns the beginning of the reason with the parts of a [Share]'s term for the system.
func SystemUse(milliCPU float64) string {
	return fmt.Sprintf("system: %.0fm are used outside of the confined pods", milliCPU)
}

// systemUse also has the wording of version 0.1.
var systemUse = regexp.MustCompile(`^system: \d+m are used (?:outside of|beside)`)

// IsSystemUse reports whether a reason begins as [SystemUse].
func IsSystemUse(text string) bool { return systemUse.MatchString(text) }
