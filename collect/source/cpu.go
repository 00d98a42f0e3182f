package source

import (
	"errors"
	"slices"

	"polder/collect/host"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// CPU is the whole node's CPU use and load. Time stolen by a hypervisor does not count as use: it has a value of its own.
var CPU = Source{
	Name: "cpu",
	Doc:  "use and steal time from /proc/stat, load from /proc/loadavg",
	New:  func(e *Env) Reader { return &cpuReader{host: e.Host} },
}

type cpuReader struct {
	host                               *host.Host
	times, before                      []host.CPUTime
	at                                 float64
	isStealUnknown                     bool // times are from the state of a version that did not save it
	cpu                                tick.NodeCPU
	usage, steal, load1, load5, load15 float64
}

func (c *cpuReader) Read(r *Round) error {
	c.cpu = tick.NodeCPU{}
	r.Sample.CPU = &c.cpu
	load1, load5, load15, loadErr := c.host.LoadAverage()
	c.cpu.Load1 = known(&c.load1, load1, loadErr == nil)
	c.cpu.Load5 = known(&c.load5, load5, loadErr == nil)
	c.cpu.Load15 = known(&c.load15, load15, loadErr == nil)
	return errors.Join(c.readUsage(r), loadErr)
}

func (c *cpuReader) readUsage(r *Round) error {
	r.busySeconds = 0
	at := r.Clock.Seconds()
	c.before, c.times = c.times, c.before
	times, err := c.host.CPUTimes(c.times)
	c.times = times
	if err != nil {
		c.times = c.times[:0]
		return err
	}
	elapsed, isStealUnknown := at-c.at, c.isStealUnknown
	c.at, c.isStealUnknown = at, false
	if len(c.before) == 0 || elapsed <= 0 {
		return nil
	}
	total := c.subtract(r)
	r.busySeconds = elapsed
	c.cpu.UsageMilliCPU = known(&c.usage, milliCPU(total, elapsed), true)
	c.cpu.StealMilliCPU = known(&c.steal, milliCPU(c.stolen(), elapsed), !isStealUnknown)
	return nil
}

// stolen is how many ticks the hypervisor has stolen since the last round, from the CPUs that were online then.
func (c *cpuReader) stolen() (ticks int64) {
	for _, t := range c.times {
		i := slices.IndexFunc(c.before, func(before host.CPUTime) bool { return before.ID == t.ID })
		if i >= 0 && t.StealTicks > c.before[i].StealTicks { // some hypervisors let it decrease
			ticks += int64(min(t.StealTicks-c.before[i].StealTicks, 1<<60))
		}
	}
	return ticks
}

// subtract fills r.busy and returns its sum. CPUs that came online since the last round count from the next round on.
func (c *cpuReader) subtract(r *Round) int64 {
	size := 0
	for _, t := range c.times {
		size = max(size, t.ID+1)
	}
	r.busy = r.busy[:0]
	for range size {
		r.busy = append(r.busy, -1)
	}
	for _, t := range c.before {
		if t.ID < size {
			r.busy[t.ID] = -2 - int64(t.BusyTicks) // below -1: only known before
		}
	}
	var total int64
	for _, t := range c.times {
		before := -2 - r.busy[t.ID]
		if r.busy[t.ID] = -1; before >= 0 {
			r.busy[t.ID] = max(0, int64(t.BusyTicks)-before)
			total += r.busy[t.ID]
		}
	}
	for id, n := range r.busy {
		if n < -1 {
			r.busy[id] = -1 // went offline
		}
	}
	return total
}

// milliCPU converts ticks in a time to thousandths of a CPU.
func milliCPU(ticks int64, seconds float64) float64 {
	return rounded(float64(ticks)*1000/host.TicksPerSecond/seconds, 10)
}

func (c *cpuReader) Save(s *State) {
	if len(c.times) > 0 {
		s.CPUTimes = &CPUState{Seconds: c.at, HasSteal: true, CPUs: slices.Clone(c.times)} // saved while c.times is overwritten
	}
}

func (c *cpuReader) Load(s *State) {
	isPlausible := func(t host.CPUTime) bool {
		return t.ID >= 0 && t.ID <= cpus.MaxID && max(t.BusyTicks, t.StealTicks) < 1<<60
	}
	if s.CPUTimes != nil && !slices.ContainsFunc(s.CPUTimes.CPUs, func(t host.CPUTime) bool { return !isPlausible(t) }) {
		c.times, c.at, c.isStealUnknown = s.CPUTimes.CPUs, s.CPUTimes.Seconds, !s.CPUTimes.HasSteal
	}
}
