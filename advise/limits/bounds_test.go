package limits

import (
	"math"
	"testing"
	"time"

	"polder/lib/tick"
)

// The offer to mid pods counts too, because batch may be of either kind. An unknown one adds nothing.
func TestTheCapIsOfBothOffers(t *testing.T) {
	for _, tt := range []struct {
		mid  *tick.Reclaimed
		want float64
	}{
		{nil, 20 * gib},
		{&tick.Reclaimed{}, 20 * gib},
		{&tick.Reclaimed{MemoryBytes: new(int64(5 * gib))}, 25 * gib},
		{&tick.Reclaimed{MemoryBytes: new(int64(-5 * gib))}, 20 * gib},
	} {
		w := &round{state: &State{}, tick: &tick.Tick{Sample: &newRun(t).sample}, advice: &tick.Advice{Reclaimed: &tick.Reclaimed{MemoryBytes: new(int64(20 * gib))}, Mid: tt.mid}}
		if can, text, why := w.possibleCap([]cappedCgroup{{use: 4 * gib, rss: 4 * gib}}, true); can != tt.want || why != "" {
			t.Errorf("mid %+v: %v (%s%s); want %v", tt.mid, can, text, why, tt.want)
		}
	}
}

// The machine's memory is the Node object's; without it, the value that was read. No cap is larger.
func TestTheCapIsNoLargerThanTheNode(t *testing.T) {
	for _, tt := range []struct {
		capacity *tick.Resources
		want     string
	}{
		{&tick.Resources{MemoryBytes: new(32.0 * gib)}, "high 32768, max 36045"},
		{&tick.Resources{}, "high 40960, max 45056"},
		{nil, "high 40960, max 45056"},
	} {
		r := newRun(t)
		r.settings.Services = None
		r.sample.Capacity, r.offer = tt.capacity, new(int64(40*gib))
		r.tickAfter(1).want("/batch", tt.want)
	}
}

// The cap falls immediately if by more than a thirty-second; it rises by more than that after half a minute, to the least of that time.
func TestTheCapFollows(t *testing.T) {
	begun := begin.Add(-riseAfter)
	for _, tt := range []struct {
		name      string
		can       float64
		minimum   int64 // so far
		riseSince time.Time
		want      float64
		bound     bool
	}{
		{"the same", 32 * gib, math.MaxInt64, begin, 32 * gib, false},
		{"less by a thirty-second", 31 * gib, math.MaxInt64, begin, 32 * gib, false},
		{"less by more", 31*gib - mebibyte, math.MaxInt64, begin, 31*gib - mebibyte, false},
		{"parts of a MiB are left out", 30*gib + 5, math.MaxInt64, begin, 30 * gib, false},
		{"a little more", 32.5 * gib, math.MaxInt64, begin, 32 * gib, false},
		{"a little more for long", 32.5 * gib, math.MaxInt64, begun, 32 * gib, false},
		{"more by a thirty-second for long", 33 * gib, math.MaxInt64, begun, 32 * gib, false},
		{"more", 40 * gib, math.MaxInt64, begun.Add(1), 32 * gib, true},
		{"more for long", 40 * gib, math.MaxInt64, begun, 40 * gib, false},
		{"more for long, and less meanwhile", 40 * gib, 36 * gib, begun, 36 * gib, true},
		{"more for long, and as little as now meanwhile", 40 * gib, 32 * gib, begun, 32 * gib, true},
		{"more for long, of a state file without the least", 40 * gib, 0, begun, 40 * gib, false},
	} {
		st := &State{CapBytes: 32 * gib, MinPossibleBytes: tt.minimum, RiseSince: tt.riseSince}
		bound := st.moveCap(begin, tt.can)
		if float64(st.CapBytes) != tt.want || (bound != "") != tt.bound {
			t.Errorf("%s: cap of %s, %q; want %s", tt.name, size(float64(st.CapBytes)), bound, size(tt.want))
		}
	}
}

// A tier of kubelet's other than that of BestEffort pods is never capped, even if it contains only batch now: services may start in it.
func TestOnlyTheBestEffortTierIsCapped(t *testing.T) {
	r := newRun(t)
	r.settings.Services = None
	r.sample.BatchCgroups = nil
	r.sample.Tiers = []tick.Tier{{Name: tick.TierBestEffort, Cgroup: "kubepods"}, {Name: tick.TierBurstable, Cgroup: "/kubepods/burstable"}}
	r.sample.Pods[0].QoSSource, r.sample.Pods[0].Cgroup = tick.QoSFromKatalyst, "/kubepods/burstable/podj"
	r.tickAfter(1).want("/kubepods/burstable", "")
	r.want("/kubepods/burstable/podj", "high 20480, max 22528")
}

// The least that batch keeps is the total of all batch.
func TestTheLeastIsDivided(t *testing.T) {
	r := newRun(t)
	r.settings.Services, r.offer = None, new(int64(0))
	r.sample.Memory = &tick.NodeMemory{TotalBytes: new(4.0 * gib), AvailableBytes: new(4.0 * gib)}
	r.sample.BatchCgroups = []string{"/batch", "/grid"}
	r.job().Memory = memoryUse(0)
	r.sample.Pods = append(r.sample.Pods, tick.Pod{UID: "g", Name: "grid", QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: "/grid/1", Memory: memoryUse(0)})
	r.tickAfter(1).want("/batch", "high 64, max 71")
	r.want("/grid", "high 64, max 71")
}

// On version 1 the hard limit stays above batch's use, even if that exceeds the cap a little: below the use the kernel would kill.
func TestVersion1NeverLimitsUnderTheUse(t *testing.T) {
	r := newRun(t)
	r.sample.CgroupVersion, r.settings.Services = 1, None
	r.tickAfter(1).want("/batch", "high 20480, max 20480")
	*r.job().Memory.UsageBytes = 20.2 * gib
	r.tickAfter(1).want("/batch", "high 20480, max 21202")
	*r.job().Memory.UsageBytes = 19.4 * gib // nothing exceeds the cap, and so little is left that an allocation would reach it
	r.tickAfter(60).want("/batch", "high 20480, max 20480")
}
