package limits

import (
	"strings"
	"testing"

	"polder/lib/tick"
)

// overCap returns a node whose batch uses 30 GiB over an offer of 20, with events of the cgroup above it.
func overCap(t *testing.T) (*run, *tick.MemoryEvents) {
	r := newRun(t)
	e := &tick.MemoryEvents{}
	r.sample.BatchMemory = []tick.CgroupMemory{{Cgroup: "/batch", Events: e}}
	r.tickAfter(1).want("/batch", "high 20480, max 22528")
	r.sample.Pods[0].Memory = memoryUse(30 * gib)
	return r, e
}

// memory.high is set below batch's use and follows it down. If it throttles batch for 10 s without effect, it stays at batch's use for a
// minute; then it is tried again.
func TestHighWithoutEffectStays(t *testing.T) {
	r, e := overCap(t)
	r.tickAfter(1).want("/batch", "high 27648, max 33792")
	for range 4 { // the use falls
		e.High += 100
		*r.job().Memory.UsageBytes *= 0.97
		*r.job().Memory.RSSBytes = *r.job().Memory.UsageBytes
		r.tickAfter(2)
	}
	use := *r.job().Memory.UsageBytes
	for range 5 { // the use stays
		e.High += 100
		r.tickAfter(2)
	}
	if high := strings.Fields(r.entryText("/batch"))[1]; high != "27197," {
		t.Errorf("memory.high is %s; want what batch holds, %.0f MiB; %q", high, use/mebibyte, r.advice.Reasons)
	}
	r.hasReason("memory.high of 1 cgroup stays at the use: nothing could be reclaimed within 10s")
	r.tickAfter(30).hasReason("memory.high of 1 cgroup stays")
	r.tickAfter(31)
	if high := strings.Fields(r.entryText("/batch"))[1]; high != "24477," {
		t.Errorf("after a minute memory.high is %s; want a step under %.0f MiB", high, use/mebibyte)
	}
}

// memory.max is not lowered while allocations reach it, and is lowered when none did for 30 s.
func TestMaxFollowsHigh(t *testing.T) {
	r, e := overCap(t)
	r.tickAfter(1).want("/batch", "high 27648, max 33792")
	e.Max++
	r.tickAfter(2)
	*r.job().Memory.UsageBytes, *r.job().Memory.RSSBytes = 25*gib, 25*gib
	r.tickAfter(2).want("/batch", "high 23040, max 33792")
	r.hasReason("memory.max of 1 cgroup is not lowered")
	r.tickAfter(28).want("/batch", "high 23040, max 28160")
	e.OOMKill += 2
	r.tickAfter(2).hasReason("the kernel killed 2 of batch's processes")
	e.OOMKill++ // only those since the tick before
	r.tickAfter(2).hasReason("the kernel killed 1 of batch's processes")
}

// Unknown events change nothing, nor do those of a cgroup that was created again.
func TestUnknownEvents(t *testing.T) {
	r, _ := overCap(t)
	r.sample.BatchMemory = nil
	for range 30 {
		r.tickAfter(2).want("/batch", "high 27648, max 33792")
	}
	r, e := overCap(t)
	e.High, e.Max = 500, 500
	r.tickAfter(1)
	e.High, e.Max = 0, 0
	r.tickAfter(31).want("/batch", "high 27648, max 33792")
}
