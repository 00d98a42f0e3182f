package reason

import (
	"fmt"
	"regexp"

	"polder/lib/phrase"
)

// Budget is the sum from which policy koordinator limits batch pods. Amounts are in milli-CPU.
type Budget struct {
	CapacityMilliCPU, Percent int64 // cpuSuppressThresholdPercent of the capacity
	ServicesMilliCPU          int64
	Services                  int // pods
	SystemMilliCPU            int64
	SystemFrom                string // what that is
	RestMilliCPU              int64
	Minimum                   string // the clause about the minimum that applies instead of the rest, empty if it does not
}

// String returns the sum.
func (b Budget) String() string {
	text := fmt.Sprintf("capacity %dm * %d %% (cpuSuppressThresholdPercent) - services %dm (%s) - system %dm (%s) = %dm",
		b.CapacityMilliCPU, b.Percent, b.ServicesMilliCPU, phrase.Count(b.Services, "pod"), b.SystemMilliCPU, b.SystemFrom, b.RestMilliCPU)
	if b.Minimum != "" {
		text += ", " + b.Minimum
	}
	return text
}

// AtLeast returns the clause about a minimum: percent of the capacity.
func AtLeast(milliCPU, percent int64) string {
	return fmt.Sprintf("at least %dm (cpuSuppressMinPercent %d)", milliCPU, percent)
}

// Suppression is the limit of all batch pods under policy koordinator.
type Suppression struct {
	Budget
	Result string
}

// String returns the reason.
func (s Suppression) String() string { return fmt.Sprintf("suppression: %s -> %s", s.Budget, s.Result) }

var suppression = regexp.MustCompile(`^suppression: capacity (\d+)m \* (\d+) % \(cpuSuppressThresholdPercent\) ` +
	`- services (\d+)m \((\d+) pods?\) - system (\d+)m \((.*?)\) = (-?\d+)m(?:, (at least .*?))? -> (.*)$`)

// ParseSuppression reads a reason.
func ParseSuppression(text string) (s Suppression, ok bool) {
	m := suppression.FindStringSubmatch(text)
	if m == nil {
		return s, false
	}
	return Suppression{
		Budget: Budget{
			CapacityMilliCPU: number(m[1]), Percent: number(m[2]), ServicesMilliCPU: number(m[3]), Services: int(number(m[4])),
			SystemMilliCPU: number(m[5]), SystemFrom: m[6], RestMilliCPU: number(m[7]), Minimum: m[8],
		},
		Result: m[9],
	}, true
}
