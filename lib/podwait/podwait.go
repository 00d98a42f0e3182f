// Package podwait defines how long a service waits for a resource that batch may use, once for all that act on it. Waiting that its own
// limits cause cannot be told from the rest, and nothing that is taken from batch shortens it: then its waiting is unknown. It is pure.
package podwait

import "polder/lib/tick"

// maxPermille is the longest valid waiting: as many threads as a kernel can have (PID_MAX_LIMIT) wait all the time.
const maxPermille = 1000 << 22

// CPU returns how long a pod waits for a CPU, in thousandths of the time: its cpuWaitPermille, or else its cpu.pressure (some avg10). It
// is unknown for a pod with a container that its own limit throttles: the kernel counts the time until the next period as waiting,
// both in cpu.pressure and in the run delays of threads.
func CPU(p *tick.Pod) (permille float64, known bool) {
	for i := range p.Containers {
		if throttled := p.Containers[i].ThrottledPercent; throttled != nil && *throttled > 0 {
			return 0, false
		}
	}
	if v := p.CPUWaitPermille; v != nil && *v >= 0 && *v <= maxPermille {
		return *v, true
	}
	return somePermille(p.CPUPressure)
}

// Memory returns a pod's memory.pressure, some avg10, in thousandths of the time. It is unknown for a pod that is, or has a container that
// is, at its own limit.
func Memory(p *tick.Pod) (permille float64, known bool) {
	if isAtLimit(p.Memory, p.Limits) {
		return 0, false
	}
	for i := range p.Containers {
		if c := &p.Containers[i]; isAtLimit(c.Memory, c.Limits) {
			return 0, false
		}
	}
	return somePermille(p.MemoryPressure)
}

// IO returns a pod's io.pressure, some avg10, in thousandths of the time.
func IO(p *tick.Pod) (permille float64, known bool) { return somePermille(p.IOPressure) }

// SomePercent returns the percentage of the last 10 s in which some task waited.
func SomePercent(p *tick.Pressure) (percent float64, known bool) {
	if p == nil || p.Some == nil || !(p.Some.Avg10 >= 0 && p.Some.Avg10 <= 100) {
		return 0, false
	}
	return p.Some.Avg10, true
}

func somePermille(p *tick.Pressure) (permille float64, known bool) {
	percent, known := SomePercent(p)
	return 10 * percent, known
}

// isAtLimit reports whether a use of memory is so close to its limit that the kernel reclaims because of the limit.
func isAtLimit(m *tick.Memory, limits *tick.Resources) bool {
	const atLimitPart = 0.95
	if m == nil || m.UsageBytes == nil || limits == nil || limits.MemoryBytes == nil {
		return false
	}
	return *limits.MemoryBytes > 0 && *m.UsageBytes >= atLimitPart**limits.MemoryBytes
}
