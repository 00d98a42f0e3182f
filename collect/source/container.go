package source

import (
	"os"

	"polder/collect/loadavg"
	"polder/lib/cgroup"
	"polder/lib/tick"
)

// container is one container between rounds, and the memory that its part of a sample points into.
type container struct {
	path      string
	group     *cgroup.Group // nil where it could not be opened, because of openErr
	openErr   error
	inode     uint64
	createdAt float64

	before, now reading
	throttling  counters // periods, and those of them in which the quota was used up
	refaulting  counters // pages
	loads       loadavg.Average
	sampled     loadSample
	pass        pass
	// areThreadsHidden means that the last pass found threads that cannot be seen here.
	areThreadsHidden bool
	// counted is when the threads were last counted, if that is known.
	counted      float64
	threadsKnown bool
	waits        waits

	usage, load1, load5, threads, throttled float64
	usageBytes, workingSet, rss, cache      float64
	refaults                                float64
	memory                                  tick.Memory
	numa                                    []tick.NUMABytes
}

// reading is a reading from which the rate of use is computed.
type reading struct {
	seconds float64
	has     cgroup.Has
	usage   uint64
}

// counters are the last two readings of counters whose file is not read in each round.
type counters struct{ before, now count }

type count struct {
	seconds float64
	known   bool
	n, of   uint64
}

// record notes the newest reading; the same one again changes nothing.
func (c *counters) record(now count) {
	if now.seconds > c.now.seconds { // a copy's clock may stand still: the older reading stays
		c.before = c.now
	}
	c.now = now
}

// growth is the growth of the counters between the two readings, and the time between them. Counters that decreased belong to another
// cgroup.
func (c *counters) growth() (n, of uint64, seconds float64, ok bool) {
	b, now := &c.before, &c.now
	seconds = now.seconds - b.seconds
	if !b.known || !now.known || seconds <= 0 || now.n < b.n || now.of < b.of {
		return 0, 0, 0, false
	}
	return now.n - b.n, now.of - b.of, seconds, true
}

// update notes the values that the group has just read.
func (c *container) update(seconds float64) {
	v := &c.group.Values
	if seconds > c.now.seconds { // as in counters
		c.before = c.now
	}
	c.now = reading{seconds: seconds, has: v.Has, usage: v.UsageNanoseconds}
	at := func(has cgroup.Has) (float64, bool) {
		if v.Has&has == 0 {
			return seconds, false
		}
		return c.group.At(has), true
	}
	throttled := count{n: v.ThrottledPeriods, of: v.Periods}
	throttled.seconds, throttled.known = at(cgroup.HasThrottling)
	c.throttling.record(throttled)
	refaults := count{n: v.RefaultPages}
	refaults.seconds, refaults.known = at(cgroup.HasRefaults)
	c.refaulting.record(refaults)
	switch {
	case v.Has&cgroup.HasThreads != 0:
		c.counted, c.threads, c.threadsKnown = seconds, float64(v.Threads), true
	case !c.group.IsCounting() || seconds-c.counted > loadMaxAge.Seconds():
		c.threadsKnown = false
	}
}

