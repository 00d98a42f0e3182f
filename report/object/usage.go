package object

import (
	"cmp"
	"math"
	"slices"
	"time"

	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
	"polder/lib/window"
)

// Usage remembers a node's use for its NodeMetric. Its zero value remembers nothing.
type Usage struct {
	settings     metricSettings
	node, system use
	numa         map[int]*use
	pods         map[string]*podUse // by UID
	omitted      int                // number of pods that are not remembered: too many, or without a name
	samples      int                // up to enough
	reported     time.Time
}

// use is CPU in milli-CPU and memory in bytes over a while.
type use struct{ cpu, memory window.Samples }

type podUse struct {
	use
	namespace, name, qos, priority string
	inTick, terminating            bool // in the newest tick; its deletion has begun
}

// Bounds of a NodeMetric's data: an object of the cluster may have 1.5 MB.
const (
	maxMeasuredPods = 1000
	maxDurations    = 10
	// minSamples is the number of samples for a first report, because a single one has no rates.
	minSamples = 2
	// nodePoints and podPoints bound the points of the longest time; a point is a second at least.
	nodePoints = 3600
	podPoints  = 60
)

// metricSettings are the settings of a NodeMetric.
type metricSettings struct {
	aggregate, interval time.Duration
	durations           []time.Duration
	memory              string
	longestDuration     time.Duration // the longest of them
}

// Floors of the times, in seconds.
const (
	leastAggregate = 60
	leastInterval  = 30
)

// readMetricSettings reads the settings; an invalid duration, or one longer than a day, is left out.
func readMetricSettings(c sloconfig.Colocation) metricSettings {
	d := sloconfig.Defaults().Colocation
	s := metricSettings{
		aggregate: seconds(c.MetricAggregateDurationSeconds, d.MetricAggregateDurationSeconds, leastAggregate),
		interval:  seconds(c.MetricReportIntervalSeconds, d.MetricReportIntervalSeconds, leastInterval),
		memory:    *d.MetricMemoryCollectPolicy,
	}
	if p := c.MetricMemoryCollectPolicy; p != nil && (*p == sloconfig.UsageWithPageCache || *p == sloconfig.UsageWithHotPageCache) {
		s.memory = *p
	}
	policy := cmp.Or(c.MetricAggregatePolicy, d.MetricAggregatePolicy)
	s.longestDuration = s.aggregate
	for _, text := range policy.Durations[:min(len(policy.Durations), maxDurations)] {
		if v, err := time.ParseDuration(text); err == nil && v > 0 && v <= longestWait {
			s.durations = append(s.durations, v)
			s.longestDuration = max(s.longestDuration, v)
		}
	}
	return s
}

// pageCache reports whether the page cache counts as used.
func (s *metricSettings) pageCache() bool { return s.memory == sloconfig.UsageWithPageCache }

// Take notes a tick's sample.
func (u *Usage) Take(t *tick.Tick, c sloconfig.Colocation) {
	s := readMetricSettings(c)
	if s.pageCache() != u.settings.pageCache() { // the earlier measurements are a different figure
		forget := func(x *use) { x.memory = window.Samples{} }
		forget(&u.node)
		forget(&u.system)
		for _, n := range u.numa {
			forget(n)
		}
		for _, p := range u.pods {
			forget(&p.use)
		}
	}
	u.settings = s
	if t.Sample == nil {
		return
	}
	u.samples = min(u.samples+1, minSamples)
	cpu, memory := nodeUse(t.Sample, s.pageCache())
	podCPU, podMemory := u.takePods(t)
	u.add(&u.node, t.Time, cpu, memory)
	u.add(&u.system, t.Time, rest(cpu, podCPU), rest(memory, podMemory))
	u.takeNUMA(t)
}

func (u *Usage) add(x *use, at time.Time, cpu, memory *float64) {
	width := max(time.Second, u.settings.longestDuration/nodePoints)
	if cpu != nil {
		x.cpu.Add(at, *cpu, width, u.settings.longestDuration)
	}
	if memory != nil {
		x.memory.Add(at, *memory, width, u.settings.longestDuration)
	}
}

// rest is the node's use without the pods', unknown where either is.
func rest(node, pods *float64) *float64 {
	if node == nil || pods == nil {
		return nil
	}
	return new(max(*node-*pods, 0))
}

// nodeUse is the node's use. Available memory does not count as used, unless the page cache shall count.
func nodeUse(s *tick.Sample, pageCache bool) (cpu, memory *float64) {
	if s.CPU != nil {
		cpu = figure(s.CPU.UsageMilliCPU)
	}
	if m := s.Memory; m != nil {
		free := m.AvailableBytes
		if pageCache {
			free = m.FreeBytes
		}
		memory = difference(m.TotalBytes, free)
	}
	return cpu, memory
}

// difference is a whole without a part, unknown where the part is larger.
func difference(total, free *float64) *float64 {
	t, f := figure(total), figure(free)
	if t == nil || f == nil || *f > *t {
		return nil
	}
	return new(*t - *f)
}

// figure is a value if it is valid.
func figure(v *float64) *float64 {
	if v == nil || !(*v >= 0 && *v <= largest) {
		return nil
	}
	return v
}

// takePods notes the pods' use and returns the sums, which are unknown where a pod's use is.
func (u *Usage) takePods(t *tick.Tick) (cpu, memory *float64) {
	if u.pods == nil {
		u.pods = map[string]*podUse{}
	}
	// A list that could not be read does not mean that a pod has ended.
	known := !t.Sample.IsUnread("pods")
	for _, p := range u.pods {
		p.inTick = false
	}
	var milli, bytes sum
	counted := map[string]bool{}
	u.omitted = 0
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		key := cmp.Or(p.UID, p.Namespace+"/"+p.Name)
		if counted[key] {
			continue // a pod that is listed twice counts once
		}
		counted[key] = true
		c, m := podFigures(p, u.settings.pageCache())
		milli.add(c, p.IsIdle())
		bytes.add(m, p.IsIdle())
		u.takePod(t.Time, key, p, c, m)
	}
	if known {
		for key, p := range u.pods {
			if !p.inTick {
				delete(u.pods, key)
			}
		}
	}
	return milli.value(), bytes.value()
}

func (u *Usage) takePod(at time.Time, key string, p *tick.Pod, cpu, memory *float64) {
	if p.Missing == tick.MissingCluster || p.Namespace == "" {
		return // part of the node's use, but without a known name
	}
	x := u.pods[key]
	if x == nil {
		if len(u.pods) >= maxMeasuredPods || tick.CheckName(p.Name) != nil || tick.CheckName(p.Namespace) != nil {
			u.omitted++
			return
		}
		x = &podUse{}
		u.pods[key] = x
	}
	x.inTick, x.terminating = true, p.Terminating
	x.namespace, x.name = p.Namespace, p.Name
	x.qos, x.priority = qos.KoordinatorOrDefault(p), qos.PriorityClassOrDefault(p)
	width := max(time.Second, u.settings.aggregate/podPoints)
	if cpu != nil {
		x.cpu.Add(at, *cpu, width, u.settings.aggregate)
	}
	if memory != nil {
		x.memory.Add(at, *memory, width, u.settings.aggregate)
	}
}

// sum adds up figures; a missing one makes it unknown.
type sum struct {
	total   float64
	unknown bool
}

func (s *sum) add(v *float64, idle bool) {
	switch {
	case v != nil:
		s.total += *v
	case !idle:
		s.unknown = true
	}
}

func (s *sum) value() *float64 {
	if s.unknown {
		return nil
	}
	return &s.total
}

// podFigures are a pod's use, unknown where that of a container is. Memory is the anonymous memory; with the page cache, that as
// well.
func podFigures(p *tick.Pod, pageCache bool) (cpu, memory *float64) {
	cpu, memory = figure(p.UsageMilliCPU), memoryFigure(p.Memory, pageCache)
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Cgroup == "" { // it does not run
			continue
		}
		if figure(c.UsageMilliCPU) == nil {
			cpu = nil
		}
		if memoryFigure(c.Memory, pageCache) == nil {
			memory = nil
		}
	}
	return cpu, memory
}

func memoryFigure(m *tick.Memory, pageCache bool) *float64 {
	if m == nil {
		return nil
	}
	rss, cache := figure(m.RSSBytes), figure(m.CacheBytes)
	switch {
	case rss == nil || pageCache && cache == nil:
		return nil
	case pageCache:
		return new(*rss + *cache)
	}
	return rss
}

// takeNUMA notes the NUMA nodes' use. Only their free memory is known, not the available one, so that without the page cache
// their use is unknown.
func (u *Usage) takeNUMA(t *tick.Tick) {
	if u.numa == nil {
		u.numa = map[int]*use{}
	}
	nodes := t.Sample.NUMANodes[:min(len(t.Sample.NUMANodes), maxZones)]
	for id := range u.numa {
		if !slices.ContainsFunc(nodes, func(n tick.NUMASample) bool { return n.ID == id }) {
			delete(u.numa, id)
		}
	}
	for _, n := range nodes {
		x := u.numa[n.ID]
		if x == nil {
			x = &use{}
			u.numa[n.ID] = x
		}
		var memory *float64
		if u.settings.pageCache() && n.Memory != nil {
			memory = difference(n.Memory.TotalBytes, n.Memory.FreeBytes)
		}
		u.add(x, t.Time, figure(n.UsageMilliCPU), memory)
	}
}

// Due reports whether the NodeMetric must be written at the time: as soon as there are two samples, and then in every interval.
// It is false without both of the node's figures, because a reader would take a missing one for zero.
func (u *Usage) Due(now time.Time) bool {
	return !u.New() && u.Ready(now) &&
		(u.reported.IsZero() || now.Before(u.reported) || now.Sub(u.reported) >= u.settings.interval)
}

// Ready reports whether the node's use is known and recent.
func (u *Usage) Ready(now time.Time) bool {
	for _, trail := range []*window.Samples{&u.node.cpu, &u.node.memory} {
		if _, at, ok := trail.Last(); !ok || now.Sub(at) > u.settings.interval {
			return false
		}
	}
	return true
}

// Reported notes that the NodeMetric of the time is being written.
func (u *Usage) Reported(at time.Time) { u.reported = at }

// truncate truncates a figure to a whole number, like Koordinator.
func truncate(v float64) int64 { return int64(math.Floor(min(max(v, 0), largest))) }

// New reports whether there are too few samples yet for a first report.
func (u *Usage) New() bool { return u.samples < minSamples }