// fill writes the container's values into its part of the sample. The round's seconds are those of the last reading, if it was read.
func (c *container) fill(into *tick.Container, seconds float64) {
	into.CPUSetCPUs, into.NUMAMemory = "", nil
	into.Threads, into.Memory = nil, nil
	into.UsageMilliCPU, into.ThrottledPercent = c.rates()
	loaded := c.loadKnown(asTime(seconds))
	into.Load1 = known(&c.load1, rounded(c.loads.Load1, 1000), loaded)
	into.Load5 = known(&c.load5, rounded(c.loads.Load5, 1000), loaded)
	if c.group == nil {
		return
	}
	v := &c.group.Values
	if v.Has&cgroup.HasCPUSet != 0 {
		into.CPUSetCPUs = v.CPUSetCPUs
	}
	into.Threads = known(&c.threads, c.threads, c.threadsKnown)
	if has := v.Has & (cgroup.HasMemory | cgroup.HasMemoryStat); has != 0 {
		stat := has&cgroup.HasMemoryStat != 0
		c.memory.UsageBytes = known(&c.usageBytes, float64(v.MemoryBytes), has&cgroup.HasMemory != 0)
		c.memory.WorkingSetBytes = known(&c.workingSet, float64(v.WorkingSetBytes()), has == cgroup.HasMemory|cgroup.HasMemoryStat)
		c.memory.RSSBytes = known(&c.rss, float64(v.RSSBytes), stat)
		c.memory.CacheBytes = known(&c.cache, float64(v.CacheBytes), stat)
		c.memory.RefaultBytesPerSecond = c.refaultRate()
		into.Memory = &c.memory
	}
	if v.Has&cgroup.HasNUMA != 0 {
		c.numa = c.numa[:0]
		for _, n := range v.NUMA {
			c.numa = append(c.numa, tick.NUMABytes{ID: n.ID, Bytes: float64(n.Bytes)})
		}
		into.NUMAMemory = c.numa
	}
}

// rates are the use since the previous reading, and the share of the periods in which the quota was used up; nil where
// there is no previous reading. Counters that decreased belong to another cgroup.
func (c *container) rates() (usage, throttled *float64) {
	b, n := &c.before, &c.now
	elapsed, both := n.seconds-b.seconds, b.has&n.has
	if elapsed <= 0 {
		return nil, nil
	}
	if both&cgroup.HasUsage != 0 && n.usage >= b.usage {
		usage = known(&c.usage, rounded(float64(n.usage-b.usage)/elapsed/1e6, 10), true)
	}
	if throttledPeriods, periods, _, ok := c.throttling.growth(); ok {
		percent := 0.0 // no quota, or nothing ran
		if periods > 0 {
			percent = min(100, float64(throttledPeriods)/float64(periods)*100)
		}
		throttled = known(&c.throttled, rounded(percent, 10), true)
	}
	return usage, throttled
}

// refaultRate is how many bytes a second were refaulted after they had been reclaimed, nil where there is no previous reading.
func (c *container) refaultRate() *float64 {
	pages, _, seconds, ok := c.refaulting.growth()
	if !ok {
		return nil
	}
	return known(&c.refaults, rounded(float64(pages)*pageBytes/seconds, 1), true)
}

// pageBytes is the size of a page of memory, in which the kernel counts what it reclaims.
var pageBytes = float64(os.Getpagesize())

func (c *container) close() {
	c.waits.reset()
	if c.group != nil {
		c.group.Close()
	}
}

func (c *container) save() CgroupState {
	s := CgroupState{Inode: c.inode, Seconds: c.now.seconds, Load: c.loads}
	if c.pass.At > 0 {
		p := c.pass
		s.Walk = &p
	}
	if c.now.has&cgroup.HasUsage != 0 {
		s.UsageNanoseconds = new(c.now.usage)
	}
	if t := &c.throttling.now; t.known {
		s.Periods, s.ThrottledPeriods = new(t.of), new(t.n)
	}
	return s
}

// maxThreads is more threads than a machine can have; a saved state with more is damaged.
const maxThreads = 1 << 32

func (c *container) load(s CgroupState) {
	isPlausible := func(threads float64) bool { return threads >= 0 && threads <= maxThreads }
	if isPlausible(s.Load.Load1) && isPlausible(s.Load.Load5) {
		c.loads = s.Load
	}
	if s.Walk != nil && s.Walk.Count <= maxThreads {
		c.pass = *s.Walk
	}
	c.now = reading{seconds: s.Seconds}
	if s.UsageNanoseconds != nil {
		c.now.has |= cgroup.HasUsage
		c.now.usage = *s.UsageNanoseconds
	}
	if s.Periods != nil && s.ThrottledPeriods != nil {
		c.throttling.now = count{seconds: s.Seconds, known: true, n: *s.ThrottledPeriods, of: *s.Periods}
	}
}
